"""File locks and exclusive creation in (H, rank) order (rule 8)."""

from __future__ import annotations

import time

from clock_support import clock_library, run_on  # noqa: F401

LOCKER = """
import fcntl
shim.phantora_advance_ns({start})
with open({path!r}, "a") as file:
    {lock}
    with open({log!r}, "a") as log: log.write("{rank}")
    time.sleep(0.010)
result(h=now())
"""


def _race(run, lock: str) -> tuple[str, list[int]]:
    path, log = str(run.folder / "lock"), str(run.folder / "log")
    # The later clock starts first in real time.
    starts = {0: 3_000_000, 1: 1_000_000, 2: 2_000_000}
    ranks = []
    for rank in (0, 2, 1):
        ranks.append(
            (rank, run.start(rank, LOCKER.format(start=starts[rank], path=path, log=log, lock=lock, rank=rank)))
        )
        time.sleep(0.15)
    ranks.sort(key=lambda pair: pair[0])
    got = run.finish(*(process for _, process in ranks))
    return open(log).read(), [values["h"] for values in got]


def test_flock_is_taken_in_order_and_closing_gives_it_back(run_on) -> None:  # noqa: F811
    run = run_on(3, costs={17: 0})
    order, clocks = _race(run, "fcntl.flock(file, fcntl.LOCK_EX)")
    assert order == "120"
    assert clocks[1] == 11_000_000
    assert 21_000_000 <= clocks[2] < 21_100_000
    assert 31_000_000 <= clocks[0] < 31_200_000
    assert getattr(run.core, "locks", {}) == {}


def test_record_locks_are_taken_in_order(run_on) -> None:  # noqa: F811
    run = run_on(3)
    order, _clocks = _race(run, "fcntl.lockf(file, fcntl.LOCK_EX)")
    assert order == "120"
    assert getattr(run.core, "locks", {}) == {}


def test_a_poll_for_a_lock_is_exact(run_on) -> None:  # noqa: F811
    """A filelock-style loop: rank 1 tries every 4 ms while rank 0 holds the lock until 10 ms."""
    run = run_on(2)
    path = str(run.folder / "lock")
    holder = run.start(
        0,
        f"""
    import fcntl
    file = open({path!r}, "a"); fcntl.flock(file, fcntl.LOCK_EX)
    time.sleep(0.010); fcntl.flock(file, fcntl.LOCK_UN); time.sleep(1)
    result(h=now())
    """,
    )
    poller = run.start(
        1,
        f"""
    import fcntl
    time.sleep(0.001); file = open({path!r}, "a"); tries = 1
    while True:
        try: fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB); break
        except BlockingIOError: tries += 1; time.sleep(0.004)
    result(h=now(), tries=tries)
    """,
    )
    got = run.finish(holder, poller)
    assert got[1] == {"h": 13_000_000, "tries": 4}


def test_the_earlier_clock_creates_the_file(run_on) -> None:  # noqa: F811
    program = """
    shim.phantora_advance_ns({start})
    try: os.close(os.open({path!r}, os.O_CREAT | os.O_EXCL | os.O_RDWR)); made = True
    except FileExistsError: made = False
    shim.phantora_advance_ns(1000)
    result(made=made)
    """
    run = run_on(2)
    path = str(run.folder / "baton")
    first = run.start(0, program.format(start=2_000, path=path))
    time.sleep(0.3)
    second = run.start(1, program.format(start=1_000, path=path))
    got = run.finish(first, second)
    assert [values["made"] for values in got] == [False, True]
    if hasattr(run.core, "order"):
        assert [entry[:2] for entry in run.core.order] == [(1_000, 1), (2_000, 0)]
