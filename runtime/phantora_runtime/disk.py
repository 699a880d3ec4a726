"""Keeps a run from filling the disk: what it writes may take half of what was free when it began."""

from __future__ import annotations

import os
import time
from pathlib import Path

from phantora_runtime import files
from phantora_runtime.quantities import format_bytes
from phantora_runtime.settings import EnvironmentFault

_EVERY_S = 0.5
_SHARE = 2


class DiskWatch:
    """Watches the disk of the run directory. Free space is looked at; files are counted only where it shrank that far.

    Args:
        folder: The run directory.
        cache: Another folder on the same disk that the script can write.
    """

    def __init__(self, folder: Path, cache: Path | None = None) -> None:
        self._folder = folder
        self._cache = cache
        self._budget = _free(folder) // _SHARE
        self._start = _free(folder)
        self._next = 0.0

    def too_much(self, now: bool = False) -> str:
        """Returns what to tell the user where the run wrote more than it may; else, or when not looked yet, "".

        Args:
            now: Look in any case, not only every half second.

        Raises:
            EnvironmentFault: What the script wrote is the smaller part of it.
        """
        if not now and time.monotonic() < self._next:
            return ""
        self._next = time.monotonic() + _EVERY_S
        if self._start - _free(self._folder) <= self._budget:
            return ""
        written = files.size(self._folder) + (files.size(self._cache) if self._cache is not None else 0)
        if written <= self._budget:  # somebody else fills the disk
            return ""
        own = sum(files.size(self._folder / name) for name in ("oplog", "events.jsonl"))
        if own > written - own:
            raise EnvironmentFault(
                f"Wanted room for the op log of this run; found that {format_bytes(own)} of it take more than half of "
                "the disk space that was free. Choose a larger disk with --out, or run fewer steps."
            )
        return (
            f"The run wrote {format_bytes(written)} of files, more than half of the disk space that was free. "
            "Write less, or choose a larger disk with --out."
        )


def _free(folder: Path) -> int:
    try:
        found = os.statvfs(folder)
    except OSError:
        return 0
    return found.f_bavail * found.f_frsize
