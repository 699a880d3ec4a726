"""Host memory of a run: proportional set size over all its processes, sampled for under one per cent of wall time."""

from __future__ import annotations

import os
import threading
import time

from phantora_runtime.processes import descendants

_FIRST_PAUSE_S = 0.5
_SHARE = 0.01  # of wall time that sampling may take


def proportional_bytes(pid: int) -> int:
    """Returns Pss plus hugetlb pages of a process in bytes; 0 when it is gone."""
    total = 0
    try:
        with open(f"/proc/{pid}/smaps_rollup", "rb") as rollup:
            for line in rollup:
                if line.startswith((b"Pss:", b"Private_Hugetlb:", b"Shared_Hugetlb:")):
                    total += int(line.split()[1]) * 1024
    except (OSError, ValueError):
        return 0
    return total


class MemorySampler:
    """Keeps the highest sum seen over this process and its descendants."""

    def __init__(self) -> None:
        self.peak_bytes = 0
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="memory", daemon=True)

    def start(self) -> None:
        """Starts sampling in the background."""
        self._thread.start()

    def stop(self) -> None:
        """Ends sampling."""
        self._stop.set()
        self._thread.join()

    def sample(self) -> None:
        """Takes one sample now."""
        with self._lock:
            total = sum(proportional_bytes(pid) for pid in [os.getpid(), *descendants()])
            self.peak_bytes = max(self.peak_bytes, total)

    def _loop(self) -> None:
        pause = _FIRST_PAUSE_S
        while not self._stop.wait(pause):
            started = time.monotonic()
            self.sample()
            pause = max(_FIRST_PAUSE_S, (time.monotonic() - started) / _SHARE)
