"""The built wheel in an empty environment: complete, and a working `phantora run`."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

TRAIN = """
import os
import torch

torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
model = torch.nn.Linear(64, 64).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(2):
    model(torch.ones(4, 64, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def call(*command: str, cwd: Path, **variables: str) -> str:
    # What the tests' own environment says about Phantora and Python must not help.
    environment = {k: v for k, v in os.environ.items() if k not in ("PHANTORA_NATIVE", "PYTHONPATH", "VIRTUAL_ENV")}
    result = subprocess.run(command, cwd=cwd, env=environment | variables, capture_output=True, text=True, timeout=1200)
    assert result.returncode == 0, f"{' '.join(command)}\n{result.stdout[-2000:]}\n{result.stderr[-6000:]}"
    return result.stdout


@pytest.fixture(scope="module")
def wheel(repository, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    call(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", str(folder), str(repository), cwd=folder)
    (path,) = folder.glob("phantora_sim-*.whl")
    return path


@pytest.fixture(scope="module")
def environment(wheel, tmp_path_factory) -> Path:
    """An empty virtual environment with nothing but the wheel and what it asks for."""
    folder = tmp_path_factory.mktemp("environment")
    call(sys.executable, "-m", "venv", str(folder), cwd=folder)
    call(str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", str(wheel), cwd=folder)
    return folder


def test_wheel_carries_everything(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        sizes = {info.filename: info.file_size for info in archive.infolist()}
    expected = {
        "phantora/_native/libphantora_shim.so",
        "phantora/_native/phantora-core",
        "phantora/_native/stubs.txt",
        "phantora/sandbox/context/Dockerfile",
        "phantora/sandbox/context/install_torch.py",
        "phantora/sandbox/seccomp.json",
        "phantora/profiles/gpus/h100-sxm-80gb.toml",
        "phantora/profiles/clusters/dgx-h100.toml",
        "phantora/profiles/hosts/reference.toml",
        "phantora_runtime/supervisor.py",
        "phantora_runtime/adaptor_src/adaptor.cpp",
        "phantora_tui/__init__.py",
    }
    assert expected <= names, expected - names
    assert any(name.startswith("phantora/profiles/tables/") for name in names)
    assert not [name for name in names if name.startswith("phantora/_native/stubs/")], "links would become copies"
    assert sizes["phantora/_native/libphantora_shim.so"] > 100_000
    assert wheel.name.split("-")[2:4] == ["py3", "none"]


def test_command_works_without_torch(environment, tmp_path):
    command = str(environment / "bin" / "phantora")
    assert "sandbox" in call(command, "--help", cwd=tmp_path)
    assert "h100-sxm-80gb" in call(command, "profiles", "list", cwd=tmp_path)


def test_run_from_the_wheel(environment, tmp_path):
    """The interpreter with torch is the tests' own; everything of Phantora's comes from the wheel."""
    assert importlib.util.find_spec("torch"), "the tests need torch beside them (make torch)"
    (tmp_path / "train.py").write_text(TRAIN)
    line = ["run", "train.py", "--gpus", "2", "--clock", "modelled", "--steps", "all", "--json", "--name", "one"]
    out = call(str(environment / "bin" / "phantora"), *line, "--python", sys.executable, cwd=tmp_path)
    report = json.loads(out)
    assert report["verdict"] == "ok"
    assert len(report["steps"]) == 2
    assert report["late_ops"] == 0


def test_run_where_the_installation_is_read_only(environment, tmp_path):
    """The links to the shim then go into the user's cache."""
    from phantora import stubs

    native = next(environment.glob("lib/python3*/site-packages/phantora/_native"))
    names = stubs.names(native)
    assert "libcuda.so.1" in names
    code = (
        "import os, sys; from phantora import stubs; stubs._link, real = None, stubs._link\n"
        "def refuse_package(native, where):\n"
        "    if native == where: raise PermissionError(13, 'read-only')\n"
        "    real(native, where)\n"
        "stubs._link = refuse_package\n"
        "stubs._complete = lambda native: False\n"
        "from phantora.native import native_folder\n"
        "print(native_folder())"
    )
    python = str(environment / "bin" / "python")
    folder = Path(call(python, "-c", code, cwd=tmp_path, XDG_CACHE_HOME=str(tmp_path / "cache")).strip())
    assert folder.is_relative_to(tmp_path / "cache")
    assert sorted(path.name for path in (folder / "stubs").iterdir()) == sorted(names)
    assert (folder / "stubs" / "libcuda.so.1").samefile(native / "libphantora_shim.so")
    assert (folder / "phantora-core").samefile(native / "phantora-core")
