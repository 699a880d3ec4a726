"""Attention: kernels recognised by name and grid, held against the published FlashAttention-2 figures."""

from __future__ import annotations

import itertools
import statistics
from pathlib import Path

import pytest


def forward(
    head_dim: int, causal: bool, length: int, batch: int, heads: int, element: str = "N7cutlass10bfloat16_tE"
) -> str:
    rows = 128
    name = (
        f"_ZN13pytorch_flash16flash_fwd_kernelI23Flash_fwd_kernel_traitsILi{head_dim}ELi{rows}ELi64ELi4ELb0ELb0E{element}"
        f"19Flash_kernel_traitsILi{head_dim}ELi{rows}ELi64ELi4ES3_EELb0ELb{int(causal)}ELb0ELb0ELb1ELb1ELb0ELb0EEEvNS_16Flash_fwd_paramsE"
    )
    return f"kernel name={name} grid={-(-length // rows)},{batch},{heads} block=128"


def backward(part: str, head_dim: int, causal: bool, length: int, batch: int, heads: int) -> str:
    rows, columns = 64, 128
    traits = (
        f"23Flash_bwd_kernel_traitsILi{head_dim}ELi{rows}ELi{columns}ELi8ELi2ELi4ELi2ELb0ELb0EN7cutlass10bfloat16_tE"
        f"19Flash_kernel_traitsILi{head_dim}ELi{rows}ELi{columns}ELi8ES3_EE"
    )
    tail = "EvNS_16Flash_bwd_paramsE"
    blocks = -(-length // rows)
    if part == "dot":
        name = f"_ZN13pytorch_flash25flash_bwd_dot_do_o_kernelILb1E{traits}E{tail}"
    elif part == "convert":
        name = f"_ZN13pytorch_flash27flash_bwd_convert_dq_kernelI{traits}E{tail}"
    else:
        blocks = -(-length // columns)
        name = (
            f"_ZN13pytorch_flash44flash_bwd_dq_dk_dv_loop_seqk_parallel_kernelI{traits}"
            f"Lb0ELb{int(causal)}ELb0ELb0ELb1ELb1ELb0EE{tail}"
        )
    return f"kernel name={name} grid={blocks},{batch},{heads} block=256"


def flops(head_dim: int, causal: bool, length: int, batch: int, heads: int) -> float:
    return 4.0 * batch * heads * length**2 * head_dim * (0.5 if causal else 1.0)


def published(repository: Path) -> dict[tuple[str, int, bool, int], float]:
    found = {}
    lines = iter((repository / "profiles" / "tables" / "h100-attention.txt").read_text().splitlines())
    for line in lines:
        if line.startswith("published"):
            _, direction, head_dim, causal = line.split()
            lengths, speeds = next(lines).split()[1:], next(lines).split()[1:]
            for length, speed in zip(lengths, speeds, strict=True):
                found[direction, int(head_dim), causal == "1", int(length)] = float(speed)
    return found


def test_the_published_points_come_back(ask, burst, repository):
    points = published(repository)
    assert len(points) == 54
    questions, spans = [], []
    for direction, head_dim, causal, length in points:
        shape = (head_dim, causal, length, 16384 // length, 2048 // head_dim)
        parts = [forward(*shape)]
        if direction == "fwd_bwd":
            parts += [backward(part, *shape) for part in ("dot", "main", "convert")]
        spans.append((shape, 3.5 if direction == "fwd_bwd" else 1.0, len(parts)))
        questions += parts
    answers = iter(ask(questions, **burst))
    for (shape, factor, count), speed in zip(spans, points.values(), strict=True):
        found = sum(next(answers).ns for _ in range(count))
        wanted = flops(*shape) * factor / speed / 1e3
        assert abs(found / wanted - 1) < 0.06, (shape, factor, speed, found, wanted)


def test_flops_of_llama_3_8b_shapes_are_plausible(ask, burst):
    """Batch 2, 8192 tokens, 32 heads of 128, causal: close to the published 333 TFLOP/s forward."""
    shape = (128, True, 8192, 2, 32)
    (a,) = ask([forward(*shape)], **burst)
    assert 300 < flops(*shape) / a.ns / 1e3 < 360
    assert a.source == "interpolated"


@pytest.mark.parametrize("head_dim", [64, 128, 256])
def test_more_work_takes_longer(ask, head_dim):
    lengths = [a.ns for a in ask([forward(head_dim, True, 256 << i, 1, 16) for i in range(9)])]
    assert lengths == sorted(lengths)
    batches = [a.ns for a in ask([forward(head_dim, True, 2048, 1 << i, 16) for i in range(8)])]
    assert batches == sorted(batches)
    causal, full = ask([forward(head_dim, True, 4096, 4, 16), forward(head_dim, False, 4096, 4, 16)])
    assert 1.5 < full.ns / causal.ns < 2.2


def test_nothing_is_faster_than_the_hardware(ask, burst):
    shapes = list(itertools.product((64, 96, 128, 192, 256), (128, 1000, 4096, 65536), (1, 24, 512)))
    answers = ask([forward(d, True, length, 1, heads) for d, length, heads in shapes], **burst)
    for (head_dim, length, heads), a in zip(shapes, answers, strict=True):
        assert a.ns > flops(head_dim, True, -(-length // 128) * 128, 1, heads) / 989.4e12 * 1e9


def test_memory_efficient_attention_is_recognised(ask):
    name = "_Z39fmha_cutlassF_bf16_aligned_64x128_rf_sm80N22PyTorchMemEffAttention15AttentionKernelIE6ParamsE"
    efficient, flash2 = ask([f"kernel name={name} grid=64,16,4 block=128", forward(128, False, 4096, 4, 16)])
    assert efficient.source == "analytical"
    assert 1.5 < efficient.ns / flash2.ns < 2.5


def test_the_demangled_name_says_the_same(ask):
    shape = (128, True, 4096, 4, 16)
    plain = (
        "void,pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<128,128,64,4,false,false,cutlass::bfloat16_t,"
        "Flash_kernel_traits<128,128,64,4,cutlass::bfloat16_t>>,false,true,false,false,true,true,false,false>"
    )
    mangled, demangled = ask([forward(*shape), f"kernel name={plain} grid=32,4,16 block=128"])
    assert mangled.ns == demangled.ns


def test_the_fitted_factor_is_marked(ask, burst):
    shape = (128, True, 4096, 4, 16)
    (plain,), (fitted,) = ask([forward(*shape)], **burst), ask([forward(*shape)])
    assert fitted.ns > plain.ns
    assert [plain.source, fitted.source] == ["interpolated", "calibrated"]


@pytest.mark.parametrize("axis", [0, 1], ids=["length", "heads"])
def test_held_out_points_are_met(ask, burst, repository, tmp_path, capsys, axis):
    """Every second length (or batch x heads) of the forward table is taken out of a copy, then asked for.

    Both tables are asked, so that what is compared is the interpolation alone, not the scaling to FlashAttention-2. The
    copy has no published curves; neither has the whole one it is compared with.
    """
    text = (repository / "profiles" / "tables" / "h100-attention.txt").read_text()
    whole, thin = tmp_path / "whole.txt", tmp_path / "thin.txt"
    whole.write_text("\n".join(text[: text.index("# ----")].splitlines()) + "\n")
    questions = []
    lines = iter(whole.read_text().splitlines())
    with thin.open("w") as file:
        file.write("phantora-table 1 attention\n")
        for line in lines:
            if not line.startswith("grid"):
                continue
            head_dim = int(line.split()[1])
            axes = [list(map(int, next(lines).split()[1:])) for _ in range(2)]
            rows = {length: dict(zip(axes[1], next(lines).split(), strict=True)) for length in axes[0]}
            kept = [list(values) for values in axes]
            kept[axis] = [*axes[axis][:-1:2], axes[axis][-1]]
            questions += [
                forward(head_dim, True, length, 1, heads)
                for length, row in rows.items()
                for heads, time in row.items()
                if time != "0" and (length, heads)[axis] not in kept[axis] and length % 128 == 0
            ]
            file.write(f"{line}\nlength {' '.join(map(str, kept[0]))}\nheads {' '.join(map(str, kept[1]))}\n")
            file.writelines(" ".join(rows[length][heads] for heads in kept[1]) + "\n" for length in kept[0])
    exact = ask(questions, table__attention=whole, **burst)
    errors = [abs(a.ns / b.ns - 1) for a, b in zip(ask(questions, table__attention=thin, **burst), exact, strict=True)]
    p90 = statistics.quantiles(errors, n=10)[-1]
    with capsys.disabled():
        print(
            f"\nAttention, {len(errors)} points held out along {('length', 'batch x heads')[axis]}: "
            f"median error {statistics.median(errors):.1%}, 90th percentile {p90:.1%}"
        )
    assert len(errors) > 200
    assert statistics.median(errors) < 0.08
    assert p90 < 0.25
