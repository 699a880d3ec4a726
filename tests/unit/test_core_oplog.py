"""The canonical op log: readable, in its total order, and the same bytes whatever real time does."""

from __future__ import annotations

import random
import struct
import threading
import time

import pytest
from core_client import (
    ALL_REDUCE,
    BACKWARD,
    COLLECTIVE,
    FIRST_FORWARD,
    KERNEL,
    OPTIMIZER_STEP,
    RECV,
    SEND,
    STORE_ADD,
    STREAM_WAIT,
    find_core,
    running,
    text,
    together,
)
from oplog import Log, Source

pytestmark = pytest.mark.skipif(find_core() is None, reason="phantora-core is not built: make native")


def test_the_log_holds_every_op_with_start_and_end(tmp_path):
    with running(tmp_path, host__launch_latency=10) as (core, (rank,)):
        rank.name("k")
        rank.kernel(100, name="k", stream=1)
        rank.event_record(1, stream=1)
        rank.stream_wait(1, stream=2)
        rank.h = 20
        rank.kernel(100, name="k", stream=2)
        rank.wait_device()
        rank.exit()
        core.finish()
    log = Log(core.oplog())
    assert list(log.names.values()) == ["k"]
    first = log.ops[0]
    assert (first.source, first.sequence, first.kind) == (Source(0, 0, 0, 1), 1, KERNEL)
    assert (first.start, first.end, first.issue, first.extra) == (10, 110, 0, ())
    wait, second = log.ops[1], [op for op in log.ops if op.kind == KERNEL][1]
    assert (wait.kind, wait.start, wait.end, wait.extra[1]) == (STREAM_WAIT, 10, 110, 2)
    assert (second.start, second.end, second.issue) == (110, 210, 20)


def test_a_run_directory_may_have_a_hash_in_its_name(tmp_path):
    folder = tmp_path / "lr #1"
    folder.mkdir()
    with running(folder) as (core, (rank,)):
        rank.exit()
        core.finish()
    assert (folder / "core_report.json").is_file()


def train(ranks, seed, delay):
    """Steps with overlapping collectives, a pipeline of pairs, stores and queries; `delay` shuffles real time only."""
    size = len(ranks)

    def work(rank):
        noise = random.Random(seed * 100 + rank.index)

        def pause():
            if delay and noise.random() < 0.15:
                time.sleep(noise.random() * 0.004)

        comm = rank.comm_init(size, rank.index)
        rank.mark(FIRST_FORWARD)
        for step in range(4):
            for layer in range(6):
                rank.kernel(100 + 7 * layer + 3 * rank.index, stream=1, cost=5)
                rank.event_record(layer, stream=1, cost=1)
                rank.stream_wait(layer, stream=2)
                rank.collective(comm, ALL_REDUCE, 64 * (layer + 1), 1 + step * 6 + layer, stream=2, cost=3)
                pause()
            peer = rank.index ^ 1
            kind = SEND if rank.index < peer else RECV
            rank.collective(comm, kind, 32, step + 1, peer=peer, stream=3, cost=2)
            rank.mark(BACKWARD)
            rank.event_record(50, stream=2)
            while not rank.query_event(50):
                rank.h += 40
                pause()
            rank.request(STORE_ADD, text("s") + text("n") + struct.pack("<q", 1))
            pause()
            rank.sleep(rank.index + 1)
            rank.wait_device()
            rank.mark(OPTIMIZER_STEP)
        rank.exit()

    order = list(ranks)
    random.Random(seed).shuffle(order)
    together(*[lambda rank=rank: work(rank) for rank in order])


def test_equal_runs_give_equal_bytes_whatever_real_time_does(tmp_path):
    logs, reports = [], []
    for run in range(4):
        with running(tmp_path / str(run), 4, host__launch_latency=10, ring_slots=32) as (core, ranks):
            helper_stop = threading.Event()

            def peek(ranks=ranks, stop=helper_stop):
                while not stop.is_set():
                    time.sleep(0.001)

            helper = threading.Thread(target=peek)
            helper.start()
            train(ranks, run, delay=run > 0)
            helper_stop.set()
            helper.join()
            report = core.finish()
        assert (report["verdict"], report["late_ops"], report["order_errors"]) == ("ok", 0, 0)
        assert len(report["steps"]) == 4
        report.pop("real")
        logs.append(core.oplog())
        reports.append(report)
    assert logs[1:] == logs[:1] * 3
    assert reports[1:] == reports[:1] * 3
    log = Log(logs[0])
    keys = [(op.start, op.kind, op.rank, op.stream) for op in log.ops]
    assert [key[0] for key in keys] == sorted(key[0] for key in keys)
    assert len(log.ops) == report["ops"]
    ends = {}
    for op in sorted(log.ops, key=lambda op: op.sequence):
        if op.kind < COLLECTIVE and op.stream > 0:
            assert op.start >= ends.get((op.rank, op.stream), 0) and op.start >= op.issue + 10
            ends[op.rank, op.stream] = op.end


def test_a_stream_that_waits_long_keeps_its_place_in_the_log(tmp_path):
    """Its wait begins before thousands of others' ops that are written meanwhile, and ends after them."""
    with running(tmp_path, 2, ring_slots=1024) as (core, ranks):

        def waits(rank):
            comm = rank.comm_init(2, 0)
            rank.collective(comm, ALL_REDUCE, 64, 1, stream=2)
            rank.event_record(1, stream=2)
            rank.stream_wait(1, stream=1)
            rank.wait_device()
            rank.exit()

        def comes_late(rank):
            comm = rank.comm_init(2, 1)
            for _ in range(40_000):
                rank.kernel(10, stream=1, cost=10)
            rank.collective(comm, ALL_REDUCE, 64, 1, stream=1)
            rank.wait_device()
            rank.exit()

        together(lambda: waits(ranks[0]), lambda: comes_late(ranks[1]))
        report = core.finish()
    assert (report["verdict"], report["order_errors"]) == ("ok", 0)
    log = Log(core.oplog())
    (wait,) = [op for op in log.ops if op.kind == STREAM_WAIT]
    (joined,) = [op for op in log.ops if op.is_collective(1) and op.rank == 1]
    assert log.ops.index(wait) < 10 and wait.end == joined.end
    assert [op.start for op in log.ops] == sorted(op.start for op in log.ops)


def test_one_nanosecond_changes_the_log(tmp_path):
    logs = []
    for extra in (0, 1):
        with running(tmp_path / str(extra)) as (core, (rank,)):
            rank.kernel(100 + extra)
            rank.wait_stream()
            rank.exit()
            core.finish()
        logs.append(core.oplog())
    assert logs[0] != logs[1]
