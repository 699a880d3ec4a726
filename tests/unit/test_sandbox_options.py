"""The sandbox's parts that need no Docker Engine."""

from __future__ import annotations

import io
import json
import tarfile
from importlib import resources
from pathlib import Path, PurePosixPath

import pytest

from phantora.errors import UsageError
from phantora.options import SandboxOptions
from phantora.sandbox import context, engine, image, mounts


class NoImages:
    """Stands where only the look-up of a local image is needed."""

    class images:
        @staticmethod
        def get(name):
            from docker.errors import ImageNotFound

            raise ImageNotFound(name)


@pytest.fixture
def native(tmp_path, monkeypatch) -> Path:
    folder = tmp_path / "native"
    folder.mkdir()
    for name in ("libphantora_shim.so", "phantora-core"):
        (folder / name).write_bytes(name.encode())
    (folder / "stubs.txt").write_text("libcuda.so.1\nlibcudart.so.13\n")
    monkeypatch.setattr(context, "native_folder", lambda: folder)
    return folder


def make(**options) -> context.BuildContext:
    return image.build_context(NoImages, SandboxOptions(**options))


@pytest.mark.parametrize(
    ("text", "target", "read_only"),
    [
        ("{}", "{}", False),
        ("{}:/data", "/data", False),
        ("{}:/data:ro", "/data", True),
        ("{}:/data:rw", "/data", False),
    ],
)
def test_mount_texts(tmp_path, text, target, read_only):
    mount = mounts.parse(text.format(tmp_path))
    assert (mount.source, mount.target, mount.read_only) == (tmp_path, target.format(tmp_path), read_only)


@pytest.mark.parametrize("text", ["", ":/data", "{}:data", "{}:/data:no", "{}:/a:ro:b", "/no/such/folder"])
def test_mount_refused(tmp_path, text):
    with pytest.raises(UsageError):
        mounts.parse(text.format(tmp_path))


@pytest.mark.parametrize(
    "target", ["/", "/usr", "/usr/lib/x", "/proc", "/opt", "/opt/phantora/lib", "/tmp", "/home", "/var"]
)
def test_targets_that_would_hide_the_image(target):
    with pytest.raises(UsageError):
        mounts.check_target(PurePosixPath(target), "--mount")


@pytest.mark.parametrize(
    "target", ["/data", "/tmp/job", "/home/someone/code", "/var/lib/jenkins/workspace", "/root/code"]
)
def test_targets_that_are_fine(target):
    mounts.check_target(PurePosixPath(target), "--mount")


def test_context_is_reproducible_and_complete(native):
    first, second = make().tar().getvalue(), make().tar().getvalue()
    assert first == second
    with tarfile.open(fileobj=io.BytesIO(first)) as archive:
        names = set(archive.getnames())
        link = archive.getmember("phantora/native/stubs/libcudart.so.13")
    assert {"Dockerfile", "apt.conf", "ca-bundle.crt"} <= names
    assert {f"build/{name}" for name in ("install_torch.py", "requirements.txt", "environment.sh")} <= names
    assert {f"phantora/native/{name}" for name in ("libphantora_shim.so", "phantora-core")} <= names
    assert {f"{folder}/phantora_runtime/adaptor.py" for folder in ("adaptor", "phantora/lib")} <= names
    assert any(name.startswith("phantora/profiles/gpus/") for name in names)
    assert link.issym()
    assert link.linkname == "../libphantora_shim.so"


def test_tag_follows_what_the_image_holds(native, tmp_path, monkeypatch):
    for name in ("PHANTORA_BASE_IMAGE", "PHANTORA_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)
    plain = make().digest()
    needs = tmp_path / "requirements.txt"
    needs.write_text("einops\n")
    bundle = tmp_path / "ca.pem"
    bundle.write_text("certificate\n")
    assert make().digest() == plain
    assert make(requirements=needs).digest() != plain
    assert make(torch="2.14.0").digest() != plain
    assert make(base_image="debian:trixie-slim").digest() != plain
    assert make(ca_bundle=bundle).digest() == plain, "certificates change the way to the index, not the image"
    (native / "phantora-core").write_bytes(b"another build")
    assert make().digest() != plain


def test_pip_settings_reach_the_build(native, monkeypatch, tmp_path):
    monkeypatch.setenv("PIP_INDEX_URL", "https://index.example/simple it's")
    monkeypatch.setenv("PIP_CERT", "/nowhere/ca.pem")
    (tmp_path / "ca.pem").write_text("certificate\n")
    with tarfile.open(fileobj=make(ca_bundle=tmp_path / "ca.pem").tar()) as archive:
        text = archive.extractfile("build/environment.sh").read().decode()
    assert """export PIP_INDEX_URL='https://index.example/simple it'"'"'s'""" in text
    assert "/nowhere" not in text
    assert "export PIP_CERT=/opt/phantora/build/ca-bundle.crt" in text


def test_compiler_image_follows_its_base_alone(native, tmp_path):
    needs = tmp_path / "requirements.txt"
    needs.write_text("einops\n")
    plain = make().compiler_digest()
    assert make(torch="2.14.0", requirements=needs).compiler_digest() == plain
    assert make(base_image="debian:trixie-slim").compiler_digest() != plain


def test_base_image_preset(monkeypatch):
    monkeypatch.setenv("PHANTORA_BASE_IMAGE", "preset:1")
    assert make().base_image == "preset:1"
    assert make(base_image="other:1").base_image == "other:1"


def test_command_without_container():
    line = ["phantora", "sandbox", "a b.py", "--gpus", "4", "--memory", "8g", "--mount=/d", "--", "--memory", "x"]
    assert engine.without_container(line) == "phantora run 'a b.py' --gpus 4 -- --memory x"


def test_seccomp_differs_from_the_default_where_it_should():
    profile = json.loads(resources.files("phantora.sandbox").joinpath("seccomp.json").read_text())
    assert profile["defaultAction"] == "SCMP_ACT_ERRNO"
    personality = [rule["args"][0]["value"] for rule in profile["syscalls"] if rule["names"] == ["personality"]]
    assert 0x0040000 in personality
    allowed = [name for rule in profile["syscalls"] for name in rule["names"]]
    assert not [name for name in allowed if name.startswith("io_uring") or name == "ptrace"]
