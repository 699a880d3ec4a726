"""Runs Python text in a process that has the shim preloaded, without a run around it (null mode)."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

KEYS = ("LD_PRELOAD", "LD_LIBRARY_PATH", "PHANTORA_NULL")


def environment() -> dict[str, str]:
    """The environment of a process in null mode."""
    from phantora.native import native_folder

    native = native_folder()
    return os.environ | {
        "LD_PRELOAD": str(native / "libphantora_shim.so"),
        "LD_LIBRARY_PATH": str(native / "stubs"),
        "PHANTORA_NULL": "1",
    }


def need(*modules: str) -> None:
    """Skips the calling test where a module is missing."""
    for module in modules:
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"no {module} in this interpreter")


def run_snippet(tmp_path: Path, text: str, **variables: str) -> str:
    """Runs `text` and returns its output; a failure shows the command that repeats it."""
    script = tmp_path / "snippet.py"
    script.write_text(text)
    env = environment() | variables
    answer = subprocess.run([sys.executable, str(script)], env=env, capture_output=True, text=True, timeout=300)
    command = " ".join([*(f"{key}={env[key]}" for key in KEYS), sys.executable, str(script)])
    assert answer.returncode == 0, f"{command}\n{answer.stdout}\n{answer.stderr}"
    return answer.stdout
