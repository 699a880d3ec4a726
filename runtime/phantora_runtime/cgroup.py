"""What a container used and may use, from the files of its control group (version 1 or 2)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
_UNLIMITED = 1 << 62  # version 1 writes a number near 2^63 where there is no limit


@dataclass(frozen=True)
class Usage:
    """One reading.

    Attributes:
        version: 1 or 2.
        cpu_s: CPU time of all processes, ended ones too, in seconds.
        peak_bytes: Highest memory use, file cache included; None where the kernel does not say (version 2 before 5.19).
        limit_bytes: Memory limit; None: none.
        oom_kills: Processes that the kernel killed because the limit was reached.
    """

    version: int
    cpu_s: float
    peak_bytes: int | None
    limit_bytes: int | None
    oom_kills: int


def read(root: Path = ROOT) -> Usage | None:
    """Returns what the control group mounted at `root` has used; None where there is none to read."""
    if (root / "cgroup.controllers").is_file():
        cpu_us = _field(root / "cpu.stat", "usage_usec")
        peak, limit = _number(root / "memory.peak"), _number(root / "memory.max")
        return _usage(2, cpu_us, 1e6, peak, limit, _field(root / "memory.events", "oom_kill"))
    memory = root / "memory"
    cpu_ns = _number(root / "cpuacct" / "cpuacct.usage")
    peak, limit = _number(memory / "memory.max_usage_in_bytes"), _number(memory / "memory.limit_in_bytes")
    return _usage(1, cpu_ns, 1e9, peak, limit, _field(memory / "memory.oom_control", "oom_kill"))


def _usage(
    version: int, cpu: int | None, unit: float, peak: int | None, limit: int | None, oom_kills: int | None
) -> Usage | None:
    if cpu is None:
        return None
    return Usage(version, cpu / unit, peak, limit if limit is not None and limit < _UNLIMITED else None, oom_kills or 0)


def _number(path: Path) -> int | None:
    try:
        text = path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return None
    return int(text) if text.isdigit() else None  # "max": no limit


def _field(path: Path, name: str) -> int | None:
    try:
        lines = path.read_text(encoding="ascii").splitlines()
    except (OSError, UnicodeDecodeError):
        return None
    for line in lines:
        key, _, value = line.partition(" ")
        if key == name and value.strip().isdigit():
            return int(value)
    return None
