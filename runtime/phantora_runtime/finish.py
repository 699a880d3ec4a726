"""How a rank ends: torch's own memory peaks go to the report, and the supervisor may measure host memory once more."""

from __future__ import annotations

import atexit
import contextlib
import gc
import io
import os
import re
import sys
import threading
from typing import Any, NoReturn

from phantora_runtime import bridge, control

ACK_FD_VARIABLE = "PHANTORA_ACK_FD"
_rank = -1
_pid = -1
_done = False
_peaks = [0, 0]
_out_of_memory_errors = 0
_last_request_bytes = 0
_TRIED = re.compile(r"Tried to allocate ([0-9.]+) (bytes|KiB|MiB|GiB)")
_UNITS = {"bytes": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}


def install(rank: int) -> None:
    """In a rank, before the script: registers the end. Exit handlers run last in, first out, so ours comes last."""
    global _rank, _pid
    _rank, _pid = rank, os.getpid()
    atexit.register(report)
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.cuda._lazy_call(_watch_memory)


def is_rank() -> bool:
    """Is this process a rank, and not a fork of one that goes on in its script?"""
    return os.getpid() == _pid


def report() -> None:
    """Tells core and supervisor what only this process knows. Runs once, at the script's end or at `--steps`."""
    global _done
    if _done or not is_rank():  # exit handlers inherited by forks of the rank do nothing
        return
    _done = True
    _note_peaks()
    bridge.report_torch_memory(*_peaks)
    control.send("finishing", rank=_rank, oom_errors=_out_of_memory_errors)


def stop_at_step() -> NoReturn:
    """Ends this rank where step K+1 would begin: nothing is lost that the script has written or issued."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        torch.cuda.synchronize()
    report()
    _end(0)


def leave(status: int) -> NoReturn:
    """Ends this rank after its script, as Python does: threads are waited for, exit handlers run, files are flushed.

    What Python would do next, taking every object and module apart, is left out: it would only unshare memory between
    ranks and free what the kernel frees anyway.
    """
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    _end(status)


def _end(status: int) -> NoReturn:
    for thing in gc.get_objects():
        if type(thing) in (io.TextIOWrapper, io.BufferedWriter, io.BufferedRandom):
            with contextlib.suppress(Exception):
                thing.flush()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    bridge.exit_status(status)
    _wait_for_look()
    os._exit(status)


def out_of_memory(error: BaseException) -> dict[str, Any] | None:
    """Returns what torch held when it ran out of memory, or None where the error is another one."""
    torch = sys.modules.get("torch")
    kind = getattr(torch, "OutOfMemoryError", None)
    cause: BaseException | None = error
    while cause is not None and not (kind is not None and isinstance(cause, kind)):
        cause = cause.__cause__ or cause.__context__
    if cause is None or torch is None:
        return None
    statistics = torch.cuda.memory_stats() if torch.cuda.is_initialized() else {}
    match = _TRIED.search(str(cause))
    rounded = round(float(match[1]) * _UNITS[match[2]]) if match else 0
    return {
        "requested_bytes": _last_request_bytes or rounded,
        "reserved_bytes": int(statistics.get("reserved_bytes.all.current", 0)),
        "allocated_bytes": int(statistics.get("allocated_bytes.all.current", 0)),
        "inactive_split_bytes": int(statistics.get("inactive_split_bytes.all.current", 0)),
    }


def _watch_memory() -> None:
    """Runs when torch initialises CUDA: counts out-of-memory errors, and keeps peaks that the script resets."""
    torch = sys.modules["torch"]

    def observe(_device: int, requested: int, _total: int, _free: int) -> None:
        global _out_of_memory_errors, _last_request_bytes
        _out_of_memory_errors += 1
        _last_request_bytes = requested

    with contextlib.suppress(AttributeError, RuntimeError):
        torch._C._cuda_attach_out_of_memory_observer(observe)
    for name in ("_cuda_resetPeakMemoryStats", "_accelerator_resetPeakStats"):
        original = getattr(torch._C, name, None)
        if original is not None:
            setattr(torch._C, name, _noting_peaks(original))


def _noting_peaks(original: Any) -> Any:
    def reset(*arguments: Any) -> Any:
        _note_peaks()
        return original(*arguments)

    return reset


def _note_peaks() -> None:
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return
    with contextlib.suppress(RuntimeError):
        statistics = torch.cuda.memory_stats()
        for index, key in enumerate(("reserved_bytes.all.peak", "allocated_bytes.all.peak")):
            _peaks[index] = max(_peaks[index], int(statistics.get(key, 0)))


def _wait_for_look() -> None:
    """Rank 0, already gone for the core, lets the supervisor measure memory while other ranks are still there."""
    fd = int(os.environ.get(ACK_FD_VARIABLE, "-1"))
    if fd >= 0 and _rank == 0 and is_rank():
        with contextlib.suppress(OSError):
            os.read(fd, 1)  # a byte, or the end of the pipe when the supervisor is gone
