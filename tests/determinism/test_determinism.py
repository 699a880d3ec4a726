"""With the modelled clock nothing real enters a result: neither the machine's load, nor the order in which ranks start,
nor how long helper threads take. What belongs into it shows."""

from __future__ import annotations

import pytest
from determinism_support import CASES, VARIATIONS, Variation, assert_different, assert_same, first_gemm_ns

pytestmark = [pytest.mark.torch, pytest.mark.timeout(1800)]

# One run of each kind in every test run: DDP, FSDP2 and worker processes. All the rest is long.
QUICK = ("ddp", "fsdp2", "dataloader")


@pytest.mark.parametrize("name", QUICK)
def test_everything_at_once(name, plain, run_example):
    assert_same(plain(name), run_example(CASES[name], VARIATIONS["all of it"]))


@pytest.mark.long
@pytest.mark.parametrize("way", VARIATIONS)
@pytest.mark.parametrize("name", CASES)
def test_equal_runs(name, way, plain, run_example):
    assert_same(plain(name), run_example(CASES[name], VARIATIONS[way]))


def test_changed_hidden_size_changes_the_digest(plain, run_example):
    wider = CASES["ddp"].changed("--dim 64", "--dim 128")
    assert_different(plain("ddp"), run_example(wider, VARIATIONS["again"]))


def test_one_nanosecond_more_for_a_gemm_changes_the_digest(plain, run_example):
    slower = run_example(CASES["ddp"], Variation((), {"PHANTORA_TEST_CORE": "cost.add_ns.gemm=1"}))
    assert_different(plain("ddp"), slower)
    assert first_gemm_ns(slower) == first_gemm_ns(plain("ddp")) + 1
