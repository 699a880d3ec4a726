"""Serves a run's event stream to live views over RUNDIR/events.sock (docs/events.md).

The core appends to events.jsonl and knows nothing of viewers. A thread here follows the file while somebody watches.
A viewer that comes late gets what is needed to show the run: all lines that are history (steps, notes), and the last
of each kind that replaces its forerunner. One that does not read fast enough misses lines of the latter kind, and is
let go when even history does not get through; nothing waits for it.
"""

from __future__ import annotations

import collections
import contextlib
import os
import selectors
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

SOCKET_NAME = "events.sock"
_PAUSE_S = 0.1
REPLACED = ("ranks", "kernels", "waiting", "details")  # a line of these types makes the one before it worthless
_MAX_HISTORY = 20_000
_MAX_QUEUE_BYTES = 4 << 20
_MAX_VIEWERS = 64


@contextlib.contextmanager
def socket_path(folder: Path) -> Iterator[str]:
    """A path to the socket that fits into an address (108 bytes), however deep the run directory lies."""
    directory = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{directory}/{SOCKET_NAME}"
    finally:
        os.close(directory)


def open_events(folder: Path) -> int:
    """Opens a run's events.jsonl; never a link or a FIFO that the script put in its place.

    Raises:
        OSError: There is none yet.
    """
    return os.open(folder / "events.jsonl", os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)


def line_type(line: bytes) -> str:
    """The type of a line, which the core writes first; "" for anything else."""
    start = b'{"type": "'
    return line[len(start) : line.find(b'"', len(start))].decode(errors="replace") if line.startswith(start) else ""


class History:
    """What a late viewer needs to see."""

    def __init__(self) -> None:
        self._lines: collections.deque[bytes] = collections.deque(maxlen=_MAX_HISTORY)
        self._first: bytes | None = None  # the run's own line, whatever falls out
        self._last: dict[str, bytes] = {}

    def add(self, line: bytes) -> None:
        """Takes in one whole line."""
        kind = line_type(line)
        if kind in REPLACED:
            self._last[kind] = line
        elif kind == "run":
            self._first = line
        else:
            self._lines.append(line)

    def lines(self) -> list[bytes]:
        """In an order that can be replayed: the run, its history, its latest state."""
        first = [self._first] if self._first is not None else []
        return [*first, *self._lines, *self._last.values()]


class _Viewer:
    def __init__(self, connection: socket.socket, lines: list[bytes]) -> None:
        self.connection = connection
        self._queue = collections.deque(lines)
        self._bytes = sum(map(len, lines))
        self._part = memoryview(b"")

    @property
    def waits(self) -> bool:
        return bool(self._queue or self._part)

    def offer(self, line: bytes) -> bool:
        """Queues a line, or leaves out what is replaced soon. False: too slow even for that."""
        if self._bytes + len(line) > _MAX_QUEUE_BYTES:
            return line_type(line) in REPLACED
        self._queue.append(line)
        self._bytes += len(line)
        return True

    def send(self) -> bool:
        """Sends what the socket takes. False: the viewer has gone."""
        try:
            while self.waits:
                if not self._part:
                    line = self._queue.popleft()
                    self._bytes -= len(line)
                    self._part = memoryview(line)
                self._part = self._part[self.connection.send(self._part) :]
        except BlockingIOError:
            return True
        except OSError:
            return False
        return True


class EventServer:
    """The socket and its thread. A run goes on without them: whatever fails here is no fault of the run."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._stop, self._stop_far = socket.socketpair()
        self._thread = threading.Thread(target=self._serve, name="viewers", daemon=True)
        self._history = History()
        self._partial = b""
        self._file = -1
        self._viewers: dict[socket.socket, _Viewer] = {}
        self._listener: socket.socket | None = None

    def start(self) -> None:
        """Listens from now on."""
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        try:
            with socket_path(self._folder) as path:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(path)
                listener.bind(path)
                os.chmod(path, 0o600)
            listener.listen(_MAX_VIEWERS)
        except OSError:
            listener.close()
            return
        self._listener = listener
        self._thread.start()

    def finish(self, timeout_s: float = 2.0) -> None:
        """Sends what is left, ends all connections and removes the socket."""
        if self._listener is not None:
            self._stop.close()
            self._thread.join(timeout_s)
        with contextlib.suppress(OSError):
            (self._folder / SOCKET_NAME).unlink()

    def _serve(self) -> None:
        assert self._listener is not None
        selector = selectors.DefaultSelector()
        selector.register(self._listener, selectors.EVENT_READ)
        selector.register(self._stop_far, selectors.EVENT_READ)
        running = True
        while running:
            # Without viewers there is nothing to follow: the thread sleeps until one comes.
            for key, _ in selector.select(_PAUSE_S if self._viewers else None):
                if key.fileobj is self._stop_far:
                    running = False
                elif key.fileobj is self._listener:
                    self._accept(selector)
                elif not _still_there(key.fileobj):
                    self._drop(key.fileobj, selector)
            self._follow(selector)
        for viewer in self._viewers.values():
            viewer.connection.settimeout(0.5)
            with contextlib.suppress(OSError):
                viewer.send()
            viewer.connection.close()
        self._listener.close()
        if self._file >= 0:
            os.close(self._file)

    def _accept(self, selector: selectors.BaseSelector) -> None:
        assert self._listener is not None
        try:
            connection, _ = self._listener.accept()
        except OSError:
            return
        if len(self._viewers) >= _MAX_VIEWERS:
            connection.close()
            return
        self._follow(selector)
        connection.setblocking(False)
        self._viewers[connection] = _Viewer(connection, self._history.lines())
        selector.register(connection, selectors.EVENT_READ)

    def _drop(self, connection: object, selector: selectors.BaseSelector) -> None:
        assert isinstance(connection, socket.socket)
        selector.unregister(connection)
        del self._viewers[connection]
        connection.close()

    def _follow(self, selector: selectors.BaseSelector) -> None:
        """Passes on what the core has written since."""
        if self._file < 0:
            try:
                self._file = open_events(self._folder)
            except OSError:
                return
        while data := os.read(self._file, 1 << 20):
            *lines, self._partial = (self._partial + data).split(b"\n")
            for line in lines:
                whole = line + b"\n"
                self._history.add(whole)
                for connection, viewer in list(self._viewers.items()):
                    if not viewer.offer(whole):
                        self._drop(connection, selector)
        for connection, viewer in list(self._viewers.items()):
            if viewer.waits and not viewer.send():
                self._drop(connection, selector)


def _still_there(connection: object) -> bool:
    """Viewers say nothing: whatever they send is thrown away; an end of file is their end."""
    assert isinstance(connection, socket.socket)
    try:
        return connection.recv(1 << 16) != b""
    except BlockingIOError:
        return True
    except OSError:
        return False
