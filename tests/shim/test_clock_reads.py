"""Reading the clock: virtual, free, and never an endless loop (rules 1 and 2)."""

from __future__ import annotations

from clock_support import EPOCH_NS, clock_library, run_on  # noqa: F401


def test_every_clock_shows_epoch_plus_virtual_time(run_on) -> None:  # noqa: F811
    got = run_on().one(
        """
        shim.phantora_advance_ns(1_500_000_000)
        clocks = [time.time_ns(), time.monotonic_ns(), time.perf_counter_ns(),
                  time.clock_gettime_ns(time.CLOCK_BOOTTIME),
                  time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW), int(ctypes.CDLL(None).time(None)) * 10**9]
        result(clocks=clocks, h=now())
        """
    )
    assert got["h"] == 1_500_000_000
    assert got["clocks"][:5] == [EPOCH_NS + 1_500_000_000] * 5
    assert got["clocks"][5] // 10**9 == (EPOCH_NS + 1_500_000_000) // 10**9


def test_reads_are_free_and_cpu_time_is_real(run_on) -> None:  # noqa: F811
    got = run_on().one(
        """
        first = time.process_time_ns()
        seen = {time.time_ns() for _ in range(10_000)}
        result(different=len(seen), cpu=time.process_time_ns() - first)
        """
    )
    assert got["different"] == 1
    assert got["cpu"] > 0


def test_a_loop_until_some_time_ends_and_costs_the_guard(run_on) -> None:  # noqa: F811
    got = run_on().one(
        """
        end = time.monotonic_ns() + 50_000
        reads = 1
        while time.monotonic_ns() < end: reads += 1
        result(h=now(), reads=reads)
        """
    )
    assert got == {"h": 50_000, "reads": 20_000 + 50 - 1}  # the last read ends the loop uncounted


def test_an_op_resets_the_guard(run_on) -> None:  # noqa: F811
    run = run_on()
    got = run.one(
        """
        for _ in range(3):
            for _ in range(15_000): time.time_ns()
            shim.phantora_mark(4, 0, b"here")
        result(h=now())
        """
    )
    assert got["h"] == 0
    if run.core.actors:  # the stand-in
        assert list(run.core.names.values()) == ["here"]  # told once


def test_outside_a_run_everything_is_real(clock_library) -> None:  # noqa: F811
    import os
    import subprocess
    import sys
    import time

    program = "import time; a=time.time(); time.sleep(0.05); b=time.time(); print(a, b)"
    out = subprocess.run([sys.executable, "-c", program], env={**os.environ, "LD_PRELOAD": str(clock_library)},
                         check=True, capture_output=True, text=True).stdout.split()  # fmt: skip
    assert abs(float(out[0]) - time.time()) < 30
    assert float(out[1]) - float(out[0]) >= 0.05
