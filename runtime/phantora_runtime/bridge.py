"""The shim's C functions (adaptor_api.h) through ctypes, on the library that is preloaded into this process."""

from __future__ import annotations

import ctypes
from enum import IntEnum

UNRESOLVED = 2**64 - 1


class Mark(IntEnum):
    """wire::MarkKind."""

    FIRST_FORWARD = 1
    OPTIMIZER_STEP = 2
    BACKWARD = 3
    TEXT = 4
    OUT_OF_MEMORY = 5
    PHASE = 6


class Mode(IntEnum):
    """client::Mode."""

    INERT = 0
    NULL = 1
    DETACHED = 2
    ACTOR = 3


class Status(IntEnum):
    """wire::Status."""

    OK = 0
    TIMEOUT = 1
    REFUSED = 2
    MALFORMED = 3
    ABORTED = 4
    ENDING = 5


def _load() -> ctypes.CDLL | None:
    library = ctypes.CDLL(None)
    if not hasattr(library, "phantora_attach"):
        return None
    u64, i32, text = ctypes.c_uint64, ctypes.c_int, ctypes.c_char_p
    library.phantora_build_id.restype = text
    library.phantora_mode.restype = i32
    library.phantora_attach.argtypes = [i32]
    library.phantora_attach.restype = None
    library.phantora_world_rank.restype = i32
    library.phantora_now_ns.restype = u64
    library.phantora_stamp_ns.restype = u64
    library.phantora_join_ns.argtypes = [u64]
    library.phantora_join_ns.restype = None
    library.phantora_is_driving.restype = i32
    library.phantora_mark.argtypes = [i32, u64, text]
    library.phantora_mark.restype = None
    library.phantora_note.argtypes = [text, text]
    library.phantora_note.restype = None
    library.phantora_exit.argtypes = [i32]
    library.phantora_exit.restype = None
    library.phantora_report_torch_memory.argtypes = [u64, u64]
    library.phantora_report_torch_memory.restype = None
    library.phantora_request.argtypes = [
        ctypes.c_uint16,
        ctypes.c_char_p,
        ctypes.c_size_t,
        ctypes.POINTER(ctypes.c_void_p),
        ctypes.POINTER(ctypes.c_size_t),
    ]
    library.phantora_request.restype = ctypes.c_uint32
    library.phantora_free.argtypes = [ctypes.c_void_p]
    library.phantora_free.restype = None
    return library


_shim = _load()


def loaded() -> bool:
    """Is the shim in this process?"""
    return _shim is not None


def mode() -> Mode:
    """How this process stands in the run."""
    return Mode(_shim.phantora_mode()) if _shim is not None else Mode.INERT


def timed() -> bool:
    """Does virtual time hold in this process?"""
    return mode() in (Mode.DETACHED, Mode.ACTOR)


def attach(rank: int) -> None:
    """This process becomes the rank's main actor."""
    if _shim is not None:
        _shim.phantora_attach(rank)


def now_ns() -> int:
    """The calling thread's virtual time."""
    return int(_shim.phantora_now_ns()) if _shim is not None else 0


def stamp_ns() -> int:
    """The clock that the calling thread hands on with an item: free of real time, also in helper threads."""
    return int(_shim.phantora_stamp_ns()) if _shim is not None else 0


def join_ns(clock_ns: int) -> None:
    """The calling thread's clock becomes max(own, clock_ns)."""
    if _shim is not None and clock_ns > 0:
        _shim.phantora_join_ns(clock_ns)


def is_driving() -> bool:
    """Does the calling thread move the rank's clock?"""
    return _shim is not None and bool(_shim.phantora_is_driving())


def mark(kind: Mark, value: int = 0, text: str = "") -> None:
    """Puts a mark into the rank's record stream."""
    if _shim is not None:
        _shim.phantora_mark(int(kind), value, text.encode())


def note(kind: str, text: str) -> None:
    """A note for the report, once per text."""
    if _shim is not None:
        _shim.phantora_note(kind.encode(), text.encode())


def exit_status(status: int) -> None:
    """Tells the core that this rank ends with `status`."""
    if _shim is not None:
        _shim.phantora_exit(status)


def report_torch_memory(reserved_peak: int, allocated_peak: int) -> None:
    """Torch's own peaks in bytes, for the report."""
    if _shim is not None:
        _shim.phantora_report_torch_memory(reserved_peak, allocated_peak)


def request(message_type: int, body: bytes) -> tuple[Status, bytes]:
    """One request to the core; the calling thread waits in virtual time as the message asks.

    Returns:
        The status and the reply's body.

    Raises:
        RuntimeError: The shim is not in this process.
    """
    if _shim is None:
        raise RuntimeError("Phantora's shim is not loaded in this process.")
    reply, size = ctypes.c_void_p(), ctypes.c_size_t()
    status = _shim.phantora_request(message_type, body, len(body), ctypes.byref(reply), ctypes.byref(size))
    try:
        data = ctypes.string_at(reply, size.value) if reply.value else b""
    finally:
        _shim.phantora_free(reply)
    return Status(status), data
