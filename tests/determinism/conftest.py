"""One plain run of each case a session: what all others are compared with."""

from __future__ import annotations

import pytest
from determinism_support import CASES, VARIATIONS, Case, Run, Variation, run_case


@pytest.fixture(scope="session")
def run_example(phantora_command, repository, tmp_path_factory):
    """Returns a function that runs a case under a variation."""

    def run(case: Case, variation: Variation) -> Run:
        out = tmp_path_factory.mktemp(case.example) / "run"
        return run_case(phantora_command, repository, out, case, variation)

    return run


@pytest.fixture(scope="session")
def plain(run_example):
    """Returns a function that gives the plain run of a case by its name, made once."""
    runs: dict[str, Run] = {}

    def of(name: str) -> Run:
        if name not in runs:
            runs[name] = run_example(CASES[name], VARIATIONS["again"])
        return runs[name]

    return of
