"""The torch adaptor: small tensors hold real values, everything else reads as zeros. No core: null mode."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from phantora_runtime import adaptor

pytestmark = pytest.mark.torch
CASES = Path(__file__).with_name("adaptor_cases.py")


def case_names() -> list[str]:
    if importlib.util.find_spec("torch") is None:
        return ["none"]
    return [line.split("(")[0][8:] for line in CASES.read_text().splitlines() if line.startswith("    def ")]


def close(left, right) -> bool:
    if isinstance(left, dict) and isinstance(right, dict):
        return left["dtype"] == right["dtype"] and close(left["values"], right["values"])
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(close(a, b) for a, b in zip(left, right, strict=True))
    if isinstance(left, float) and isinstance(right, float):
        return left == pytest.approx(right, rel=1e-5, abs=1e-6)
    return left == right


@pytest.fixture(scope="module")
def environment(repository) -> dict[str, str]:
    from phantora.native import native_folder

    if importlib.util.find_spec("torch") is None:
        pytest.skip("no torch in this interpreter")
    native = native_folder()
    paths = [str(repository / "runtime"), os.environ.get("PYTHONPATH", "")]
    return os.environ | {
        "LD_PRELOAD": str(native / "libphantora_shim.so"),
        "LD_LIBRARY_PATH": str(native / "stubs"),
        "PHANTORA_NULL": "1",
        "ATEN_CPU_CAPABILITY": "default",
        "PYTHONPATH": os.pathsep.join(path for path in paths if path),
    }


@pytest.fixture(scope="module")
def outcomes(environment) -> dict[str, dict]:
    answer = subprocess.run([sys.executable, str(CASES)], env=environment, capture_output=True, text=True, timeout=300)
    lines = [json.loads(line) for line in answer.stdout.splitlines() if line.startswith("{")]
    keys = ("LD_PRELOAD", "LD_LIBRARY_PATH", "PHANTORA_NULL", "PYTHONPATH")
    command = " ".join([*(f"{key}={environment[key]}" for key in keys), sys.executable, str(CASES)])
    assert answer.returncode == 0, f"{command}\n{answer.stderr}"
    return {line["name"]: line | {"command": command} for line in lines}


@pytest.mark.parametrize("name", case_names())
def test_values(outcomes, name):
    outcome = outcomes[name]
    assert close(outcome["cpu"], outcome["cuda"]), json.dumps(outcome, indent=1)


def test_no_compiler_says_what_to_do(monkeypatch, tmp_path):
    monkeypatch.setattr(adaptor, "compiler", lambda: None)
    with pytest.raises(adaptor.AdaptorError, match=r"no C\+\+ compiler was found.*read as zeros"):
        adaptor.build(tmp_path, adaptor.Torch(tmp_path, "2.0", "abc"))


def test_a_failed_compilation_names_the_first_error(monkeypatch, tmp_path):
    monkeypatch.setattr(adaptor, "compiler", lambda: "/usr/bin/false")
    with pytest.raises(adaptor.AdaptorError, match="did not compile with /usr/bin/false"):
        adaptor.build(tmp_path, adaptor.Torch(tmp_path, "2.0", "abc"))
    assert not list(tmp_path.glob("*.so")), "a failed build must leave no library"


def test_another_torch_gets_another_build(tmp_path):
    stems = {adaptor._stem(adaptor.Torch(tmp_path, "2.14.1", git)) for git in ("a", "b", "a")}
    assert len(stems) == 2


def test_version_is_read_without_importing(tmp_path):
    (tmp_path / "version.py").write_text("__version__ = '2.14.1+cu130'\ncuda: str = '13.0'\ngit_version = 'abc'\n")
    assert adaptor._assigned_strings(tmp_path / "version.py")["git_version"] == "abc"
