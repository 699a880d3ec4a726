"""Runs training scripts under `phantora run` and gives their reports."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest


GPUS = 16  # two nodes of eight


@dataclass(frozen=True)
class Run:
    """A finished run."""

    report: dict
    log: str  # rank 0's output
    command: str

    def traffic(self) -> dict[str, int]:
        """Bytes by operation, over all groups."""
        total: dict[str, int] = {}
        for entry in self.report["communication"]:
            total[entry["op"]] = total.get(entry["op"], 0) + entry["bytes"]
        return total

    def calls(self, op: str) -> int:
        return sum(entry["calls"] for entry in self.report["communication"] if entry["op"] == op)

    def probe(self) -> dict[str, int]:
        """What memory_probe.py said."""
        lines = [line.split() for line in self.log.splitlines() if line.startswith("PROBE ")]
        return {name: int(value) for _, name, value in lines}

    def assert_sound(self, steps: int) -> None:
        """The checks every run must pass."""
        assert self.report["verdict"] == "ok", f"{self.command}\n{self.report['message']}"
        assert len(self.report["steps"]) == steps, self.command
        assert self.report["late_ops"] == 0, self.command
        assert self.log.count("\nstep ") + self.log.startswith("step ") == steps, f"{self.command}\n{self.log}"


@pytest.fixture
def simulate(phantora_command, repository, tmp_path):
    """Returns a function that runs `SCRIPT arguments` on simulated GPUs with the modelled clock."""
    if importlib.util.find_spec("torch") is None:
        pytest.skip("no torch in this interpreter")

    def run(target: list[str], arguments: list[str], gpus: int = GPUS, options: tuple[str, ...] = ()) -> Run:
        out = tmp_path / "run"
        command = [*phantora_command, "run", *target, "--gpus", str(gpus), "--gpus-per-node", "8"]
        command += ["--clock", "modelled", "--steps", "all", "--no-tui", "--out", str(out), *options, "--", *arguments]
        text = f"cd {repository} && {' '.join(command)}"
        answer = subprocess.run(command, cwd=repository, env=os.environ, capture_output=True, text=True, timeout=1800)
        report_file = out / "report.json"
        if answer.returncode != 0 or not report_file.exists():
            pytest.fail(f"{text}\nexit {answer.returncode}\n{answer.stderr[-4000:]}")
        log = (out / "ranks" / "00000.log").read_text()
        return Run(json.loads(report_file.read_text()), log, text)

    return run


def rounded(sizes: list[int]) -> int:
    """The caching allocator's unit is 512 bytes a tensor."""
    return sum(-(-size // 512) * 512 for size in sizes)


@pytest.fixture(scope="session")
def examples() -> Path:
    return Path("examples")
