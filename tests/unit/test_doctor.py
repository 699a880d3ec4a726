"""`phantora doctor`: what it says of machines that are not this one, and that it changes nothing here."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from phantora import checks
from phantora.checks import Check
from phantora.cli import app


def interpreter(folder: Path, version_file: str | None) -> Path:
    """A Python whose torch is a version file."""
    if version_file is not None:
        (folder / "torch").mkdir()
        (folder / "torch" / "__init__.py").write_text("raise RuntimeError('imported')")
        (folder / "torch" / "version.py").write_text(version_file)
    program = folder / "python"
    program.write_text(f'#!/bin/sh\ncd {folder} && exec env PYTHONPATH={folder} {os.sys.executable} -S "$@"\n')
    program.chmod(0o755)
    return program


@pytest.mark.parametrize(
    ("version_file", "ok", "found"),
    [
        ("__version__ = '2.14.1'\ncuda: str | None = '13.0'\n", True, "2.14.1 for CUDA 13.0"),
        ("__version__ = '2.14.1+cpu'\ncuda: str | None = None\n", False, "2.14.1+cpu in {} is a CPU-only torch"),
        ("__version__ = '2.6.0'\ncuda = '12.4'\n", False, "2.6.0 for CUDA 12.4"),
        (None, False, "none in {}"),
    ],
)
def test_torch_is_named_with_its_cuda(tmp_path, version_file, ok, found):
    python = interpreter(tmp_path, version_file)
    check = checks.torch(python)
    assert check.ok is ok
    assert check.found.startswith(found.format(python)), check
    assert bool(check.do) is not ok
    assert check.needed_by == (() if ok else ("run",))


def test_an_interpreter_that_is_none(tmp_path):
    check = checks.torch(tmp_path / "nothing")
    assert (check.ok, check.needed_by) == (False, ("run",))


@pytest.mark.parametrize(("files", "found"), [(["cgroup.controllers"], "version 2"), (["memory"], "version 1")])
def test_cgroups_of_both_versions(tmp_path, files, found):
    for name in files:
        (tmp_path / name).touch()
    assert checks.cgroups(tmp_path).found == found
    assert checks.cgroups(tmp_path / "none").ok is None


def test_memory_and_hugepages(tmp_path):
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal: 4000 kB\nMemAvailable:  2097152 kB\nHugePages_Total:  7\nHugepagesize:  2048 kB\n")
    assert checks.memory(meminfo) == Check("memory", None, "2.00 GiB available", "Enough for a few ranks only.")
    assert checks.hugepages(meminfo) == Check("hugepages", True, "7 of 2.0 MiB")
    meminfo.write_text("MemAvailable:  20971520 kB\nHugePages_Total:  0\nHugepagesize:  2048 kB\n")
    assert checks.memory(meminfo).ok
    assert checks.hugepages(meminfo) == Check("hugepages", None, "none reserved")
    assert checks.hugepages(tmp_path / "gone").found == "none reserved"


def test_no_engine_leaves_run(monkeypatch):
    monkeypatch.setenv("DOCKER_HOST", "tcp://127.0.0.1:9")
    check = checks.docker()
    assert (check.ok, check.needed_by) == (False, ("sandbox",))
    assert "phantora run" in check.do


def test_every_line_says_what_to_do_and_nothing_changes(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DOCKER_HOST", "tcp://127.0.0.1:9")
    monkeypatch.setattr(checks, "torch", lambda _python: Check("torch", False, "none", "Get one.", ("run",)))
    result = CliRunner().invoke(app, ["doctor"])
    assert result.exit_code == 3, result.output
    assert "MISS torch: none\n       Get one.\n" in result.output
    assert result.output.endswith("phantora run: does not work here\nphantora sandbox: does not work here\n")
    assert list(tmp_path.iterdir()) == []
