#!/usr/bin/env python3
"""Makes profiles/tables/ from the pinned wheel `aiconfigurator-core` (NVIDIA, Apache-2.0).

    python profiles/tools/build_tables.py [--wheel FILE] [--out DIR] [--check]

Without --wheel the pinned wheel is fetched with pip and its SHA-256 compared. Needs pyarrow; nothing else in
Phantora does. --check writes nothing and fails when a table differs from the one in the repository.

What is kept, and what is left out:

* GEMM: bf16 and fp8 (per-tensor scales), median over the serving stacks that measured a point. The `m` values that
  lie one past a round number (17, 33, ... 4353) are left out: they are the held-out points of tests/fidelity.
* Attention: FlashAttention-3 forward, bf16, causal, no window, no cached prefix; one value per head size, length and
  batch x heads (median over batch, heads, key-value heads and stacks). Batch x heads only in powers of two and three
  times those. The published FlashAttention-2 curves come from a small file beside this program.
* NCCL: half precision, 2, 4 and 8 GPUs of one node, all sizes; the shorter time of versions 2.27.3 and 2.29.2 (single
  points are up to twice the other version's).
"""

from __future__ import annotations

import argparse
import hashlib
import statistics
import subprocess
import sys
import tempfile
import zipfile
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

PACKAGE = "aiconfigurator-core"
VERSION = "0.12.0"
WHEEL_SHA256 = "aadc4aad0a00bf8a61c477c62bef43de479849c3aa0b1c3078068e08309eccc4"
ROOT = "aiconfigurator_core/systems/data/h100_sxm/"
NCCL_VERSIONS = ("2.27.3", "2.29.2")
HEAD_DIMS = (64, 128, 192, 256)
PUBLISHED = Path(__file__).with_name("flash_attention_published.txt")
LICENCE = "Apache-2.0, Copyright (c) NVIDIA CORPORATION & AFFILIATES"


def fetch_wheel(folder: Path) -> Path:
    """Downloads the pinned wheel with pip into `folder` and returns its path."""
    subprocess.run(
        [
            sys.executable,
            "-m",
            "pip",
            "download",
            "--quiet",
            "--no-deps",
            "--only-binary",
            ":all:",
            "--platform",
            "manylinux_2_28_x86_64",
            "--dest",
            str(folder),
            f"{PACKAGE}=={VERSION}",
        ],
        check=True,
    )
    (wheel,) = folder.glob("*.whl")
    return wheel


def rows(wheel: zipfile.ZipFile, folder: str, file_name: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields (stack, row) of every Parquet file `ROOT/folder/<stack>/<version>/file_name`."""
    import pyarrow.parquet as parquet  # a need of this program alone

    for name in sorted(wheel.namelist()):
        if name.startswith(ROOT + folder + "/") and name.endswith("/" + file_name):
            stack = "-".join(name[len(ROOT + folder) + 1 :].split("/")[:2])
            with wheel.open(name) as file:
                for row in parquet.read_table(file).to_pylist():
                    yield stack, row


def nanoseconds(milliseconds: Iterable[float]) -> int:
    """Median of durations in milliseconds, as whole nanoseconds."""
    return round(statistics.median(milliseconds) * 1e6)


def header(kind: str, what: str, source: str) -> list[str]:
    """Returns the first lines of a table."""
    return [
        f"phantora-table 1 {kind}",
        f"# {what}",
        f"# source: {source}",
        f"# licence: {LICENCE}",
        "# made by profiles/tools/build_tables.py; times are nanoseconds, 0 = not measured",
    ]


def gemm_table(wheel: zipfile.ZipFile) -> str:
    """Returns the GEMM grids."""
    points: dict[str, dict[tuple[int, int, int], list[float]]] = defaultdict(lambda: defaultdict(list))
    for _, row in rows(wheel, "gemm", "gemm_perf.parquet"):
        points[row["gemm_dtype"]][row["m"], row["n"], row["k"]].append(row["latency"])
    lines = header(
        "gemm",
        "H100 SXM 80 GB, y[m,n] = x[m,k] W[n,k]^T, CUDA graphs, median over serving stacks",
        f"PyPI {PACKAGE}=={VERSION}, {ROOT}gemm (sglang, trtllm, vllm)",
    )
    for name, dtype in (("bf16", "bfloat16"), ("fp8", "fp8")):
        measured = points[dtype]
        ms = sorted({m for m, _, _ in measured})
        ms = [m for m in ms if m <= 16 or m - 1 not in ms]
        ns = sorted({n for _, n, _ in measured})
        ks = sorted({k for _, _, k in measured})
        lines += [
            f"grid {name}",
            "m " + " ".join(map(str, ms)),
            "n " + " ".join(map(str, ns)),
            "k " + " ".join(map(str, ks)),
        ]
        for m in ms:
            for n in ns:
                lines.append(
                    " ".join(str(nanoseconds(measured[m, n, k])) if (m, n, k) in measured else "0" for k in ks)
                )
    return "\n".join(lines) + "\n"


def attention_table(wheel: zipfile.ZipFile) -> str:
    """Returns the attention grids and the published curves."""
    points: dict[int, dict[tuple[int, int], list[float]]] = defaultdict(lambda: defaultdict(list))
    for _, row in rows(wheel, "attention", "context_attention_perf.parquet"):
        if (
            row["kernel_source"] in ("fa3", "vllm_flash_attn_fa3")
            and row["attn_dtype"] == "bfloat16"
            and row["kv_cache_dtype"] == "bfloat16"
            and row["window_size"] == 0
            and row["step"] == 0
        ):
            points[row["head_dim"]][row["isl"], row["batch_size"] * row["num_heads"]].append(row["latency"])
    lines = header(
        "attention",
        "H100 SXM 80 GB, FlashAttention-3 forward, bf16, causal; rows: length, columns: batch x heads",
        f"PyPI {PACKAGE}=={VERSION}, {ROOT}attention (sglang fa3, vllm fa3)",
    )
    for head_dim in HEAD_DIMS:
        measured = points[head_dim]
        wanted = {factor << power for power in range(16) for factor in (1, 3)}
        lengths = sorted({s for s, _ in measured if s >= 16})
        heads = sorted({bh for _, bh in measured if bh in wanted})
        lines += [f"grid {head_dim}", "length " + " ".join(map(str, lengths)), "heads " + " ".join(map(str, heads))]
        for s in lengths:
            lines.append(" ".join(str(nanoseconds(measured[s, bh])) if (s, bh) in measured else "0" for bh in heads))
    return "\n".join(lines) + "\n" + PUBLISHED.read_text()


def nccl_table(wheel: zipfile.ZipFile) -> str:
    """Returns the NCCL curves."""
    import pyarrow.parquet as parquet

    curves: dict[tuple[str, int], dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for version in NCCL_VERSIONS:
        with wheel.open(f"{ROOT}comm/nccl/{version}/nccl_perf.parquet") as file:
            for row in parquet.read_table(file).to_pylist():
                if row["nccl_dtype"] == "half":
                    # message_size counts elements
                    curves[row["op_name"], row["num_gpus"]][2 * row["message_size"]].append(row["latency"])
    lines = header(
        "nccl",
        "H100 SXM 80 GB, one node, NVSwitch; size: bytes of the whole result (all_gather) or input (others)",
        f"PyPI {PACKAGE}=={VERSION}, {ROOT}comm/nccl/{{{','.join(NCCL_VERSIONS)}}}",
    )
    for (op, gpus), curve in sorted(curves.items()):
        sizes = sorted(curve)
        times = " ".join(str(nanoseconds([min(curve[size])])) for size in sizes)
        lines += [f"curve {op} {gpus}", "bytes " + " ".join(map(str, sizes)), "ns " + times]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Builds or compares the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--wheel", type=Path)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent.parent / "tables")
    parser.add_argument("--check", action="store_true", help="compare with the tables in --out, write nothing")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = options.wheel or fetch_wheel(Path(folder))
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        if digest != WHEEL_SHA256:
            print(
                f"build_tables: {path.name} has SHA-256 {digest}, wanted {WHEEL_SHA256} ({PACKAGE}=={VERSION})",
                file=sys.stderr,
            )
            return 1
        with zipfile.ZipFile(path) as wheel:
            tables = {
                "h100-gemm.txt": gemm_table(wheel),
                "h100-attention.txt": attention_table(wheel),
                "h100-nccl.txt": nccl_table(wheel),
            }
    different = 0
    for name, text in tables.items():
        target = options.out / name
        same = target.exists() and target.read_text() == text
        print(f"{name}: {len(text)} bytes, {'unchanged' if same else 'different'}", file=sys.stderr)
        different += not same
        if not options.check and not same:
            target.write_text(text)
    return 1 if options.check and different else 0


if __name__ == "__main__":
    sys.exit(main())
