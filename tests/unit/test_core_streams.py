"""Closed forms of one rank: streams, events, copies, waits, queries. Kernels take exactly the nanoseconds they name."""

from __future__ import annotations

import pytest
from core_client import (
    BACKWARD,
    EXIT,
    FIRST_FORWARD,
    MARK,
    OPTIMIZER_STEP,
    find_core,
    layout,
    record_check,
    running,
)

pytestmark = pytest.mark.skipif(find_core() is None, reason="phantora-core is not built: make native")
LATENCY = 10


def test_the_client_packs_records_as_the_contract_says():
    import struct

    words = struct.pack("<4I8BQQ", 1, 0, 7, 0, *[0] * 8, 0, 0).ljust(88, b"\0") + struct.pack("<Q", 0xDEADBEEF)
    raw = struct.pack("<QQIBBHQ", 3, 5, 0, 2, 2, 9, 11) + words
    assert record_check(raw) == layout()["check_example"]
    assert (layout()["last_record_type"], layout()["last_message_type"]) == (EXIT + 1, 28)
    assert MARK == 12


def test_a_stream_runs_its_ops_one_after_the_other(tmp_path):
    with running(tmp_path, host__launch_latency=LATENCY) as (core, (rank,)):
        rank.kernel(100, cost=5)
        rank.kernel(200, cost=5)
        rank.kernel(300, cost=5)
        assert rank.wait_stream() == LATENCY + 600
        rank.kernel(50)
        assert rank.wait_stream() == 610 + LATENCY + 50
        rank.exit()
        report = core.finish()
    assert (report["verdict"], report["late_ops"], report["order_errors"]) == ("ok", 0, 0)


def test_streams_overlap_and_events_join_them(tmp_path):
    with running(tmp_path, host__launch_latency=LATENCY) as (core, (rank,)):
        rank.kernel(1000, stream=1)
        rank.event_record(7, stream=1)
        rank.copy(400, stream=2)  # overlaps with the kernel
        rank.stream_wait(7, stream=2)
        rank.kernel(30, stream=2)
        assert rank.wait_stream(1) == LATENCY + 1000
        assert rank.wait_stream(2) == LATENCY + 1000 + 30
        rank.exit()
        assert core.finish()["late_ops"] == 0


def test_copy_and_compute_of_a_double_buffered_loop(tmp_path):
    """Copies of 300 and kernels of 200 on two streams: the copies never wait, a kernel waits for its copy."""
    with running(tmp_path, host__launch_latency=LATENCY) as (core, (rank,)):
        for index in range(10):
            rank.copy(300, stream=1)
            rank.event_record(index, stream=1)
            rank.stream_wait(index, stream=2)
            rank.kernel(200, stream=2)
        assert rank.wait_device() == LATENCY + 10 * 300 + 200
        rank.exit()
        core.finish()


def test_waiting_on_an_event_that_was_never_recorded_is_no_op(tmp_path):
    with running(tmp_path) as (core, (rank,)):
        rank.stream_wait(3, stream=1)
        rank.kernel(10, stream=1)
        assert rank.wait_event(9) == 0
        assert rank.wait_stream(1) == 10
        rank.exit()
        core.finish()


def test_event_times_and_generations(tmp_path):
    with running(tmp_path) as (core, (rank,)):
        rank.event_record(1)
        rank.kernel(1234)
        rank.event_record(2)
        assert rank.elapsed(1, 2) == 1234
        rank.kernel(100)
        rank.event_record(1)  # again: a new generation
        assert rank.wait_event(1, generation=1) == 0
        assert rank.wait_event(1) == 1334
        assert rank.elapsed(2, 1) == 100
        rank.exit()
        core.finish()


def test_a_query_answers_for_the_time_of_its_caller(tmp_path):
    with running(tmp_path) as (core, (rank,)):
        rank.kernel(100)
        rank.event_record(1)
        assert not rank.query_event(1)
        rank.h = 99
        assert not rank.query_event(1)
        assert not rank.query_stream()
        rank.h = 100
        assert rank.query_event(1)
        assert rank.query_stream()
        rank.exit()
        core.finish()


def test_a_spin_on_a_query_ends_exactly(tmp_path):
    with running(tmp_path) as (core, (rank,)):
        rank.kernel(1000)
        rank.event_record(1)
        spins = 0
        while not rank.query_event(1):
            rank.h += 7
            spins += 1
        assert (spins, rank.h) == (143, 1001)
        rank.exit()
        core.finish()


def test_the_resolved_tables_hold_what_is_known(tmp_path):
    with running(tmp_path, host__launch_latency=LATENCY) as (core, (rank,)):
        rank.kernel(100, stream=5)
        rank.event_record(17, stream=5)
        rank.wait_stream(5)
        at = rank.at("events") + 17 * 16
        assert (core.get_u64(at), core.get_u64(at + 8)) == (17 << 32 | 1, LATENCY + 100)
        at = rank.at("streams") + 5 * 16
        assert (core.get_u64(at), core.get_u64(at + 8)) == (5 << 48 | 2, LATENCY + 100)
        rank.exit()
        core.finish()


def test_the_default_stream_is_one_for_each_device(tmp_path):
    with running(tmp_path) as (core, (rank,)):
        rank.kernel(100, stream=0)
        rank.push(4, (50).to_bytes(8, "little"), device=1, stream=0)  # memset on device 1
        assert rank.wait_stream(0) == 100
        rank.exit()
        core.finish()


def test_steps_and_their_shares_add_up(tmp_path):
    """Step 1: kernel 100..600 beside a copy to 700; the host works to 100, waits from 150."""
    with running(tmp_path, warmup=0) as (core, (rank,)):
        rank.mark(FIRST_FORWARD)
        for _ in range(3):
            rank.h += 100
            rank.kernel(500)
            rank.copy(600, stream=2)
            rank.h += 50
            rank.mark(BACKWARD)
            rank.wait_stream()
            rank.mark(OPTIMIZER_STEP)
            rank.mark(OPTIMIZER_STEP)  # two optimizers: still one step
        rank.exit()
        report = core.finish()
    steps = report["steps"]
    assert [step["begin_ns"] for step in steps] == [0, 700, 1300]
    assert steps[0]["duration_ns"] == 700
    for step in steps:
        shares = ("compute_ns", "communication_exposed_ns", "host_exposed_ns", "idle_ns")
        assert sum(step[share] for share in shares) == step["duration_ns"]
    assert (steps[0]["compute_ns"], steps[0]["host_exposed_ns"]) == (600, 100)
    assert report["costs"]["measured"] == 1.0
