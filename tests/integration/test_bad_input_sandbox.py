"""Bad input that only a Docker Engine finds: one line says so, the exit code is 3, no container and no run are left."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import threading
from pathlib import Path

import pytest

pytestmark = [pytest.mark.docker, pytest.mark.slow, pytest.mark.timeout(3600)]
REQUIREMENTS = Path(__file__).resolve().parents[2] / "examples" / "requirements.txt"  # the image of test_sandbox.py
LINE = re.compile(r"phantora: Wanted .+; found .+\. [A-Z].+\S")

OPS = """
import torch
weight = torch.ones(64, 64, device="cuda", requires_grad=True)
optimizer = torch.optim.SGD([weight], lr=0.1)
while True:
    (weight @ weight).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


@pytest.fixture
def folder(tmp_path) -> Path:
    """A user's folder, readable for the container's user."""
    for parent in (tmp_path, tmp_path.parent):
        parent.chmod(0o755)
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "train.py").write_text(OPS)
    return tmp_path


@pytest.fixture
def base_image(docker_engine, sandbox_environment, tmp_path_factory):
    """Makes base images that all containers and images of a build are known by; removes what is left of both."""
    label = "org.phantora.test=bad-input"
    made = []

    def make(*lines: str) -> str:
        context = tmp_path_factory.mktemp("base")
        text = [f"FROM {sandbox_environment['PHANTORA_BASE_IMAGE']}", f"LABEL {label}", *lines]
        (context / "Dockerfile").write_text("\n".join(text) + "\n")
        tag = f"phantora-test-bad-input:{len(made)}"
        docker_engine.images.build(path=str(context), tag=tag, rm=True, forcerm=True)
        made.append(tag)
        return tag

    yield make
    left = docker_engine.containers.list(all=True, filters={"label": label})
    for container in left:
        container.remove(force=True)
    for tag in made:
        docker_engine.images.remove(tag, force=True)
    docker_engine.images.prune(filters={"dangling": True, "label": label})
    assert left == []


def sandbox(command, environment, folder, *options):
    line = [*command, "sandbox", "code/train.py", "--gpus", "1", "--clock", "modelled", "--steps", "all", *options]
    answer = subprocess.run(line, cwd=folder, env=environment, capture_output=True, text=True, timeout=1700)
    return answer, f"{' '.join(line)}\nexit {answer.returncode}\n{answer.stdout[-2000:]}\n{answer.stderr[-6000:]}"


def assert_environment(answer, shown: str, *says: str) -> None:
    """Exit code 3; what went wrong is in the last line, the only one of that form."""
    assert answer.returncode == 3, shown
    lines = [line for line in answer.stderr.splitlines() if line.startswith("phantora: Wanted")]
    assert len(lines) == 1 and LINE.fullmatch(lines[0]) and answer.stderr.endswith(f"{lines[0]}\n"), shown
    assert all(text in lines[0] for text in says), shown
    assert "Traceback" not in lines[0], shown


# What a build is given, what Dockerfile lines its base has, and what must be said.
BUILDS = {
    "no such torch": (("--torch", "0.0.1"), (), ("No matching distribution found for torch==0.0.1", "--torch")),
    "requirements that do not resolve": (
        ("--requirements", "requirements.txt"), (),
        ("No matching distribution found for phantora-no-such-package", "Correct --requirements"),
    ),
    # Docker gives a build 64 MiB of /dev/shm: torch does not fit.
    "a full disk": ((), ("ENV TMPDIR=/dev/shm",), ("No space left on device", "Make room")),
    "no Python in it": ((), ("RUN rm /usr/bin/python3", "ENTRYPOINT []", "RUN rm -rf /usr/lib/apt"), ("E: ",)),
}  # fmt: skip


@pytest.mark.parametrize("case", BUILDS)
def test_an_image_that_cannot_be_built(case, base_image, phantora_command, sandbox_environment, folder):
    options, lines, says = BUILDS[case]
    (folder / "requirements.txt").write_text("phantora-no-such-package==1.0\n")
    base = ("--base-image", base_image(*lines))
    answer, shown = sandbox(phantora_command, sandbox_environment, folder, *options, *base)
    assert_environment(answer, shown, "Wanted an image built from", "a build step that ended with code", *says)
    assert not (folder / "runs").exists()


@pytest.mark.parametrize("option", ["--image", "--base-image"])
def test_an_image_that_is_nowhere(option, phantora_command, sandbox_environment, folder):
    answer, shown = sandbox(phantora_command, sandbox_environment, folder, option, "phantora-no-such-image:1")
    assert_environment(answer, shown, "phantora-no-such-image:1")
    assert not (folder / "runs").exists()


def test_requirements_that_are_no_file(phantora_command, sandbox_environment, folder):
    answer, shown = sandbox(phantora_command, sandbox_environment, folder, "--requirements", "gone.txt")
    assert answer.returncode == 2, shown
    assert LINE.fullmatch(answer.stderr.rstrip("\n")) and "gone.txt" in answer.stderr, shown
    assert not (folder / "runs").exists()


def test_cpus_that_this_machine_has_not(phantora_command, sandbox_environment, folder):
    answer, shown = sandbox(phantora_command, sandbox_environment, folder, "--cpus", "4095")
    assert answer.returncode == 2, shown
    assert LINE.fullmatch(answer.stderr.rstrip("\n")) and "CPUs of this machine" in answer.stderr, shown
    assert not (folder / "runs").exists()


@pytest.fixture
def small_disk(folder):
    """Mounts a file system in memory of that many bytes in the user's folder."""
    disk = folder / "disk"
    disk.mkdir()
    mounted = []

    def mount(size: int) -> Path:
        line = ["mount", "-t", "tmpfs", "-o", f"size={size},mode=755", "none", str(disk)]
        if subprocess.run(line, capture_output=True).returncode:
            if os.environ.get("CI"):
                pytest.fail("CI needs the right to mount")
            pytest.skip("no right to mount")
        mounted.append(disk)
        return disk

    yield mount
    for place in mounted:
        subprocess.run(["umount", place], check=True)


def fill(disk: Path, run: Path, ended: threading.Event) -> None:
    """Takes all room once the run goes on, as somebody else might."""
    while not ended.wait(0.1):
        events = run / "events.jsonl"
        if events.exists() and events.stat().st_size:
            with contextlib.suppress(OSError), open(disk / "filler", "ab", buffering=0) as filler:
                while filler.write(bytes(4096)):
                    pass


@pytest.mark.parametrize(("when", "size"), [("at the start", 24 << 10), ("in the middle", 16 << 20)])
def test_a_full_disk(when, size, small_disk, phantora_command, sandbox_environment, docker_engine, folder):
    disk = small_disk(size)
    run, ended = disk / "run", threading.Event()
    filler = threading.Thread(target=fill, args=(disk, run, ended))
    if when == "in the middle":
        filler.start()
    options = ("--requirements", str(REQUIREMENTS), "--out", str(run))
    try:
        answer, shown = sandbox(phantora_command, sandbox_environment, folder, *options)
    finally:
        ended.set()
        if filler.is_alive():
            filler.join()
    assert_environment(answer, shown, "No space left on device", "Make room")
    assert docker_engine.containers.list(all=True, filters={"label": f"org.phantora.run={run}"}) == []
    assert {path.lstat().st_uid for path in [run, *run.rglob("*")]} == {os.getuid()}
    assert not list(run.rglob("*.sock"))
