"""Blocks that torch's allocator hands out again hold no old values."""

import pytest

pytestmark = [pytest.mark.torch, pytest.mark.timeout(300)]


def test_a_count_in_a_reused_block_is_not_an_old_value(simulate):
    run = simulate(["tests/frameworks/reused_blocks_script.py"], [], gpus=1)
    assert "tensor([1.], device='cuda:0')" in run.log
    peak = int(run.log.split("PEAK ")[1].split()[0])
    assert peak < 64 << 10, "with the bits of 1.0 taken for a count it was 8 GB"
