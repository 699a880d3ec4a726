"""What a run shows on the terminal while it goes on: the live view, or its output with a line of progress.

The live view takes the screen, so the run's output is held back until it is left; then the run is as one without it.
"""

from __future__ import annotations

import collections
import contextlib
import os
import select
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from phantora.options import RunOptions
from phantora_runtime.quantities import format_bytes, format_duration
from phantora_runtime.viewers import SOCKET_NAME
from phantora_tui.snapshot import Builder, Snapshot
from phantora_tui.stream import EventStream

_HELD_BYTES = 1 << 20
_LINE_EVERY_S = 60.0
_REDRAW_S = 0.5
_CLEAR = b"\r\x1b[2K"
_STANDARD_ERROR = 2


class Terminal:
    """The terminal of one run.

    Args:
        folder: The run directory.
        options: The run's options.
    """

    def __init__(self, folder: Path, options: RunOptions) -> None:
        self._folder = folder
        self._is_terminal = is_terminal()
        wanted = self._is_terminal if options.tui is None else options.tui
        self._live = wanted and not options.quiet and not (options.json and options.tui is None)
        self._progress = not options.quiet and not self._live
        self._lock = threading.Lock()
        self._held: collections.deque[tuple[int, bytes]] = collections.deque()
        self._held_bytes = 0
        self._holds = self._live
        self._line = b""
        self._drawn = False
        self._at_start = True  # of a line: an unfinished one of the run's must not be written over
        self._ended = threading.Event()
        self._view: Any = None

    @property
    def takes_output(self) -> bool:
        """The run's output must come through `write`; else it may have the terminal itself."""
        return self._live or (self._progress and self._is_terminal)

    def write(self, descriptor: int, chunk: bytes) -> None:
        """Shows a piece of the run's output on stdout (1) or stderr (2), or keeps it for later."""
        with self._lock:
            if self._holds:
                self._held.append((descriptor, chunk))
                self._held_bytes += len(chunk)
                while self._held_bytes > _HELD_BYTES and len(self._held) > 1:
                    self._held_bytes -= len(self._held.popleft()[1])
                return
            self._erase()
            _write(descriptor, chunk)
            self._at_start = chunk.endswith(b"\n")
            self._draw()

    def run(self, wait: Callable[[], int], interrupt: Callable[[int], None]) -> int:
        """Shows the run until it has ended and, where there is one, the live view was left.

        Args:
            wait: Returns the exit code when the run has ended.
            interrupt: Passes a signal on to the run.
        """
        try:
            return self._run(wait, interrupt)
        finally:  # a supervisor that was killed leaves it
            with contextlib.suppress(OSError):
                (self._folder / SOCKET_NAME).unlink()

    def _run(self, wait: Callable[[], int], interrupt: Callable[[int], None]) -> int:
        if not self._live:
            return self._with_progress(wait)
        outcome: list[int | BaseException] = []
        waiting = threading.Thread(target=_catch, args=(wait, outcome), name="waits for the run", daemon=True)
        waiting.start()
        asked = self._show()
        if asked == "interrupt" and not outcome:
            interrupt(signal.SIGINT)
        elif not outcome:
            name = os.path.relpath(self._folder)
            note = f"phantora: the run goes on; `phantora top {name}` comes back to it, Ctrl-C ends it.\n"
            _write(_STANDARD_ERROR, note.encode())
        self._release()
        self._progress = True
        self._with_progress(lambda: _joined(waiting))
        if isinstance(outcome[0], BaseException):
            raise outcome[0]
        return outcome[0]

    def _erase(self) -> None:
        if self._drawn:
            _write(_STANDARD_ERROR, _CLEAR)
        self._drawn = False

    def _draw(self) -> None:
        if self._line and self._at_start:
            _write(_STANDARD_ERROR, self._line)
            self._drawn = True

    def leave(self) -> None:
        """Closes the live view, for a signal that ends the run."""
        if self._view is not None:
            self._view.exit()

    def _show(self) -> str | None:
        from phantora_tui.app import LiveView

        self._view = LiveView(self._folder, self._folder.name, can_interrupt=True)
        asked = self._view.run()
        self._view = None
        return str(asked) if asked else None

    def _release(self) -> None:
        with self._lock:
            self._holds = False
            for descriptor, chunk in self._held:
                _write(descriptor, chunk)
                self._at_start = chunk.endswith(b"\n")
            self._held.clear()

    def _with_progress(self, wait: Callable[[], int]) -> int:
        if not self._progress:
            return wait()
        thread = threading.Thread(target=self._show_progress, name="progress", daemon=True)
        thread.start()
        try:
            return wait()
        finally:
            self._ended.set()
            thread.join(timeout=2.0)
            with self._lock:
                self._line = b""
                self._erase()

    def _show_progress(self) -> None:
        stream, builder = EventStream(self._folder), Builder()
        waited = 0.0
        while not self._ended.wait(_REDRAW_S):
            if not stream.live:
                stream.close()
                stream, builder = EventStream(self._folder), Builder()
            while lines := stream.lines(0.0):
                builder.feed_all(lines)
            waited += _REDRAW_S
            if not builder.snapshot.started or builder.snapshot.ended:
                continue
            line = f"phantora: {progress_line(builder.snapshot)}"
            if self._is_terminal:
                with self._lock:
                    self._line = line[: _columns() - 1].encode()
                    self._erase()
                    self._draw()
            elif waited >= _LINE_EVERY_S:
                waited = 0.0
                _write(_STANDARD_ERROR, f"{line}\n".encode())
        stream.close()


def progress_line(snapshot: Snapshot) -> str:
    """Where a run stands, in one line."""
    parts = [snapshot.step_text]
    if snapshot.step_ns is not None:
        parts.append(f"{format_duration(snapshot.step_ns)} a step")
    if snapshot.peak_bytes:
        parts.append(f"{format_bytes(snapshot.peak_bytes)} of {format_bytes(snapshot.capacity_bytes)}")
    parts.append(f"virtual {format_duration(snapshot.at_ns)} in {format_duration(snapshot.real_ms * 1e6)}")
    waits = sum(rank.waits for rank in snapshot.ranks)
    parts.append(f"{waits} of {snapshot.world_size} ranks wait")
    return ", ".join(parts)


def pump(read: int, descriptor: int, terminal: Terminal) -> threading.Thread:
    """Copies what comes out of a pipe to the terminal, in a thread that ends with the pipe."""

    def copy() -> None:
        while chunk := os.read(read, 1 << 16):
            terminal.write(descriptor, chunk)
        os.close(read)

    thread = threading.Thread(target=copy, name="output", daemon=True)
    thread.start()
    return thread


def _joined(thread: threading.Thread) -> int:
    thread.join()
    return 0


def _catch(wait: Callable[[], int], outcome: list[int | BaseException]) -> None:
    try:
        outcome.append(wait())
    except BaseException as error:
        outcome.append(error)


def is_terminal() -> bool:
    """Can a live view be shown?"""
    try:
        return os.isatty(0) and os.isatty(_STANDARD_ERROR) and os.environ.get("TERM", "dumb") != "dumb"
    except OSError:
        return False


def _columns() -> int:
    try:
        return os.get_terminal_size(_STANDARD_ERROR).columns
    except OSError:
        return 80


def _write(descriptor: int, data: bytes) -> None:
    """Everything, also to a terminal that does not block; nobody reading is no fault of the run."""
    view = memoryview(data)
    (sys.stdout if descriptor == 1 else sys.stderr).flush()
    while view:
        try:
            view = view[os.write(descriptor, view) :]
        except BlockingIOError:
            select.select([], [descriptor], [])
        except OSError:
            return
