"""Unmodified TorchTitan, Llama 3 8B, sequence 8192: what it prints of its speed is the report's virtual time."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys

import pytest

pytestmark = [pytest.mark.torch, pytest.mark.long, pytest.mark.timeout(3600)]
SEQUENCE = 8192


@pytest.mark.parametrize("clock", ["modelled", "measured"])
def test_llama3_8b(clock, simulate, repository, tmp_path):
    if importlib.util.find_spec("torchtitan") is None:
        pytest.skip("no torchtitan in this interpreter")
    subprocess.run([sys.executable, "examples/titan/make_assets.py", str(tmp_path)], cwd=repository, check=True)
    arguments = ["--job.config_file", "examples/titan/llama3_8b.toml", "--metrics.log_freq", "1"]
    arguments += ["--model.hf_assets_path", str(tmp_path / "tokenizer")]
    arguments += ["--training.dataset_path", str(tmp_path / "c4_test"), "--job.dump_folder", str(tmp_path / "outputs")]
    run = simulate(
        ["-m", "torchtitan.train"], arguments, gpus=8, options=("--clock", clock, "--env", f"HF_HOME={tmp_path}")
    )
    assert run.report["verdict"] == "ok", f"{run.command}\n{run.report['message']}"
    assert len(run.report["steps"]) == 5, run.command
    assert run.report["late_ops"] == 0, run.command
    plain = re.sub(r"\x1b\[[0-9;]*m", "", run.log)
    printed = [int(value.replace(",", "")) for value in re.findall(r"tps: ([\d,]+)", plain)]
    assert len(printed) == 5, run.log
    # The first line also counts what comes before training.
    for index in range(1, 5):
        seconds = SEQUENCE / printed[index]
        simulated = run.report["steps"][index]["duration_ns"] / 1e9
        assert seconds == pytest.approx(simulated, rel=0.01), f"step {index + 1}\n{run.command}"
