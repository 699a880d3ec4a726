"""Rank 0's output: into its log and to the terminal, as it comes. Where one of them fails, the other goes on."""

from __future__ import annotations

import os
import select
import threading
from pathlib import Path

_CHUNK = 1 << 16


class RankOutput:
    """Two pipes that rank 0 writes into, and the threads that copy them."""

    def __init__(self, log_path: Path, stdout_fd: int = 1, stderr_fd: int = 2) -> None:
        self._log = os.open(log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._pipes = [os.pipe(), os.pipe()]
        self.fault: OSError | None = None
        self.write_fds = [write for _, write in self._pipes]
        self._threads = [
            threading.Thread(target=self._copy, args=(read, target), daemon=True, name="output")
            for (read, _), target in zip(self._pipes, (stdout_fd, stderr_fd), strict=True)
        ]

    def start(self) -> None:
        """Starts copying; the zygote has the write ends by now, ours are closed."""
        for fd in self.write_fds:
            os.close(fd)
        for thread in self._threads:
            thread.start()

    def finish(self, timeout_s: float = 5.0) -> None:
        """Waits until everything that was written has been copied."""
        for thread in self._threads:
            thread.join(timeout_s)

    def _copy(self, read: int, target: int) -> None:
        """Reads on whatever happens, or rank 0 would block."""
        terminal = log = True
        while data := os.read(read, _CHUNK):
            if log and (fault := _write_all(self._log, data)):
                log, self.fault = False, fault
            if terminal:
                terminal = _write_all(target, data) is None
        os.close(read)


def _write_all(fd: int, data: bytes) -> OSError | None:
    """Returns what went wrong: the disk is full, or nobody reads there any more."""
    view = memoryview(data)
    try:
        while view:
            try:
                view = view[os.write(fd, view) :]
            except BlockingIOError:  # a terminal that another program set to non-blocking
                select.select([], [fd], [])
    except OSError as error:
        return error
    return None
