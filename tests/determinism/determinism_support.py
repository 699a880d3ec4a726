"""Runs examples at small sizes under the modelled clock, each plain run once, and compares whole runs."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import oplog_diff
import pytest


@dataclass(frozen=True)
class Case:
    """A small run of an example."""

    example: str
    arguments: str
    gpus: int = 4
    steps: int = 3
    gpus_per_node: int = 8
    requires: str = "torch"

    def changed(self, old: str, new: str) -> Case:
        assert old in self.arguments
        return Case(
            self.example, self.arguments.replace(old, new), self.gpus, self.steps, self.gpus_per_node, self.requires
        )


CASES = {
    "ddp": Case("ddp_train", "--dim 64 --layers 1 --vocabulary 256 --batch 2 --sequence 32"),
    "fsdp2": Case("fsdp2_train", "--dim 64 --layers 2 --vocabulary 256 --batch 2 --sequence 32"),
    "llama": Case("llama_fsdp", "--dim 128 --layers 2 --sequence 64", gpus=2),
    # Two nodes, and batches that take a while to load.
    "dataloader": Case(
        "ddp_dataloader", "--batch 4 --features 64 --hidden 64 --workers 2 --delay 0.01", steps=4, gpus_per_node=2
    ),
    "spawn": Case("mp_spawn_ddp", "--batch 8 --hidden 64"),
    "transformers": Case(
        "hf_llama",
        "--hidden 128 --intermediate 256 --layers 2 --heads 2 --vocabulary 256 --sequence 64",
        gpus=2,
        requires="transformers",
    ),
}


@dataclass(frozen=True)
class Variation:
    """What is different about a run that must not be different."""

    before: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)


ONE_CPU = ("taskset", "--cpu-list", str(min(os.sched_getaffinity(0))))
SHUFFLED = {"PHANTORA_START_ORDER": "shuffle:5"}
JITTER = {"PHANTORA_TEST_HELPER_JITTER": "7"}
VARIATIONS = {
    "again": Variation(),
    "one CPU": Variation(ONE_CPU),
    "shuffled start": Variation((), SHUFFLED),
    "helper threads delayed": Variation((), JITTER),
    "all of it": Variation(ONE_CPU, {**SHUFFLED, **JITTER}),
}


@dataclass(frozen=True)
class Run:
    """A finished run."""

    folder: Path
    command: str
    report: dict[str, Any]

    @property
    def digest(self) -> str:
        return self.report["digest"]

    def results(self) -> dict[str, Any]:
        """The report without what is real, and without the digest, which has a message of its own."""
        return {key: value for key, value in self.report.items() if key not in ("real", "digest")}

    def logs(self) -> dict[str, str]:
        """What each rank printed: virtual times and values."""
        return {file.name: file.read_text() for file in sorted((self.folder / "ranks").glob("*.log"))}

    def assert_sound(self, case: Case) -> None:
        assert self.report["verdict"] == "ok", f"{self.command}\n{self.report['message']}"
        assert (self.report["late_ops"], self.report["order_errors"]) == (0, 0), self.command
        assert len(self.report["steps"]) == case.steps, self.command
        assert len(self.digest) == 64, self.command


Runner = Callable[..., Run]


def run_case(
    command: list[str], repository: Path, out: Path, case: Case, variation: Variation, verb: Sequence[str] = ("run",)
) -> Run:
    """Runs a case in a way of its own; `verb` may carry options."""
    for module in {"torch", case.requires}:
        if importlib.util.find_spec(module) is None:  # not imported: torch alone finds no CUDA here
            pytest.skip(f"no {module} in this interpreter")
    arguments = [*case.arguments.split(), "--steps", str(case.steps)]
    line = [*variation.before, *command, *verb, f"examples/{case.example}.py", "--gpus", str(case.gpus)]
    line += ["--gpus-per-node", str(min(case.gpus, case.gpus_per_node)), "--clock", "modelled", "--steps", "all"]
    line += ["--no-tui", "--out", str(out), "--", *arguments]
    settings = " ".join(f"{name}={value}" for name, value in variation.environment.items())
    text = f"cd {repository} && {settings} {' '.join(line)}"
    answer = subprocess.run(
        line, cwd=repository, env={**os.environ, **variation.environment}, capture_output=True, text=True, timeout=900
    )
    report = out / "report.json"
    if answer.returncode != 0 or not report.exists():
        pytest.fail(f"{text}\nexit {answer.returncode}\n{answer.stderr[-4000:]}")
    run = Run(out, text, json.loads(report.read_text()))
    run.assert_sound(case)
    return run


def assert_same(plain: Run, other: Run) -> None:
    """Op logs to the byte, reports but for `real`, and what every rank printed."""
    both = f"A: {plain.command}\nB: {other.command}\n"
    if plain.digest != other.digest:
        where = oplog_diff.difference(oplog_diff.read(plain.folder), oplog_diff.read(other.folder))
        pytest.fail(f"{both}{where or 'the op logs say the same in other bytes'}")
    assert other.results() == plain.results(), both
    assert other.logs() == plain.logs(), both


def assert_different(plain: Run, other: Run) -> None:
    """The digest can tell these two apart."""
    assert plain.digest != other.digest, f"A: {plain.command}\nB: {other.command}\nhave one digest"


def first_gemm_ns(run: Run) -> int:
    """Duration of the first GEMM in the op log."""
    return next(op.end - op.start for op in oplog_diff.read(run.folder).ops if op.kind == "gemm")
