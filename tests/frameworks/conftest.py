"""Runs training scripts under `phantora run` and gives their reports."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess

import pytest
from framework_support import GPUS, Run


@pytest.fixture
def simulate(phantora_command, repository, tmp_path):
    """Returns a function that runs `SCRIPT arguments` on simulated GPUs with the modelled clock."""
    if importlib.util.find_spec("torch") is None:
        pytest.skip("no torch in this interpreter")

    def run(target: list[str], arguments: list[str], gpus: int = GPUS, options: tuple[str, ...] = ()) -> Run:
        out = tmp_path / "run"
        command = [*phantora_command, "run", *target, "--gpus", str(gpus), "--gpus-per-node", str(min(gpus, 8))]
        command += ["--clock", "modelled", "--steps", "all", "--no-tui", "--out", str(out), *options, "--", *arguments]
        text = f"cd {repository} && {' '.join(command)}"
        answer = subprocess.run(command, cwd=repository, env=os.environ, capture_output=True, text=True, timeout=1800)
        report_file = out / "report.json"
        if answer.returncode != 0 or not report_file.exists():
            pytest.fail(f"{text}\nexit {answer.returncode}\n{answer.stderr[-4000:]}")
        log = (out / "ranks" / "00000.log").read_text()
        return Run(json.loads(report_file.read_text()), log, text)

    return run
