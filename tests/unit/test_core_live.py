"""What the core tells a live view of a rank's last step, and of who waits for whom."""

from __future__ import annotations

import time

import pytest
from core_client import ALL_REDUCE, BACKWARD, FIRST_FORWARD, OPTIMIZER_STEP, Ending, everyone, find_core, running

pytestmark = pytest.mark.skipif(find_core() is None, reason="phantora-core is not built: make native")


def test_the_last_step_by_stream(tmp_path):
    """In each step a kernel of 500 ns, a copy of 600, a collective of 1000 for which rank 1 is late by 100."""
    with running(tmp_path, 2) as (core, ranks):

        def work(rank):
            comm = rank.comm_init(2, rank.index)
            rank.kernel(5000)  # before the first step: no part of it
            rank.wait_device()
            rank.mark(FIRST_FORWARD)
            for step in range(3):
                rank.h += 100 * rank.index
                rank.kernel(500)
                rank.copy(600, stream=2)
                rank.collective(comm, ALL_REDUCE, 1000, step + 1, stream=3)
                if step == 0:
                    rank.kernel(50, stream=4)
                rank.mark(BACKWARD)
                rank.wait_device()
                rank.mark(OPTIMIZER_STEP)
                rank.mark(OPTIMIZER_STEP)  # two optimizers: still one step
            rank.kernel(7)  # of a step that does not end
            rank.exit()

        everyone(ranks, work)
        core.finish()
    last = core.events("details")[-1]
    assert last["step_ns"] == [1100, 1100]
    assert last["streams"] == [
        [[0, 1, 1, 500, 0, 0], [0, 2, 1, 600, 0, 0], [0, 3, 1, 0, 1100, 100]],
        [[0, 1, 1, 500, 0, 0], [0, 2, 1, 600, 0, 0], [0, 3, 1, 0, 1000, 0]],
    ]


def test_of_several_open_collectives_the_first_is_told(tmp_path):
    """Rank 0 has issued three, rank 1 one, rank 2 none: all wait for the first."""
    with running(tmp_path, 3) as (core, ranks):

        def work(rank):
            comm = rank.comm_init(3, rank.index, "dp")
            for number in range((3, 1, 0)[rank.index]):
                rank.collective(comm, ALL_REDUCE, 64, number + 1)
            if rank.index < 2:
                with pytest.raises(Ending):
                    rank.wait_stream()
            else:
                until = time.monotonic() + 20
                while not any(line["communicators"] for line in core.events("waiting")):
                    assert time.monotonic() < until
                    time.sleep(0.05)
            rank.exit(1)

        everyone(ranks, work)
        core.finish()
    told = next(line for line in core.events("waiting") if line["communicators"])
    (one,) = told["communicators"]
    assert (told["open"], one["group"], one["op"], one["sequence"], one["size"], one["in"]) == (
        1, "dp", "all_reduce", 1, 3, 2,
    )  # fmt: skip
    assert (one["ranks_in"], one["ranks_missing"]) == ([0, 1], [2])
