"""The one reader: a thread that turns the stream into snapshots and hands them to the app."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from phantora_tui.snapshot import Builder, Snapshot
from phantora_tui.stream import EventStream, log_tail
from phantora_tui.throughput import tokens_per_second

_FRAME_S = 0.1  # at most ten snapshots a second
_FILE_PAUSE_S = 0.25
_LOG_EVERY_S = 1.0
_LOG_LINES = 200


@dataclass(frozen=True)
class Frame:
    """What a widget needs besides the snapshot."""

    snapshot: Snapshot
    tokens_per_s: float | None
    log: tuple[str, ...]  # of the rank that is looked at
    live: bool


class Feed(threading.Thread):
    """Reads until stopped.

    Args:
        folder: The run directory.
        show: Called with each frame, in this thread.
    """

    def __init__(self, folder: Path, show: Callable[[Frame], None]) -> None:
        super().__init__(name="feed", daemon=True)
        self._folder = folder
        self._show = show
        self._ended = threading.Event()
        self.rank: int | None = None  # whose output is wanted

    def stop(self) -> None:
        """Ends the thread soon."""
        self._ended.set()

    def run(self) -> None:
        """Reads, builds, shows."""
        stream, builder = EventStream(self._folder), Builder()
        tokens: float | None = None
        log: tuple[str, ...] = ()
        looked, rank, last = 0.0, self.rank, None
        while not self._ended.is_set():
            started = time.monotonic()
            lines = stream.lines(_FRAME_S)
            builder.feed_all(lines)
            if started - looked > _LOG_EVERY_S or rank != self.rank:
                looked, rank = started, self.rank
                tokens = tokens_per_second(log_tail(self._folder, 0, 40)) or tokens
                log = tuple(log_tail(self._folder, rank, _LOG_LINES)) if rank is not None else ()
            frame = Frame(builder.snapshot, tokens, log, stream.live)
            if frame != last and not (lines and not stream.live and len(lines) > 500):
                last = frame
                self._show(frame)
            if not lines and not stream.live:
                self._ended.wait(_FILE_PAUSE_S)
            elif stream.live:
                self._ended.wait(max(0.0, _FRAME_S - (time.monotonic() - started)))
        stream.close()
