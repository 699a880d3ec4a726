"""Carries clocks with items that threads and processes hand to each other: the receiver goes on at max(own, sender's).

Without this a 10 ms load in a worker costs its rank nothing. Items themselves stay as they are for the script.
"""

from __future__ import annotations

import collections
import contextlib
import io
import multiprocessing.connection
import multiprocessing.process
import multiprocessing.queues
import queue
import struct
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

from phantora_runtime import bridge
from phantora_runtime.bridge import Mode, timed

_MAGIC = b"\x93PhantoraClk\n"
_HEADER = struct.Struct(f"<{len(_MAGIC)}sQ")
_installed = False


class _Thread(threading.local):
    """What a thread knows about the items it passes on."""

    feeding = False  # sends what others have put into a multiprocessing.Queue
    relays = False  # has received something and is a helper thread
    item_ns = 0  # clock of the item in hand
    busy_until_ns = 0  # when its last work of its own ended
    own_ns = 0  # its own clock when it received the item
    held: list[int] | None = None  # clocks that are joined later, by who collects them


_thread = _Thread()


def _is_helper() -> bool:
    return bridge.mode() == Mode.ACTOR and not bridge.is_driving()


def stamp_ns() -> int:
    """The clock that goes with what the calling thread hands on now.

    A helper thread that only passes items on (DataLoader's pinning thread) adds nothing to an item's clock: in which
    order items reach it is a matter of real time. What it works itself (sleeps) it adds, one item after the other.
    """
    own = bridge.stamp_ns()
    return _thread.item_ns + own - _thread.own_ns if _thread.relays else own


def join_ns(clock_ns: int) -> None:
    """The calling thread has received something that carries this clock."""
    if _thread.held is not None:
        _thread.held.append(clock_ns)
        return
    if _is_helper():
        worked = bridge.stamp_ns() - _thread.own_ns if _thread.relays else 0
        if worked > 0:
            _thread.busy_until_ns = _thread.item_ns + worked
        _thread.item_ns = max(clock_ns, _thread.busy_until_ns)
        _thread.relays = True
        bridge.join_ns(clock_ns)
        _thread.own_ns = bridge.stamp_ns()
        return
    _thread.relays = False
    bridge.join_ns(clock_ns)


@contextlib.contextmanager
def holding() -> Iterator[list[int]]:
    """Within it the calling thread's clock stays; the clocks received are in the list, for a later `join_ns`."""
    outer, _thread.held = _thread.held, []
    try:
        yield _thread.held
    finally:
        _thread.held = outer


class Stamped:
    """An item on its way through a multiprocessing.Queue, with the clock of who put it."""

    __slots__ = ("clock_ns", "item")

    def __init__(self, clock_ns: int, item: Any) -> None:
        self.clock_ns = clock_ns
        self.item = item

    def __reduce__(self) -> tuple[Any, ...]:
        return Stamped, (self.clock_ns, self.item)


def install(main: bool = False) -> None:
    """Hooks the standard library of this process, once. Does nothing where there is no virtual time.

    Args:
        main: The process is a rank's main process.
    """
    global _installed
    if _installed or not timed():
        return
    _installed = True
    _hook_thread_queues()
    _hook_connections()
    _hook_process_queues()
    _hook_threads()
    _hook_processes()
    _hook_futures()


# ---- queue.Queue and its kin: clocks lie beside the items, in the same order ----------------------------------------


def _hook_thread_queues() -> None:
    for cls in (queue.Queue, queue.LifoQueue, queue.PriorityQueue):
        if "_put" in vars(cls) and "_get" in vars(cls):
            cls._put = _stamped_put(cls._put, cls is queue.PriorityQueue)  # type: ignore[method-assign]
            cls._get = _stamped_get(cls._get, cls)  # type: ignore[method-assign]
    plain = queue.SimpleQueue

    class SimpleQueue(plain):  # type: ignore[misc, valid-type]
        """queue.SimpleQueue whose items carry the putter's clock."""

        def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
            super().put((stamp_ns(), item))

        def put_nowait(self, item: Any) -> None:
            super().put((stamp_ns(), item))

        def get(self, block: bool = True, timeout: float | None = None) -> Any:
            clock_ns, item = super().get(block, timeout)
            join_ns(clock_ns)
            return item

        def get_nowait(self) -> Any:
            clock_ns, item = super().get_nowait()
            join_ns(clock_ns)
            return item

    queue.SimpleQueue = SimpleQueue  # type: ignore[misc]


def _stamped_put(original: Any, by_identity: bool) -> Any:
    def put(self: Any, item: Any) -> None:
        # The queue's own lock is held here and in `get`.
        if by_identity:
            self.__dict__.setdefault("_phantora_clocks", {})[id(item)] = stamp_ns()
        else:
            self.__dict__.setdefault("_phantora_clocks", collections.deque()).append(stamp_ns())
        original(self, item)

    return put


def _stamped_get(original: Any, cls: type) -> Any:
    def get(self: Any) -> Any:
        item = original(self)
        clocks = self.__dict__.get("_phantora_clocks")
        if not clocks:
            return item
        if cls is queue.PriorityQueue:
            clock_ns = clocks.pop(id(item), 0)
        else:
            clock_ns = clocks.pop() if cls is queue.LifoQueue else clocks.popleft()
        join_ns(clock_ns)
        return item

    return get


# ---- pipes: a header before the message; readers pass messages without it -------------------------------------------


def _hook_connections() -> None:
    cls: Any = multiprocessing.connection.Connection
    send, receive = cls._send_bytes, cls._recv_bytes

    def _send_bytes(self: Any, buf: Any) -> None:
        if _thread.feeding:
            send(self, buf)
        else:
            send(self, _HEADER.pack(_MAGIC, stamp_ns()) + bytes(buf))

    def _recv_bytes(self: Any, maxsize: int | None = None) -> Any:
        buffer = receive(self, None if maxsize is None else maxsize + _HEADER.size)
        if buffer is None:
            return None
        data = buffer.getvalue()
        if data[: len(_MAGIC)] != _MAGIC:
            return buffer
        join_ns(_HEADER.unpack_from(data)[1])
        stripped = io.BytesIO()
        stripped.write(memoryview(data)[_HEADER.size :])
        return stripped

    cls._send_bytes, cls._recv_bytes = _send_bytes, _recv_bytes


def _hook_process_queues() -> None:
    """A multiprocessing.Queue sends from a feeder thread: the putter's clock goes with the item itself."""
    cls: Any = multiprocessing.queues.Queue
    put, get = cls.put, cls.get

    def stamped_put(self: Any, obj: Any, block: bool = True, timeout: float | None = None) -> None:
        put(self, Stamped(stamp_ns(), obj), block, timeout)

    def stamped_get(self: Any, block: bool = True, timeout: float | None = None) -> Any:
        item = get(self, block, timeout)
        if isinstance(item, Stamped):
            join_ns(item.clock_ns)
            return item.item
        return item

    feed = cls._feed

    def plain_feed(*arguments: Any) -> None:
        # By the time this thread sends, its process may be far ahead of the item.
        _thread.feeding = True
        feed(*arguments)

    cls.put, cls.get, cls._feed = stamped_put, stamped_get, staticmethod(plain_feed)


# ---- threads, processes, futures ------------------------------------------------------------------------------------


def _hook_threads() -> None:
    cls: Any = threading.Thread
    start, join, bootstrap = cls.start, cls.join, cls._bootstrap_inner

    def stamped_start(self: Any) -> None:
        self._phantora_started = stamp_ns()
        start(self)

    def stamped_bootstrap(self: Any) -> None:
        join_ns(getattr(self, "_phantora_started", 0))
        run = self.run

        def stamped_run() -> None:
            try:
                run()
            finally:
                self._phantora_ended = stamp_ns()

        self.run = stamped_run
        bootstrap(self)

    def stamped_join(self: Any, timeout: float | None = None) -> None:
        join(self, timeout)
        join_ns(getattr(self, "_phantora_ended", 0))

    cls.start, cls.join, cls._bootstrap_inner = stamped_start, stamped_join, stamped_bootstrap


def _hook_processes() -> None:
    """A forked child has its parent's clock, a spawned one gets it here. The shim joins a child's end at waitpid."""
    cls: Any = multiprocessing.process.BaseProcess
    start, bootstrap = cls.start, cls._bootstrap

    def stamped_start(self: Any) -> None:
        self._phantora_started = stamp_ns()
        start(self)

    def stamped_bootstrap(self: Any, *arguments: Any, **named: Any) -> Any:
        join_ns(getattr(self, "_phantora_started", 0))
        return bootstrap(self, *arguments, **named)

    cls.start, cls._bootstrap = stamped_start, stamped_bootstrap


def _hook_futures() -> None:
    cls: Any = Future
    set_result, set_exception, result, exception = cls.set_result, cls.set_exception, cls.result, cls.exception

    def stamped_set_result(self: Any, value: Any) -> None:
        self._phantora_set = stamp_ns()
        set_result(self, value)

    def stamped_set_exception(self: Any, value: Any) -> None:
        self._phantora_set = stamp_ns()
        set_exception(self, value)

    def joined_result(self: Any, timeout: float | None = None) -> Any:
        try:
            return result(self, timeout)
        finally:
            join_ns(getattr(self, "_phantora_set", 0))

    def joined_exception(self: Any, timeout: float | None = None) -> Any:
        try:
            return exception(self, timeout)
        finally:
            join_ns(getattr(self, "_phantora_set", 0))

    cls.set_result, cls.set_exception = stamped_set_result, stamped_set_exception
    cls.result, cls.exception = joined_result, joined_exception
