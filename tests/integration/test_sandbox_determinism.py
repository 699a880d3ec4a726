"""The modelled clock in a container: every example has the digest that it has in place, however it is started there."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "determinism"))
from determinism_support import CASES, JITTER, SHUFFLED, Variation, assert_same, run_case  # noqa: E402

pytestmark = [pytest.mark.docker, pytest.mark.long, pytest.mark.timeout(3600)]
IMAGE = ("sandbox", "--requirements", str(ROOT / "examples" / "requirements.txt"))


@pytest.mark.parametrize("name", CASES)
def test_a_container_changes_nothing(name, phantora_command, sandbox_environment, repository, tmp_path):
    in_place = run_case(phantora_command, repository, tmp_path / "in_place", CASES[name], Variation())
    preset = {key: value for key, value in sandbox_environment.items() if os.environ.get(key) != value}
    one_cpu = ("--cpus", str(min(os.sched_getaffinity(0))))
    for way, options, environment in (
        ("plain", (), {}),
        ("one CPU", one_cpu, {}),
        ("shuffled start", (), SHUFFLED),
        ("helper threads delayed", (), JITTER),
    ):
        out = tmp_path / way.replace(" ", "_")
        variation = Variation((), {**preset, **environment})
        inside = run_case(phantora_command, repository, out, CASES[name], variation, (*IMAGE, *options))
        assert inside.digest == in_place.digest, f"{way}: {in_place.command}\n{inside.command}"
        assert_same(in_place, inside)
