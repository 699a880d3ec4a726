"""The one reader: a thread that turns the stream into snapshots and hands them to the app."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from phantora_tui.snapshot import Builder, Snapshot
from phantora_tui.stream import EventStream, log_tail, newest
from phantora_tui.throughput import tokens_per_second

_FRAME_S = 0.1  # at most ten snapshots a second
_LONGEST_FRAME_S = 2.0
_CPU_SHARE = 0.008  # of all CPUs, which the run wants too: above that the view is drawn less often
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
        spent_s, most_s = time.process_time(), _CPU_SHARE * len(os.sched_getaffinity(0))
        while not self._ended.is_set():
            started = time.monotonic()
            lines = stream.lines(_FRAME_S)
            builder.feed_all(newest(lines))
            if started - looked > _LOG_EVERY_S or rank != self.rank:
                looked, rank = started, self.rank
                tokens = tokens_per_second(log_tail(self._folder, 0, 40)) or tokens
                log = tuple(log_tail(self._folder, rank, _LOG_LINES)) if rank is not None else ()
            frame = Frame(builder.snapshot, tokens, log, stream.live)
            catches_up = not stream.live and bool(lines)
            if frame != last and not catches_up:
                last = frame
                self._show(frame)
            before_s, spent_s = spent_s, time.process_time()
            pause_s = _FILE_PAUSE_S
            if stream.live:
                # What comes meanwhile is read at once then, and of states only the last.
                pause_s = min(max(_FRAME_S, (spent_s - before_s) / most_s), _LONGEST_FRAME_S)
            if not catches_up:
                self._ended.wait(max(0.0, started + pause_s - time.monotonic()))
        stream.close()
