"""What `--image` asks of an image, and what it mounts there; no Docker Engine needed."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from phantora.errors import PhantoraError, UsageError
from phantora.native import FILES, native_folder
from phantora.options import SandboxOptions
from phantora.sandbox import check, elf, own_image
from phantora.sandbox.own_image import Facts
from phantora_runtime.adaptor import Torch

ROOT = Path(__file__).resolve().parents[2]
TORCH = Torch(Path("/usr/lib/torch"), "2.14.1", "abc", "13.0")


def facts(python=(3, 13), glibc=(2, 41), torch=TORCH, has_cuda=True) -> Facts:
    return Facts(python, glibc, torch, has_cuda)


def test_an_image_with_all_of_it_passes():
    own_image.check("mine:1", facts(), (2, 36))
    own_image.check("mine:1", facts(python=(3, 10), glibc=(2, 36)), (2, 36))


@pytest.mark.parametrize(
    ("found", "says"),
    [
        (facts(python=(3, 9)), "Wanted Python 3.10 or later as python3 in mine:1; found Python 3.9."),
        (facts(glibc=(2, 31)), "Wanted glibc 2.36 or later in mine:1"),
        (facts(glibc=(2, 31)), "found glibc 2.31."),
        (facts(glibc=()), "found another C library."),
        (facts(torch=None), "Wanted torch in mine:1; found none"),
        (facts(torch=Torch(Path("/t"), "2.14.1+cpu", "abc"), has_cuda=False), "found 2.14.1+cpu, built without CUDA."),
        (facts(torch=Torch(Path("/t"), "2.6.0", "abc", "12.4")), "found 2.6.0, built for CUDA 12.4."),
    ],
)
def test_what_an_image_lacks(found, says):
    with pytest.raises(PhantoraError) as raised:
        own_image.check("mine:1", found, (2, 36))
    assert says in str(raised.value)
    assert raised.value.code == 3


def test_the_probe_finds_a_torch_without_importing_it(tmp_path):
    package = tmp_path / "torch"
    (package / "lib").mkdir(parents=True)
    (package / "__init__.py").write_text("raise SystemExit('imported')\n")
    (package / "version.py").write_text("__version__ = '2.12.1+cu130'\ncuda = '13.0'\ngit_version = 'abc'\n")
    (package / "lib" / "libtorch_cuda.so").touch()
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT / 'runtime'}"}
    command = [sys.executable, "-c", (ROOT / "phantora/sandbox/probe.py").read_text()]
    text = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    found = Facts.parse(text)
    assert found.python == sys.version_info[:2]
    assert found.glibc == tuple(map(int, os.confstr("CS_GNU_LIBC_VERSION").split()[1].split(".")))
    assert found.torch == Torch(package, "2.12.1+cu130", "abc", "13.0")
    assert found.has_cuda


def test_the_probe_without_torch():
    assert Facts.parse(json.dumps({"python": [3, 9], "glibc": "", "torch": None})) == Facts((3, 9), (), None)


def test_native_files_load_on_the_oldest_glibc_that_is_aimed_at():
    """Debian 11 has 2.31; what a compiler of this machine binds to its own glibc would show here."""
    needed = {name: elf.needed_glibc((native_folder() / name).read_bytes()) for name in FILES}
    assert () <= max(needed.values()) <= (2, 31), needed
    assert needed["libphantora_shim.so"] >= (2, 2, 5), "the shim is linked against glibc"


def test_glibc_needed_is_what_the_file_says_itself():
    interpreter = Path(sys.executable).resolve()
    listed = subprocess.run(["objdump", "-p", str(interpreter)], capture_output=True, text=True, check=True).stdout
    versions = [tuple(map(int, v.split("."))) for v in re.findall(r"0x\w+ 0x\w+ \d+ GLIBC_([\d.]+)", listed)]
    assert elf.needed_glibc(interpreter.read_bytes()) == max(versions)


def test_mounts_lie_where_images_of_our_own_have_them(tmp_path, monkeypatch):
    native = tmp_path / "native"
    (native / "stubs").mkdir(parents=True)
    elsewhere = tmp_path / "wheel"
    elsewhere.mkdir()
    for name in ("libphantora_shim.so", "phantora-core"):  # as in a mirror of an installation that cannot be written
        (elsewhere / name).touch()
        (native / name).symlink_to(elsewhere / name)
    monkeypatch.setattr(own_image, "native_folder", lambda: native)
    mounts = {mount.target: mount for mount in own_image.own_files()}
    assert all(mount.read_only for mount in mounts.values())
    assert mounts["/opt/phantora/native/phantora-core"].source == elsewhere / "phantora-core"
    assert mounts["/opt/phantora/native/stubs"].source == native / "stubs"
    assert (mounts["/opt/phantora/lib/phantora_runtime"].source / "supervisor.py").exists()
    assert (mounts["/opt/phantora/profiles"].source / "gpus").is_dir()


def test_an_image_as_it_is_excludes_a_built_one(monkeypatch):
    monkeypatch.setenv("PHANTORA_BASE_IMAGE", "preset:1")
    with pytest.raises(UsageError):
        check.check_image(SandboxOptions(image="mine:1", torch="2.14.1"))
    check.check_image(SandboxOptions(image="mine:1", base_image="preset:1"))  # a preset is no contradiction
