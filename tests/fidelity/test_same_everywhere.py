"""The same integers whatever the compiler does: another optimisation level, and a machine with fused multiply-add."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from core_conf import core_lines

FLASH = (
    "_ZN13pytorch_flash16flash_fwd_kernelI23Flash_fwd_kernel_traitsILi128ELi128ELi64ELi4ELb0ELb0EN7cutlass10bfloat16_tE"
    "19Flash_kernel_traitsILi128ELi128ELi64ELi4ES3_EELb0ELb1ELb0ELb0ELb1ELb1ELb0ELb0EEEvNS_16Flash_fwd_paramsE"
)


def questions() -> list[str]:
    sizes = (1, 77, 1000, 4097, 11008, 100003)
    asked = [
        f"gemm m={m} n={n} k={k} type={t}" for m in sizes for n in sizes for k in sizes for t in ("bf16", "fp8", "tf32")
    ]
    asked += [f"kernel name={FLASH} grid={x},{y},8 block=128" for x in range(1, 200, 7) for y in (1, 3, 32)]
    asked += [
        f"collective op={op} count={count} ranks=0-{last}"
        for op in ("all_reduce", "all_gather", "all_to_all", "broadcast")
        for count in (1, 12345, 7654321)
        for last in (1, 4, 7, 30, 127)
    ]
    return asked


@pytest.mark.slow
def test_optimisation_changes_no_nanosecond(repository, tmp_path, ask, cost_binary):
    source = repository / "runtime" / "core" / "src"
    files = [str(path) for path in [*sorted((source / "cost").glob("**/*.cpp")), source / "config.cpp"]]
    other = tmp_path / "phantora-cost"
    machine = [] if "fma" not in Path("/proc/cpuinfo").read_text() else ["-mfma", "-mavx2"]
    compiler = shutil.which("g++") or shutil.which("c++")
    subprocess.run(
        [
            compiler,
            "-std=c++20",
            "-O3",
            *machine,
            "-ffp-contract=off",
            f"-I{repository}/shim/include",
            *files,
            "-o",
            other,
        ],
        check=True,
    )
    conf = tmp_path / "core.conf"
    conf.write_text(core_lines("h100-sxm-80gb", "dgx-h100", {}))
    text = "\n".join(questions()) + "\n"
    one, two = (
        subprocess.run([str(binary), str(conf)], input=text, capture_output=True, text=True, check=True).stdout
        for binary in (cost_binary, other)
    )
    assert one.count("\n") == len(questions())
    assert one == two
