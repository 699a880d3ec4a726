"""GEMM costs: the table comes back, points left out of it are met, nothing beats the hardware."""

from __future__ import annotations

import statistics
from pathlib import Path

import pytest

PEAK = 989.4e12
HBM = 3.35e12
Grid = dict[tuple[int, int, int], int]


def read_grid(repository: Path, name: str) -> tuple[Grid, list[int], list[int], list[int]]:
    lines = iter((repository / "profiles" / "tables" / "h100-gemm.txt").read_text().splitlines())
    for line in lines:
        if line == f"grid {name}":
            ms, ns, ks = (list(map(int, next(lines).split()[1:])) for _ in "mnk")
            values: Grid = {}
            for m in ms:
                for n in ns:
                    row = map(int, next(lines).split())
                    values |= {(m, n, k): t for k, t in zip(ks, row, strict=True) if t}
            return values, ms, ns, ks
    raise AssertionError(f"no grid {name}")


@pytest.fixture(scope="module")
def bf16(repository: Path):
    return read_grid(repository, "bf16")


def question(m: int, n: int, k: int, kind: str = "bf16") -> str:
    """The table's y[m,n] = x[m,k] W[n,k]^T as cuBLAS gets it: column-major, so m and n change places."""
    return f"gemm m={n} n={m} k={k} type={kind}"


@pytest.mark.parametrize("kind", ["bf16", "fp8"])
def test_every_measured_point_comes_back(ask, burst, repository, kind):
    values, *_ = read_grid(repository, kind)
    assert len(values) > 20000
    answers = ask([question(*shape, kind) for shape in values], **burst)
    wrong = [
        (shape, t, a)
        for (shape, t), a in zip(values.items(), answers, strict=True)
        if abs(a.ns - t) > 1 or a.source != "measured"
    ]
    assert not wrong, wrong[:5]


@pytest.mark.parametrize("axis", [0, 1, 2], ids=["m", "n", "k"])
def test_held_out_points_are_met(ask, burst, bf16, tmp_path, capsys, axis):
    """Every second value of one axis is taken out of a copy of the table, then asked for."""
    values, *axes = bf16
    full = axes[axis]
    axes[axis] = kept = [*full[:-1:2], full[-1]]
    thin = tmp_path / "thin.txt"
    with thin.open("w") as file:
        file.write("phantora-table 1 gemm\ngrid bf16\n")
        file.writelines(
            f"{name} {' '.join(map(str, axis_values))}\n" for name, axis_values in zip("mnk", axes, strict=True)
        )
        for m in axes[0]:
            file.writelines(" ".join(str(values.get((m, n, k), 0)) for k in axes[2]) + "\n" for n in axes[1])
    held_out = {shape: t for shape, t in values.items() if shape[axis] not in kept}
    answers = ask([question(*shape) for shape in held_out], table__gemm=thin, **burst)
    errors = [abs(a.ns / t - 1) for a, t in zip(answers, held_out.values(), strict=True)]
    big = [e for e, (m, n, k) in zip(errors, held_out, strict=True) if 2.0 * m * n * k > 1e10]
    p90 = statistics.quantiles(errors, n=10)[-1]
    with capsys.disabled():
        print(
            f"\nGEMM, {len(errors)} points held out along {'mnk'[axis]}: median error {statistics.median(errors):.1%}, "
            f"90th percentile {p90:.1%}; {len(big)} above 10 GFLOP: median {statistics.median(big):.1%}"
        )
    assert {a.source for a in answers} == {"interpolated"}
    assert statistics.median(errors) < 0.06
    assert p90 < 0.20
    assert statistics.median(big) < 0.06


def test_nothing_is_faster_than_the_hardware(ask, burst, bf16):
    _, ms, ns, ks = bf16
    shapes = [
        (m, n, k) for m in (*ms[::5], 5000, 40000, 131072) for n in (*ns[::4], 11008, 128256) for k in (*ks[::4], 11008)
    ]
    for (m, n, k), a in zip(shapes, ask([question(*s) for s in shapes], **burst), strict=True):
        at_least = max(2.0 * m * n * k / PEAK, 2.0 * (m * k + n * k + m * n) / HBM / 4) * 1e9  # operands may sit in L2
        assert a.ns >= at_least, (m, n, k, a)


def test_more_work_takes_longer(ask):
    for shapes in (
        [(4096 << i, 4096, 4096) for i in range(8)],
        [(4096, 4096 << i, 4096) for i in range(8)],
        [(4096, 4096, 4096 << i) for i in range(8)],
    ):
        times = [a.ns for a in ask([question(*shape) for shape in shapes])]
        assert times == sorted(times) and len(set(times)) == len(times)
    batches = [a.ns for a in ask([f"gemm m=128 n=2048 k=2048 batch={1 << i}" for i in range(10)])]
    assert batches == sorted(batches) and batches[-1] > 20 * batches[0]


def test_types_cost_by_their_peaks(ask, burst):
    size = "m=8192 n=8192 k=8192"
    fp8, bf16, fp16, tf32, fp32 = (
        a.ns for a in ask([f"gemm {size} type={t}" for t in ("fp8", "bf16", "fp16", "tf32", "fp32")], **burst)
    )
    assert fp8 < bf16 == fp16 < tf32 < fp32
    assert 1.5 < tf32 / bf16 < 2.5
    assert 10 < fp32 / bf16 < 18


def test_sources(ask, burst):
    exact, between, outside, batched, other = ask(
        [
            question(4096, 4096, 4096),
            question(4096, 4096, 4224),
            question(4096, 4096, 131072),
            "gemm m=4096 n=512 k=4096 batch=8",
            question(4096, 4096, 4096, "fp32"),
        ],
        **burst,
    )
    assert [exact.source, between.source] == ["measured", "interpolated"]
    assert {outside.source, batched.source, other.source} == {"analytical"}
    # A factor fitted on whole runs is applied in the profile as it is: that is no longer a measurement of this shape.
    assert [a.source for a in ask([question(4096, 4096, 4096)])] == ["calibrated"]


def test_without_a_table_a_roofline_answers(ask, burst):
    (a,) = ask([question(8192, 8192, 8192)], table__gemm="", **burst)
    assert a.source == "analytical"
    assert 1.3e6 < a.ns < 1.7e6


def test_one_nanosecond_more(ask):
    """What the determinism test uses to show that a cost changes the digest."""
    questions = [question(4096, 4096, 4096), question(77, 99, 111)]
    plain, more = ask(questions), ask(questions, cost__add_ns__gemm=1)
    assert [b.ns - a.ns for a, b in zip(plain, more, strict=True)] == [1, 1]
