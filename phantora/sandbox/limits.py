"""What a container may use of this machine, computed from the number of ranks and from what is free."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from phantora.errors import PhantoraError, UsageError
from phantora.options import SandboxOptions
from phantora_runtime.quantities import format_bytes, parse_bytes

# A run without anything of its own: the interpreter with torch once, then what a rank adds. Measured with
# examples/llama_fsdp.py: 0.9 GiB with one rank, 3.9 GiB with 64.
_BASE_BYTES = 1 << 30
_RANK_BYTES = 48 << 20
_PIDS_BASE = 1_024
_PIDS_PER_RANK = 128
_LEAST_PIDS_PER_RANK = 16
_SHM_BYTES = 2 << 30
_SHM_RANK_BYTES = 32 << 20
_PROC = Path("/proc")


@dataclass(frozen=True)
class Limits:
    """Limits of one container.

    Attributes:
        memory: In bytes; there is no swap beyond it.
        shm: Size of /dev/shm in bytes, part of the memory.
        tmpfs: Size of each folder kept in memory (/tmp, the home folder) in bytes, part of the memory too.
        pids: Processes and threads.
        cpus: CPUs, as Docker's cpuset takes them; None: all.
    """

    memory: int
    shm: int
    tmpfs: int
    pids: int
    cpus: str | None = None


def compute(client: Any, options: SandboxOptions, ranks: int) -> Limits:
    """Returns the limits of a run.

    Raises:
        UsageError: An option names what this machine has not.
        PhantoraError: The machine is too small for so many ranks (exit code 3).
    """
    info = client.info()
    total = int(info["MemTotal"])
    memory = parse_bytes(options.memory) if options.memory else _free(total) * 9 // 10
    if memory > total:
        raise PhantoraError(
            f"{format_bytes(memory)} of memory for the container",
            f"a machine that has {format_bytes(total)}",
            "Lower --memory.",
        )
    needed = _BASE_BYTES + _RANK_BYTES * ranks
    if memory < needed and not options.memory:
        raise PhantoraError(
            f"about {format_bytes(needed)} of memory for {ranks} ranks",
            f"{format_bytes(memory)} that a container may take here",
            "Use fewer --gpus, end other programs, or set --memory yourself.",
        )
    pids = _PIDS_BASE + _PIDS_PER_RANK * ranks
    if (most := _most_pids()) is not None and pids > most:
        pids = most
        if pids < _PIDS_BASE + _LEAST_PIDS_PER_RANK * ranks:
            raise PhantoraError(
                f"processes and threads for {ranks} ranks",
                f"a machine that allows {most}",
                "Raise kernel.pid_max and kernel.threads-max, or use fewer --gpus.",
            )
    shm = parse_bytes(options.shm_size) if options.shm_size else _SHM_BYTES + _SHM_RANK_BYTES * ranks
    if options.shm_size and shm > memory:
        raise UsageError(
            f"--shm-size within the container's memory ({format_bytes(memory)})", options.shm_size, "Lower it."
        )
    return Limits(
        memory=memory,
        shm=min(shm, memory) if options.shm_size else min(shm, memory // 2),
        # What lies there is memory: a script that fills it gets "no space left", not the kernel's OOM killer.
        tmpfs=memory // 4,
        pids=pids,
        cpus=_cpus(options.cpus, int(info["NCPU"])),
    )


def _cpus(text: str | None, count: int) -> str | None:
    """Checks that a set of CPUs such as `0-3,6` is there."""
    for part in text.split(",") if text else ():
        first, _, last = part.partition("-")
        if int(first) > int(last or first) or int(last or first) >= count:
            raise UsageError(f"CPUs of this machine (0 to {count - 1}) for --cpus", f"'{text}'", "Correct it.")
    return text


def _free(total: int) -> int:
    """Memory that can be had: what is available now, where the Engine runs on this machine; else all it has."""
    memory = psutil.virtual_memory()
    return min(total, int(memory.available)) if memory.total == total else total


def _most_pids() -> int | None:
    """Half of what the kernel allows; None where it does not say."""
    try:
        return min(int((_PROC / "sys/kernel" / name).read_text()) for name in ("pid_max", "threads-max")) // 2
    except (OSError, ValueError):
        return None
