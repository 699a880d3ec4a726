"""`phantora sandbox --image`: an image that is not ours, with another Python and torch of its own."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "determinism"))
from determinism_support import CASES, Variation, assert_same, run_case  # noqa: E402

pytestmark = [pytest.mark.docker, pytest.mark.timeout(3600)]

# No compiler and nothing of Phantora; a command that would not be ours. The torch is PyPI's, NVIDIA's libraries left out.
DOCKERFILE = """
FROM {base}
COPY install_torch.py ca-bundle.crt /tmp/
RUN python3 -m venv /srv/python && if [ -s /tmp/ca-bundle.crt ]; then export PIP_CERT=/tmp/ca-bundle.crt; fi && \\
    PIP_NO_CACHE_DIR=1 /srv/python/bin/python /tmp/install_torch.py --torch {torch}
ENV PATH=/srv/python/bin:/usr/bin:/bin
ENTRYPOINT ["/bin/false"]
"""


def build(client, tag: str, files: dict[str, bytes]) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    buffer.seek(0)
    for event in client.api.build(fileobj=buffer, custom_context=True, tag=tag, rm=True, decode=True):
        assert "error" not in event, f"{files['Dockerfile'].decode()}\n{event}"


@pytest.fixture(scope="module")
def debian_13(docker_engine) -> str:
    command = ["sh", str(Path(__file__).with_name("base_image.sh")), "trixie", "python3,python3-venv,ca-certificates"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=900)
    assert result.returncode == 0, f"{' '.join(command)}\n{result.stderr}"
    return result.stdout.strip()


@pytest.fixture(scope="module", params=["2.14.1", "2.12.1"])
def foreign(request, debian_13, sandbox_environment, docker_engine) -> tuple[str, str]:
    """A version of torch, and an image on Debian 13 that has it."""
    torch, tag = request.param, f"phantora-test-foreign:{request.param}"
    bundle = sandbox_environment.get("PHANTORA_CA_BUNDLE")
    files = {
        "Dockerfile": DOCKERFILE.format(base=debian_13, torch=torch).encode(),
        "install_torch.py": (ROOT / "phantora/sandbox/context/install_torch.py").read_bytes(),
        "ca-bundle.crt": Path(bundle).read_bytes() if bundle else b"",
    }
    build(docker_engine, tag, files)
    yield torch, tag
    docker_engine.images.remove(tag, force=True)


@pytest.mark.long
def test_same_run_as_in_our_own_image(
    foreign, phantora_command, sandbox_environment, docker_engine, repository, tmp_path
):
    torch, tag = foreign
    # A cache of the test's own: the adaptor is compiled in the first of these runs, and found in the others.
    preset = {key: value for key, value in sandbox_environment.items() if os.environ.get(key) != value}
    cached = {"PHANTORA_CACHE": str(tmp_path / "cache")}
    for name in ("llama", "fsdp2", "dataloader"):
        runs = [
            run_case(phantora_command, repository, tmp_path / f"{name}_{way}", CASES[name], variation, verb)
            for way, variation, verb in (
                ("ours", Variation((), preset), ("sandbox", "--torch", torch)),
                ("foreign", Variation((), preset | cached), ("sandbox", "--image", tag)),
            )
        ]
        assert_same(*runs)
        assert runs[1].report["torch"] == torch
        described = json.loads((runs[1].folder / "run.json").read_text())
        assert described["sandbox"] == {"image": tag, "image_id": docker_engine.images.get(tag).id}
    assert len(list((tmp_path / "cache").rglob("adaptor-*.so"))) == 1
    version = docker_engine.containers.run(tag, ["-V"], entrypoint="python3", remove=True).decode()
    assert version.startswith("Python 3.13"), version


@pytest.mark.long
def test_without_a_compiler_anywhere_the_run_is_poorer(foreign, phantora_command, repository, tmp_path):
    lacking = {"PHANTORA_BASE_IMAGE": "phantora-test-foreign/none:1", "PHANTORA_CACHE": str(tmp_path / "cache")}
    verb = ("sandbox", "--image", foreign[1])
    run = run_case(phantora_command, repository, tmp_path / "out", CASES["llama"], Variation((), lacking), verb)
    assert any("adaptor could not be loaded" in note for note in run.report["notes"]), run.report["notes"]


def refused(command, environment, name: str, tmp_path: Path) -> str:
    (tmp_path / "train.py").write_text("import torch\n")
    line = [*command, "sandbox", "train.py", "--gpus", "1", "--image", name]
    result = subprocess.run(line, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600)
    assert result.returncode == 3, f"{' '.join(line)}\nexit {result.returncode}\n{result.stderr}"
    assert "Traceback" not in result.stderr
    assert not (tmp_path / "runs").exists()
    return result.stderr


@pytest.mark.slow
def test_an_image_without_torch_is_refused(phantora_command, sandbox_environment, tmp_path):
    base = sandbox_environment["PHANTORA_BASE_IMAGE"]
    assert f"Wanted torch in {base}; found none" in refused(phantora_command, sandbox_environment, base, tmp_path)


@pytest.mark.slow
def test_an_image_without_python_is_refused(phantora_command, sandbox_environment, docker_engine, tmp_path):
    tag = "phantora-test-foreign:no-python"
    build(docker_engine, tag, {"Dockerfile": b"FROM scratch\nCOPY file /\n", "file": b"content"})
    try:
        message = refused(phantora_command, sandbox_environment, tag, tmp_path)
    finally:
        docker_engine.images.remove(tag)
    assert f"Wanted a python3 that starts in {tag}; found" in message


@pytest.mark.slow
def test_an_image_that_is_nowhere_is_refused(phantora_command, sandbox_environment, tmp_path):
    name = "phantora-test-foreign/none:1"
    assert f"Wanted the image {name}; found" in refused(phantora_command, sandbox_environment, name, tmp_path)
