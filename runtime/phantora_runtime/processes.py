"""Linux process plumbing: orphans come back to us, nothing outlives the run."""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import signal
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_ADDR_NO_RANDOMIZE = 0x0040000
_ENDED = (b"Z", b"X")
_STOP_ROUNDS = 100
_KILLED_FIRST = "900"  # of 1000
_libc = ctypes.CDLL(None, use_errno=True)
# As a C int, 0xFFFFFFFF would be passed on with its sign, and a seccomp filter compares all 64 bits.
_libc.personality.argtypes = [ctypes.c_ulong]


def become_subreaper() -> None:
    """Orphaned descendants become our children, so that all can be found, ended and counted."""
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def die_with_parent() -> None:
    """The calling process gets SIGKILL when the thread that made it ends."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def end_with_parent() -> None:
    """The calling process gets SIGTERM when the thread that made it ends."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)


def be_killed_first() -> None:
    """When memory runs out, the kernel takes this process and its children before others."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(_KILLED_FIRST, encoding="ascii")


def fix_addresses() -> bool:
    """Switches address randomisation off for programs started from here; False where that is refused."""
    current = _libc.personality(0xFFFFFFFF)
    return bool(current != -1 and _libc.personality(current | _ADDR_NO_RANDOMIZE) != -1)


def addresses_can_be_fixed() -> bool:
    """Tries fix_addresses() in a throw-away child."""
    pid = os.fork()
    if pid == 0:
        os._exit(0 if fix_addresses() else 1)
    return os.waitpid(pid, 0)[1] == 0


def descendants(root: int | None = None) -> list[int]:
    """Returns the pids of all living descendants of a process (default: of us), parents before children."""
    return list(_living_descendants(root if root is not None else os.getpid()))


def _living_descendants(root: int) -> dict[int, bytes]:
    """State of every living descendant by pid, parents before children."""
    children: dict[int, list[tuple[int, bytes]]] = {}
    for pid, parent, state in _all_processes():
        if state not in _ENDED:
            children.setdefault(parent, []).append((pid, state))
    found: dict[int, bytes] = {}
    queue = [root]
    while queue:
        for child, state in children.get(queue.pop(0), []):
            found[child] = state
            queue.append(child)
    return found


def _all_processes() -> Iterator[tuple[int, int, bytes]]:
    """Yields pid, parent and state (as /proc/PID/stat writes it) of every process."""
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as stat:
                fields = stat.read().rpartition(b")")[2].split()
        except OSError:
            continue
        yield int(name), int(fields[1]), fields[0]


def reap(keep: Iterable[int] = ()) -> None:
    """Collects ended children that nobody waits for, so that their CPU time is counted.

    Those of `keep` are left to whom their exit status matters.
    """
    own, kept = os.getpid(), set(keep)
    for pid, parent, state in _all_processes():
        if state in _ENDED and parent == own and pid not in kept:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)


def kill(pids: Iterable[int], number: int = signal.SIGKILL) -> None:
    """Signals processes; those that are gone are skipped."""
    for pid in pids:
        try:
            os.kill(pid, number)
        except (ProcessLookupError, PermissionError):
            continue


def kill_descendants(keep: Iterable[int] = (), grace_s: float = 0.5, alone: bool = False) -> set[int]:
    """Ends every descendant but `keep`.

    Ranks and their workers are killed first; helpers that only clean up after them (torch's shared-memory manager,
    multiprocessing's resource tracker) then end by themselves within `grace_s`, else they are killed too.

    Args:
        keep: Pids to leave alone.
        grace_s: Real time for helpers.
        alone: Nobody else's processes can be seen (our own pid namespace): all can be stopped at once before they are
            looked at, which no number of processes that start further ones outruns.

    Returns:
        The pids that were seen.
    """
    kept = set(keep)
    seen: set[int] = set()
    deadline = time.monotonic() + grace_s
    while True:
        late = time.monotonic() >= deadline
        if alone:
            with contextlib.suppress(ProcessLookupError):
                os.kill(-1, signal.SIGSTOP)
        elif late:
            _stop_all(kept)
        pids = [pid for pid in descendants() if pid not in kept]
        helpers = set() if late else {pid for pid in pids if _cleans_up(pid)}
        seen.update(pids)
        kill(pid for pid in pids if pid not in helpers)
        if alone:
            kill(kept | helpers, signal.SIGCONT)
        reap(kept)
        if not pids:
            return seen
        time.sleep(0.01)


def _stop_all(kept: set[int]) -> None:
    """Stops every descendant; whatever one of them starts until it is stopped is found by the next look."""
    for _ in range(_STOP_ROUNDS):
        living = _living_descendants(os.getpid())
        running = [pid for pid, state in living.items() if pid not in kept and state != b"T"]
        if not running:
            return
        kill(running, signal.SIGSTOP)


def _cleans_up(pid: int) -> bool:
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
    return b"torch_shm_manager" in command or b"resource_tracker" in command


_SHARED_FILE = re.compile(r"(?:torch|sem\.mp|psm|pym)[_-](\d+)[_-]")


def remove_shared_files(pids: set[int]) -> None:
    """Removes shared-memory files that killed processes left in /dev/shm (their names carry the pid)."""
    try:
        names = os.listdir("/dev/shm")
    except OSError:
        return
    for name in names:
        match = _SHARED_FILE.match(name)
        if match and int(match[1]) in pids:
            try:
                os.unlink(f"/dev/shm/{name}")
            except OSError:
                continue
