"""Python stacks of a rank on demand, written by faulthandler from a signal: a rank blocked in C still answers."""

from __future__ import annotations

import faulthandler
import os
import re
import signal
import time
from collections.abc import Mapping
from pathlib import Path

# Asked for by the supervisor at a time-out and by the core at a hang. Real-time signals are rarely used by scripts.
STACK_SIGNAL = signal.SIGRTMIN + 5
_OURS = re.compile(r'/phantora_runtime/[a-z_]+\.py"')
_FRAME = re.compile(r'  File "(?P<file>.*)", line (?P<line>\d+) in (?P<name>.*)')
_MAX_FRAMES = 12


def answer_with(path: Path) -> None:
    """From now on this process appends the stacks of all its threads to `path` when STACK_SIGNAL arrives."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    faulthandler.register(STACK_SIGNAL, file=file, all_threads=True, chain=False)


def collect(pids: Mapping[int, int], paths: Mapping[int, Path], wait_s: float = 1.0) -> dict[int, str]:
    """Asks ranks for their stacks.

    Args:
        pids: Pid of each rank that lives.
        paths: The file each rank answers into.
        wait_s: Real time to wait at most.

    Returns:
        Text per rank that answered; the main thread's stack last, as faulthandler prints it.
    """
    before = {rank: _size(paths[rank]) for rank in pids}
    for pid in pids.values():
        try:
            os.kill(pid, STACK_SIGNAL)
        except ProcessLookupError:
            continue
    deadline = time.monotonic() + wait_s
    while time.monotonic() < deadline and any(_size(paths[rank]) == before[rank] for rank in pids):
        time.sleep(0.02)
    time.sleep(0.02)  # the last writer may still be in the middle
    texts = {}
    for rank in pids:
        try:
            with open(paths[rank], "rb") as file:
                file.seek(before[rank])
                text = file.read().decode(errors="replace")
        except OSError:
            continue
        if text:
            texts[rank] = text
    return texts


def main_thread(text: str) -> list[str]:
    """Returns the script's own frames of the main thread, innermost first: `file:line in function`."""
    last = text.rstrip().split("\n\n")[-1]
    frames = []
    for line in last.splitlines():
        match = _FRAME.match(line)
        if match and not _OURS.search(line) and not match["file"].startswith("<"):
            frames.append(f"{match['file']}:{match['line']} in {match['name']}")
    return frames[:_MAX_FRAMES]


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
