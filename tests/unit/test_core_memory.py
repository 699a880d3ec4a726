"""Device memory in the core's report: what was held at the peak, though ranks give it all back when they end."""

from __future__ import annotations

import struct

import pytest
from core_client import MEMORY, find_core, running

pytestmark = pytest.mark.skipif(find_core() is None, reason="phantora-core is not built: make native")
MIB = 1 << 20


def held(core, rank, used, other):
    """Sets a GPU's account in the segment: used, other and peak bytes."""
    at = core.u64("header.device_offset") + 64 * rank
    peak = max(used, core.get_u64(at + 16))
    for place, value in enumerate((used, other, peak)):
        core.put_u64(at + 8 * place, value)


def allocate(core, rank, delta, used, other, device, context=0, communicators=0):
    """What the shim does when `rank` allocates or frees on a device of its node."""
    held(core, device, used, other)
    body = struct.pack("<qQQQQQ", delta, used, other, max(delta, 0), context, communicators)
    rank.push(MEMORY, body, device=device)


def test_other_bytes_are_those_at_the_peak(tmp_path):
    """Context 500, NCCL 300, torch 1000; then NCCL goes, torch takes 200 more, and at exit all is given back."""
    with running(tmp_path, 1) as (core, (rank,)):
        for delta, used, other in [(500, 500, 500), (300, 800, 800), (1000, 1800, 800), (-300, 1500, 500)]:
            allocate(core, rank, delta * MIB, used * MIB, other * MIB, 0)
        allocate(core, rank, 200 * MIB, 1700 * MIB, 500 * MIB, 0)
        core.put_u64(rank.at("torch_reserved_peak"), 1000 * MIB)
        held(core, 0, 0, 0)
        rank.exit()
        memory = core.finish()["memory"]
    (line,) = memory["ranks"]
    assert (line["peak_device_bytes"], line["other_bytes"]) == (1800 * MIB, 800 * MIB)
    assert line["peak_reserved_bytes"] + line["other_bytes"] == line["peak_device_bytes"] == memory["peak_device_bytes"]


def test_the_live_view_is_told_the_kinds_at_the_peak(tmp_path):
    """Context 500, NCCL 300, a library's workspace 40, torch 1000; then NCCL goes."""
    with running(tmp_path, 1) as (core, (rank,)):
        allocate(core, rank, 840 * MIB, 840 * MIB, 840 * MIB, 0, 500 * MIB, 300 * MIB)
        allocate(core, rank, 1000 * MIB, 1840 * MIB, 840 * MIB, 0, 500 * MIB, 300 * MIB)
        allocate(core, rank, -300 * MIB, 1540 * MIB, 540 * MIB, 0, 500 * MIB, 0)
        core.put_u64(rank.at("torch_reserved_peak"), 900 * MIB)
        rank.exit()
        core.finish()
    last = core.events("details")[-1]
    kinds = ("peak_bytes", "context_bytes", "communicator_bytes", "library_bytes", "reserved_peak_bytes")
    assert [last[kind] for kind in kinds] == [[size * MIB] for size in (1840, 500, 300, 40, 900)]


def test_bytes_count_for_the_gpu_not_for_the_process(tmp_path):
    """Rank 0 makes a context on its own GPU and on rank 1's."""
    with running(tmp_path, 2, gpus_per_node=2) as (core, ranks):
        allocate(core, ranks[0], 500 * MIB, 500 * MIB, 500 * MIB, 0)
        allocate(core, ranks[1], 500 * MIB, 500 * MIB, 500 * MIB, 1)
        ranks[1].wait_device()
        allocate(core, ranks[0], 500 * MIB, 1000 * MIB, 1000 * MIB, 1)
        for rank in ranks:
            rank.exit()
        lines = core.finish()["memory"]["ranks"]
    assert [(line["peak_device_bytes"], line["other_bytes"]) for line in lines] == [
        (500 * MIB, 500 * MIB),
        (1000 * MIB, 1000 * MIB),
    ]


def test_garbage_in_the_segment_does_not_become_a_result(tmp_path):
    """A script may write anything there; no GPU holds more than it has."""
    with running(tmp_path, 1) as (core, (rank,)):
        held(core, 0, 1 << 62, 1 << 61)
        rank.push(MEMORY, struct.pack("<qQQQ", 1 << 40, 1 << 45, 1 << 45, 1 << 40), device=0)
        core.put_u64(rank.at("torch_reserved_peak"), 1 << 63)
        rank.wait_device()
        rank.exit()
        memory = core.finish()["memory"]
    capacity = memory["capacity_bytes"]
    (line,) = memory["ranks"]
    assert memory["peak_device_bytes"] == line["peak_device_bytes"] == capacity > 0
    assert line["peak_reserved_bytes"] == line["other_bytes"] == capacity
