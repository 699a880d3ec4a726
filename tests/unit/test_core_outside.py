"""Ranks blocked outside Phantora are parked; deadlines of outside waits fire in virtual time; children become actors."""

from __future__ import annotations

import os
import struct
import threading
import time

import pytest
from core_client import ATTACH_CHILD, OK, UNRESOLVED, Ending, Rank, find_core, running

pytestmark = pytest.mark.skipif(find_core() is None, reason="phantora-core is not built: make native")


def test_an_event_is_forced_past_a_rank_that_is_blocked_outside(tmp_path):
    """Rank 1 waits in a pipe for a byte that rank 0 writes after its sleep; it goes on at the time of that event."""
    with running(tmp_path, 2) as (core, (a, b)):
        reading, writing = os.pipe()

        def blocked():
            b.kernel(5)
            core.put_u32(b.at("outside"), 1)
            os.read(reading, 1)
            core.put_u32(b.at("outside"), 0)
            b.h = max(b.h, core.get_u64(b.at("floor_ns")))
            b.kernel(5)
            b.wait_stream()
            b.exit()

        thread = threading.Thread(target=blocked)
        thread.start()
        assert a.sleep(1000) == 1000
        os.write(writing, b"x")
        thread.join()
        a.exit()
        report = core.finish()
        os.close(reading)
        os.close(writing)
    assert b.h == 1005
    assert (report["verdict"], report["late_ops"], report["real"]["forced_events"]) == ("ok", 0, 1)


def test_the_deadline_of_a_wait_outside_fires_in_virtual_time(tmp_path):
    with running(tmp_path, 2) as (core, (a, b)):

        def poll():
            """As the shim does: a condition with a deadline, woken through timer_futex."""
            b.kernel(1)
            core.put_u64(b.at("timed_wait_ns"), 5_000_000_000)
            core.put_u32(b.at("outside"), 1)
            began = time.monotonic()
            while core.get_u64(b.at("floor_ns")) < 5_000_000_000 and core.global_ns < 5_000_000_000:
                core.futex_wait(b.at("timer_futex"), core.get_u32(b.at("timer_futex")), 1.0)
                assert time.monotonic() - began < 10
            core.put_u32(b.at("outside"), 0)
            core.put_u64(b.at("timed_wait_ns"), UNRESOLVED)
            b.h = 5_000_000_000
            b.store_set("done", b"")
            b.exit()

        thread = threading.Thread(target=poll)
        thread.start()
        assert a.store_get("done")[0] == OK
        thread.join()
        assert a.h == 5_000_000_000
        a.exit()
        assert core.finish()["late_ops"] == 0


def test_a_rank_that_stays_blocked_outside_is_a_hang(tmp_path):
    with running(tmp_path, 2, core__blocked_patience_ms=100, core__outside_patience_ms=100) as (core, (a, b)):
        core.put_u32(b.at("outside"), 1)
        with pytest.raises(Ending):
            a.store_get("never")
        a.exit(1)
        b.exit(1)
        report = core.finish()
    assert report["verdict"] == "hang"
    assert [rank["state"] for rank in report["hang"]["ranks"]] == [
        "waits for key 'never' of store 's'",
        "runs, or is blocked outside Phantora",
    ]


def test_a_child_with_gpu_work_becomes_a_further_actor_of_its_rank(tmp_path):
    with running(tmp_path) as (core, (rank,)):
        rank.h = 700
        rank.kernel(10)
        status, body = rank.request(ATTACH_CHILD, struct.pack("<II", 0, os.getpid()))
        (index,) = struct.unpack("<I", body)
        assert (status, index) == (OK, 1)
        child = Rank(
            core, index, h=core.get_u64(core.u64("header.actor_offset") + core.u64("header.actor_stride") + 64)
        )
        assert child.h == 700
        child.kernel(100)
        rank.h += 1  # it runs on beside the child
        rank.kernel(1)
        assert child.wait_stream() == 800
        child.exit()
        rank.wait_stream()
        rank.exit()
        report = core.finish()
    assert [(one["rank"], one["child"]) for one in report["ranks"]] == [(0, 0), (0, 1)]
