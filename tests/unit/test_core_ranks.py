"""Closed forms of several ranks: collectives, send/recv, groups, stores, locks, sleeps, gloo, hangs, mismatches."""

from __future__ import annotations

import struct
import time

import pytest
from core_client import (
    ALL_GATHER,
    ALL_REDUCE,
    COMM_INFO,
    COMM_SPLIT,
    FETCH,
    FOREVER,
    HOST_RECV,
    HOST_SEND,
    OK,
    ORDER,
    POST,
    RECV,
    SEND,
    STORE_ADD,
    STORE_CHECK,
    STORE_COMPARE_SET,
    STORE_COUNT,
    STORE_DELETE,
    STORE_LIST,
    STORE_WAIT,
    TIMEOUT,
    Ending,
    everyone,
    find_core,
    read_blobs,
    running,
    text,
    texts,
    together,
)

pytestmark = pytest.mark.skipif(find_core() is None, reason="phantora-core is not built: make native")
LATENCY = 10


def test_a_collective_starts_with_its_last_member_and_ends_for_all(tmp_path):
    with running(tmp_path, 4, host__launch_latency=LATENCY) as (core, ranks):

        def work(rank):
            comm = rank.comm_init(4, rank.index)
            rank.kernel(100 * (rank.index + 1))
            rank.collective(comm, ALL_REDUCE, 1000, 1)
            end = rank.wait_stream()
            rank.exit()
            return end

        assert everyone(ranks, work) == [LATENCY + 400 + 1000] * 4
        report = core.finish()
    (line,) = report["communication"]
    assert line == {
        "op": "all_reduce", "group": "world", "calls": 1, "bytes": 1000, "time_ns": 1300, "exposed_ns": 1300,
    }  # fmt: skip
    assert (report["verdict"], report["late_ops"]) == ("ok", 0)


def test_a_ring_of_dependent_collectives(tmp_path):
    """Rank r shares a pair with r+1 on one stream: each pair waits for the one before it."""
    size, rounds = 4, 5
    with running(tmp_path, size) as (core, ranks):

        def work(rank):
            r = rank.index
            left = right = 0
            for pair in range(size):
                if r in (pair, (pair + 1) % size):
                    comm = rank.comm_init(2, 0 if r == pair else 1, f"pair{pair}", f"id{pair}")
                    if r == pair:
                        right = comm
                    else:
                        left = comm
            for turn in range(rounds):
                pairs = [(left, (r - 1) % size), (right, r)]
                if r == 0:
                    pairs.reverse()  # pair 0 begins, the last pair ends a round
                for comm, _ in pairs:
                    rank.collective(comm, ALL_REDUCE, 100, turn + 1)
            end = rank.wait_stream()
            rank.exit()
            return end

        ends = everyone(ranks, work)
        core.finish()
    # A round takes size x 100; pair 0 of round k+1 needs pair size-1 of round k on rank 0.
    assert ends == [2000, 1800, 1900, 2000]


def test_a_pipeline_of_sends_and_receives(tmp_path):
    """Three stages, four micro-batches: kernel 100, send 10. The steady state is bound by the kernel."""
    stages, batches = 3, 4
    with running(tmp_path, stages) as (core, ranks):

        def work(rank):
            comm = rank.comm_init(stages, rank.index)
            for batch in range(1, batches + 1):
                if rank.index > 0:
                    rank.collective(comm, RECV, 10, batch, peer=rank.index - 1, stream=2)
                    rank.event_record(1, stream=2)
                    rank.stream_wait(1, stream=1)
                rank.kernel(100)
                rank.event_record(2)
                if rank.index < stages - 1:
                    rank.stream_wait(2, stream=3)
                    rank.collective(comm, SEND, 10, batch, peer=rank.index + 1, stream=3)
            end = rank.wait_device()
            rank.exit()
            return end

        assert everyone(ranks, work) == [410, 520, 620]
        assert core.finish()["late_ops"] == 0


def test_calls_of_one_group_are_a_unit(tmp_path):
    """A ring exchange in one group moves both directions at once; two all_gathers of a group end together."""
    with running(tmp_path, 3) as (core, ranks):

        def work(rank):
            comm = rank.comm_init(3, rank.index)
            rank.h += rank.index * 10
            rank.collective(comm, SEND, 100, 1, peer=(rank.index + 1) % 3, group=1)
            rank.collective(comm, RECV, 100, 1, peer=(rank.index - 1) % 3, group=1, last=True)
            first = rank.wait_stream()
            rank.collective(comm, ALL_GATHER, 100, 1, group=2)
            rank.collective(comm, ALL_GATHER, 300, 2, group=2, last=True)
            second = rank.wait_stream()
            rank.exit()
            return first, second

        # Unit of rank 0 (at 0): to rank 1 (at 10), from rank 2 (at 20); rank 1: from 0 at 10, to 2 at 20.
        assert everyone(ranks, work) == [(120, 520), (120, 520), (120, 520)]
        report = core.finish()
    assert report["communication"][0]["bytes"] == 400


def test_all_to_all_by_grouped_pairs_shares_the_port(tmp_path):
    with running(tmp_path, 3) as (core, ranks):

        def work(rank):
            comm = rank.comm_init(3, rank.index)
            peers = [peer for peer in range(3) if peer != rank.index]
            for at, peer in enumerate(peers):
                rank.collective(comm, SEND, 50, 1, peer=peer, group=1)
                rank.collective(comm, RECV, 50, 1, peer=peer, group=1, last=at == 1)
            end = rank.wait_stream()
            rank.exit()
            return end

        assert everyone(ranks, work) == [100, 100, 100]
        core.finish()


def test_queries_and_spins_on_a_collective_are_exact(tmp_path):
    with running(tmp_path, 2) as (core, ranks):

        def work(rank):
            comm = rank.comm_init(2, rank.index)
            rank.h += 50 * rank.index
            rank.collective(comm, ALL_REDUCE, 1000, 1)
            rank.event_record(1)
            spins = 0
            while not rank.query_event(1):
                rank.h += 100
                spins += 1
            rank.exit()
            return spins, rank.h

        assert everyone(ranks, work) == [(11, 1100), (10, 1050)]
        assert core.finish()["late_ops"] == 0


def test_split_and_info(tmp_path):
    with running(tmp_path, 4, host__comminit=7) as (core, ranks):

        def work(rank):
            world = rank.comm_init(4, rank.index)
            rank.h += rank.index
            color = rank.index % 2
            status, body = rank.request(
                COMM_SPLIT, struct.pack("<Iii", world, color, -rank.index) + text(f"half{color}")
            )
            comm, size, mine = struct.unpack("<III", body)
            members = struct.unpack("<III", rank.request(COMM_INFO, struct.pack("<I", comm))[1])
            none = rank.request(COMM_SPLIT, struct.pack("<Iii", world, -1, 0) + text(""))[1]
            rank.exit()
            return status, comm, size, mine, members, struct.unpack("<III", none)[0], rank.h

        results = everyone(ranks, work)
        core.finish()
    assert [result[1:] for result in results] == [
        (2, 2, 1, (2, 2, 0), 0, 24),
        (3, 2, 1, (2, 3, 1), 0, 24),
        (2, 2, 0, (2, 2, 0), 0, 24),
        (3, 2, 0, (2, 3, 1), 0, 24),
    ]


def test_payloads_of_small_collectives_travel(tmp_path):
    with running(tmp_path, 2) as (core, ranks):

        def work(rank):
            comm = rank.comm_init(2, rank.index)
            blob = bytes([rank.index + 1]) * 3
            rank.request(POST, struct.pack("<IQiB", comm, 1, -1, ALL_GATHER) + text(blob), driving=False)
            both = read_blobs(rank.request(FETCH, struct.pack("<IQiB", comm, 1, -1, ALL_GATHER), driving=False)[1])
            peer = 1 - rank.index
            rank.request(POST, struct.pack("<IQiB", comm, 1, peer, SEND) + text(blob), driving=False)
            one = read_blobs(rank.request(FETCH, struct.pack("<IQiB", comm, 1, peer, RECV), driving=False)[1])
            rank.exit()
            return both, one

        a, b = b"\1\1\1", b"\2\2\2"
        assert everyone(ranks, work) == [([a, b], [b]), ([a, b], [a])]
        core.finish()


def test_two_ranks_meet_in_a_store(tmp_path):
    with running(tmp_path, 2) as (core, (a, b)):

        def first():
            a.h = 500
            a.store_set("key", b"value")
            a.exit()
            return a.h

        def second():
            assert b.store_get("key") == (OK, b"value")
            b.exit()
            return b.h

        assert together(first, second) == [500, 500]
        core.finish()


def test_store_messages(tmp_path):
    with running(tmp_path) as (core, (rank,)):
        assert rank.request(STORE_ADD, text("s") + text("n") + struct.pack("<q", 5))[1] == struct.pack("<q", 5)
        assert rank.request(STORE_ADD, text("s") + text("n") + struct.pack("<q", -7))[1] == struct.pack("<q", -2)
        rank.store_set("k", b"x")
        assert rank.request(STORE_CHECK, text("s") + texts(["k", "n"]))[1] == b"\1"
        assert rank.request(STORE_CHECK, text("s") + texts(["k", "m"]))[1] == b"\0"
        assert rank.request(STORE_COUNT, text("s"))[1] == struct.pack("<Q", 2)
        assert rank.request(STORE_LIST, text("s"))[1] == texts(["k", "n"])
        swap = text("s") + text("k")
        assert rank.request(STORE_COMPARE_SET, swap + text("y") + text("z"))[1] == text("x")
        assert rank.request(STORE_COMPARE_SET, swap + text("x") + text("z"))[1] == text("z")
        assert rank.request(STORE_DELETE, text("s") + text("k"))[1] == b"\1"
        assert rank.store_get("k", timeout=1000) == (TIMEOUT, b"")
        assert rank.h == 1000
        rank.exit()
        core.finish()


def test_stores_are_ordered_by_time_then_rank(tmp_path):
    """Each adds once, at times 30, 20, 10, 10: the sums they see tell the order, whoever asked first in real time."""
    with running(tmp_path, 4) as (core, ranks):

        def work(rank):
            rank.h = max(10, 30 - 10 * rank.index)
            time.sleep(0.02 * (rank.index % 2))
            (seen,) = struct.unpack("<q", rank.request(STORE_ADD, text("s") + text("n") + struct.pack("<q", 1))[1])
            rank.request(ORDER, text("end"))
            rank.exit()
            return seen

        assert everyone(ranks, work) == [4, 3, 1, 2]
        assert core.finish()["late_ops"] == 0


def test_a_store_wait_times_out_in_virtual_time(tmp_path):
    with running(tmp_path, 2) as (core, (a, b)):

        def first():
            status, _ = a.request(STORE_WAIT, text("s") + texts(["never"]) + struct.pack("<Q", 5_000_000_000))
            a.exit()
            return status, a.h

        def second():
            b.sleep(1_000)
            b.exit()
            return b.h

        began = time.monotonic()
        assert together(first, second) == [(TIMEOUT, 5_000_000_000), 1_000]
        assert time.monotonic() - began < 5
        assert "never" in " ".join(core.finish()["notes"])


def test_locks_are_granted_by_time_then_rank_at_the_release(tmp_path):
    with running(tmp_path, 3) as (core, ranks):

        def work(rank):
            rank.h = 10 - rank.index  # rank 2 asks first in virtual time
            taken = rank.lock("file")
            got = rank.h
            rank.h += 100
            rank.unlock("file")
            rank.exit()
            return taken, got

        assert everyone(ranks, work) == [(True, 208), (True, 108), (True, 8)]
        core.finish()


def test_the_end_of_a_rank_frees_its_lock_and_tries_do_not_wait(tmp_path):
    with running(tmp_path, 2) as (core, (a, b)):

        def first():
            assert a.lock("file")
            a.h = 300
            a.exit()

        def second():
            b.h = 100
            assert not b.lock("file", only_try=True)
            assert not b.lock("file", timeout=50)
            assert b.h == 150
            assert b.lock("file")
            b.exit()
            return b.h

        assert together(first, second)[1] == 300
        core.finish()


def test_a_sleep_returns_when_everybody_has_passed_it(tmp_path):
    """Sleep-polling for a key that is set at 1,000: polls at 0, 300, 600, 900, 1,200."""
    with running(tmp_path, 2) as (core, (a, b)):

        def poll():
            polls = 1
            while a.request(STORE_CHECK, text("s") + texts(["key"]))[1] != b"\1":
                a.sleep(300)
                polls += 1
            a.exit()
            return polls, a.h

        def work():
            b.kernel(1000)
            b.wait_stream()
            b.store_set("key", b"")
            b.exit()

        assert together(poll, work)[0] == (5, 1200)
        assert core.finish()["late_ops"] == 0


def test_host_collectives_and_messages(tmp_path):
    with running(tmp_path, 2) as (core, ranks):

        def work(rank):
            rank.h = 100 * rank.index
            status, blobs = rank.host_collective("gloo", 1, 2, rank.index, bytes([rank.index]), cost=7)
            assert (status, blobs, rank.h) == (OK, [b"\0", b"\1"], 107)
            if rank.index == 0:
                rank.h += 1000
                rank.request(HOST_SEND, text("0to1") + struct.pack("<Q", 3) + text("hello"))
            else:
                status, body = rank.request(HOST_RECV, text("0to1") + struct.pack("<QQ", 3, FOREVER))
                assert (status, body) == (OK, text("hello"))
            end = rank.h
            rank.exit()
            return end

        assert everyone(ranks, work) == [1107, 1107]
        core.finish()


def test_time_outs_of_host_messages_are_virtual(tmp_path):
    """What is sent at 500 comes too late for a receiver that waits until 400, whatever comes first in real time."""
    with running(tmp_path, 2) as (core, (a, b)):

        def sender():
            a.h = 500
            a.request(HOST_SEND, text("c") + struct.pack("<Q", 0) + text("late"))
            status, _ = a.host_collective("g", 1, 2, 0, b"", timeout=100)
            a.exit()
            return status, a.h

        def receiver():
            time.sleep(0.02)
            status, _ = b.request(HOST_RECV, text("c") + struct.pack("<QQ", 0, 400))
            first = (status, b.h)
            status, body = b.request(HOST_RECV, text("c") + struct.pack("<QQ", 0, FOREVER))
            b.exit()
            return first, (status, body, b.h)

        assert together(sender, receiver) == [(TIMEOUT, 600), ((TIMEOUT, 400), (OK, text("late"), 500))]
        core.finish()


def test_a_hang_names_the_collective_and_who_is_missing(tmp_path):
    with running(tmp_path, 3) as (core, ranks):

        def work(rank):
            comm = rank.comm_init(3, rank.index, "dp")
            with pytest.raises(Ending):
                if rank.index == 2:
                    rank.store_get("go")
                else:
                    rank.collective(comm, ALL_REDUCE, 64, 1)
                    rank.wait_stream()
            rank.exit(1)

        began = time.monotonic()
        everyone(ranks, work)
        report = core.finish()
        assert time.monotonic() - began < 3
    assert report["verdict"] == "hang"
    (comm,) = report["hang"]["communicators"]
    assert (comm["group"], comm["op"], comm["sequence"]) == ("dp", "all_reduce", 1)
    assert (comm["ranks_in"], comm["ranks_missing"]) == ([0, 1], [2])
    assert "key 'go'" in report["hang"]["ranks"][2]["state"]
    assert "rank 2 missing" in report["message"]


def test_a_mismatch_ends_the_run_with_what_each_rank_called(tmp_path):
    with running(tmp_path, 2) as (core, ranks):

        def work(rank):
            comm = rank.comm_init(2, rank.index)
            rank.collective(comm, ALL_REDUCE if rank.index == 0 else ALL_GATHER, 64, 1)
            with pytest.raises(Ending):
                rank.wait_stream()
            rank.exit(1)

        everyone(ranks, work)
        report = core.finish()
    assert report["verdict"] == "mismatch"
    assert [op["op"] for op in report["mismatch"]["ops"]] == ["all_reduce", "all_gather"]


def test_a_rank_that_fails_ends_the_run(tmp_path):
    with running(tmp_path, 2) as (core, (a, b)):

        def first():
            with pytest.raises(Ending):
                a.store_get("never")
            a.exit(0)

        def second():
            time.sleep(0.02)
            b.exit(3)

        together(first, second)
        report = core.finish()
    assert (report["verdict"], report["message"]) == ("failed", "rank 1 ended with status 3")
