"""The scripts in examples/ on 16 GPUs in two nodes: step count, communication and memory against counts made by hand."""

from __future__ import annotations

import pytest
from framework_support import GPUS, PROBE, rounded

pytestmark = [pytest.mark.torch, pytest.mark.long, pytest.mark.timeout(1800)]
STEPS = 3


def ddp_broadcast_bytes(shapes: list[tuple[int, ...]], element_bytes: int, buckets: int) -> int:
    """What DistributedDataParallel broadcasts: shapes and strides (int64), the parameters, and after the first step the new
    order of the buckets (an int32 for each parameter and one for their number, and an int32 a bucket)."""
    shape_check = sum(16 * len(shape) for shape in shapes)
    return shape_check + elements(shapes) * element_bytes + 4 * (len(shapes) + 1) + 4 * buckets


def elements(shapes: list[tuple[int, ...]]) -> int:
    total = 0
    for shape in shapes:
        size = 1
        for dimension in shape:
            size *= dimension
        total += size
    return total


def sizes(shapes: list[tuple[int, ...]], element_bytes: int = 4, divided_by: int = 1) -> list[int]:
    return [elements([shape]) * element_bytes // divided_by for shape in shapes]


def encoder_layer(dim: int) -> list[tuple[int, ...]]:
    attention = [(3 * dim, dim), (3 * dim,), (dim, dim), (dim,)]
    return [*attention, (4 * dim, dim), (4 * dim,), (dim, 4 * dim), (dim,), (dim,), (dim,), (dim,), (dim,)]


def test_llama_fsdp(simulate):
    dim, layers, hidden, vocabulary = 256, 2, 688, 1024
    block = [(dim,), (dim,), *[(dim, dim)] * 4, (hidden, dim), (hidden, dim), (dim, hidden)]
    root = [(vocabulary, dim), (vocabulary, dim), (dim,)]
    run = simulate([PROBE], ["examples/llama_fsdp.py", "--size", "tiny", "--sequence", "128", "--steps", str(STEPS)])
    run.assert_sound(STEPS)
    # Every group is gathered in bfloat16 before forward and before backward; gradients are reduced in float32.
    gathered = 2 * (layers * elements(block) + elements(root)) * 2 // GPUS
    reduced = (layers * elements(block) + elements(root)) * 4
    # Gradient clipping reduces one partial norm per parameter; the script averages its loss.
    clipped = (layers * len(block) + len(root)) * 4 + 4
    assert run.traffic() == {
        "all_gather": STEPS * gathered,
        "reduce_scatter": STEPS * reduced,
        "all_reduce": STEPS * clipped,
        "broadcast": 16,  # DTensor's random number state, once
    }, run.command
    shards = sizes(block * layers + root, divided_by=GPUS)
    probe = run.probe()
    assert probe["parameters"] == rounded(shards), run.command
    # Fused AdamW: two moments, and a step count on the device, for each parameter.
    assert probe["optimizer"] == 2 * rounded(shards) + rounded([4] * len(shards)), run.command
    # A group's gradients are views of one reduce-scatter result.
    groups = [*[elements(block) * 4 // GPUS] * layers, elements(root) * 4 // GPUS]
    assert probe["gradients"] == rounded(groups), run.command


@pytest.mark.parametrize("hybrid", [False, True])
def test_fsdp2(simulate, hybrid):
    dim, layers, vocabulary = 128, 2, 1024
    layer, root = encoder_layer(dim), [(vocabulary, dim), (vocabulary, dim)]
    arguments = ["--dim", str(dim), "--layers", str(layers), "--vocabulary", str(vocabulary), "--steps", str(STEPS)]
    run = simulate(["examples/fsdp2_train.py"], [*arguments, "--sequence", "64", *(["--hybrid"] if hybrid else [])])
    run.assert_sound(STEPS)
    shard = 8 if hybrid else GPUS
    # Layers are gathered for forward and backward, the root stays gathered.
    expected = {
        "all_gather": STEPS * (2 * layers * elements(layer) + elements(root)) * 4 // shard,
        "reduce_scatter": STEPS * (layers * elements(layer) + elements(root)) * 4,
    }
    if hybrid:  # the shards' gradients are averaged over the nodes
        expected["all_reduce"] = expected["reduce_scatter"] // shard
    assert run.traffic() == expected, run.command


def test_ddp(simulate):
    dim, layers, vocabulary, classes = 128, 2, 1024, 16
    shapes = [(vocabulary, dim), *encoder_layer(dim) * layers, (classes, dim), (classes,)]
    arguments = ["--dim", str(dim), "--layers", str(layers), "--vocabulary", str(vocabulary), "--sequence", "64"]
    run = simulate([PROBE], ["examples/ddp_train.py", *arguments, "--steps", str(STEPS)])
    run.assert_sound(STEPS)
    # After the first step there is a first bucket of 1 MiB, and one of up to 25 MiB for the other half.
    assert run.traffic() == {
        "all_gather": 8,  # the number of parameters
        "broadcast": ddp_broadcast_bytes(shapes, 4, buckets=2),
        "all_reduce": STEPS * elements(shapes) * 4,
    }, run.command
    probe = run.probe()
    assert probe["parameters"] == rounded(sizes(shapes)), run.command
    assert probe["optimizer"] == 2 * rounded(sizes(shapes)), run.command  # the step counts are on the host


def test_ddp_dataloader(simulate):
    features, hidden, classes, batch = 64, 128, 10, 4
    shapes = [(hidden, features), (hidden,), (classes, hidden), (classes,)]
    arguments = ["--features", str(features), "--hidden", str(hidden), "--batch", str(batch), "--steps", str(STEPS)]
    run = simulate([PROBE], ["examples/ddp_dataloader.py", *arguments])
    run.assert_sound(STEPS)
    traffic = run.traffic()
    assert traffic["all_reduce"] == STEPS * elements(shapes) * 4, run.command
    assert traffic["broadcast"] == ddp_broadcast_bytes(shapes, 4, buckets=1), run.command
    probe = run.probe()
    assert probe["parameters"] == rounded(sizes(shapes)), run.command
    assert probe["optimizer"] == 2 * rounded(sizes(shapes)), run.command
    assert probe["gradients"] == rounded(sizes(shapes)), run.command


def test_mp_spawn(simulate):
    hidden = 256
    shapes = [(hidden, 1024), (hidden,), (1024, hidden), (1024,)]
    run = simulate(["examples/mp_spawn_ddp.py"], ["--hidden", str(hidden), "--steps", str(STEPS)])
    run.assert_sound(STEPS)
    assert run.traffic()["all_reduce"] == STEPS * elements(shapes) * 4, run.command


def test_transformers_llama(simulate):
    pytest.importorskip("transformers")
    hidden, intermediate, layers, vocabulary, head_dim = 128, 352, 2, 1024, 16
    layer = [*[(hidden, hidden)] * 4, *[(intermediate, hidden)] * 2, (hidden, intermediate), (hidden,), (hidden,)]
    shapes = [(vocabulary, hidden), *layer * layers, (hidden,), (vocabulary, hidden)]
    arguments = ["--hidden", str(hidden), "--intermediate", str(intermediate), "--layers", str(layers)]
    arguments += ["--vocabulary", str(vocabulary), "--sequence", "64", "--steps", str(STEPS)]
    run = simulate([PROBE], ["examples/hf_llama.py", *arguments])
    run.assert_sound(STEPS)
    # Two buffers of head_dim / 2 rotary frequencies are broadcast at construction and before each forward.
    buffers = 2 * (head_dim // 2) * 2 * (STEPS + 1)
    assert run.traffic() == {
        "all_gather": 8,
        "broadcast": ddp_broadcast_bytes(shapes, 2, buckets=2) + buffers,
        "all_reduce": STEPS * elements(shapes) * 2,
    }, run.command
    probe = run.probe()
    assert probe["optimizer"] == 2 * rounded(sizes(shapes, 2)), run.command
