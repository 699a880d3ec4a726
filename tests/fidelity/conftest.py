"""Asks the core's cost models through phantora-cost, built from the sources where no current build of it exists."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from core_conf import core_lines


class Answer(NamedTuple):
    """One answer of phantora-cost."""

    ns: int
    source: str
    spread: float


@pytest.fixture(scope="session")
def cost_binary(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """phantora-cost: a build that is newer than its sources, else a new one."""
    source = repository / "runtime" / "core" / "src"
    sources = [*sorted((source / "cost").glob("**/*.cpp")), source / "config.cpp"]
    newest = max(path.stat().st_mtime for path in [*sources, *source.glob("**/*.hpp")])
    for built in sorted((repository / "build").glob("cmake/**/phantora-cost")):
        if built.is_file() and built.stat().st_mtime > newest:
            return built
    compiler = shutil.which("g++") or shutil.which("c++")
    assert compiler, "a C++20 compiler is needed to build phantora-cost"
    binary = tmp_path_factory.mktemp("cost") / "phantora-cost"
    command = [compiler, "-std=c++20", "-O1", "-ffp-contract=off", "-I", str(repository / "shim" / "include")]
    subprocess.run([*command, *map(str, sources), "-o", str(binary)], check=True)
    return binary


Ask = Callable[..., list[Answer]]


@pytest.fixture(scope="session")
def ask(cost_binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Ask:
    """ask(questions, gpu=..., cluster=..., **overrides): the answers in order. `__` in an override stands for `.`."""
    folder = tmp_path_factory.mktemp("conf")
    count = 0

    def run(
        questions: list[str], gpu: str = "h100-sxm-80gb", cluster: str = "dgx-h100", **overrides: Any
    ) -> list[Answer]:
        nonlocal count
        count += 1
        path = folder / f"{count}.conf"
        path.write_text(core_lines(gpu, cluster, {key.replace("__", "."): value for key, value in overrides.items()}))
        result = subprocess.run(
            [str(cost_binary), str(path)],
            input="\n".join(questions) + "\n",
            capture_output=True,
            text=True,
            check=False,
        )
        assert result.returncode == 0, f"{cost_binary} {path}: {result.stderr}"
        answers = result.stdout.splitlines()
        assert len(answers) == len(questions)
        parsed = []
        for question, answer in zip(questions, answers, strict=True):
            assert not answer.startswith("error"), f"{question}: {answer}"
            ns, source, spread = answer.split()
            parsed.append(Answer(int(ns), source, float(spread)))
        return parsed

    return run


BURST: dict[str, Any] = {"gpu__gemm_sustained_factor": 1.0, "gpu__attention_sustained_factor": 1.0}


@pytest.fixture(scope="session")
def burst() -> dict[str, Any]:
    """Overrides that take the fitted factors out: the tables as measured."""
    return dict(BURST)
