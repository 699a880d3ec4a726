"""`phantora sandbox` in a real container: what the script may do there, and what comes back."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

pytestmark = [pytest.mark.docker, pytest.mark.slow, pytest.mark.timeout(3600)]

# One image for all tests here; it also shows that packages which depend on torch bring no NVIDIA libraries.
REQUIREMENTS = Path(__file__).resolve().parents[2] / "examples" / "requirements.txt"

# Two ranks of DDP; rank 0 also says what it finds around it.
TRAIN = """
    import json, os, socket, sys
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    dist.init_process_group("nccl")
    rank, local_rank = dist.get_rank(), int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    if rank == 0:
        def refused(action):
            try:
                action()
            except OSError as error:
                return error.strerror
            return "allowed"

        status = dict(line.split(":", 1) for line in open("/proc/self/status") if ":" in line)
        facts = {
            "uid": os.getuid(),
            "capabilities": status["CapEff"].strip(),
            "no_new_privileges": status["NoNewPrivs"].strip(),
            "seccomp": status["Seccomp"].strip(),
            "interfaces": sorted(os.listdir("/sys/class/net")),
            "write_root": refused(lambda: open("/usr/file", "w")),
            "write_code": refused(lambda: open(__file__, "a")),
            "personality": open("/proc/self/personality").read().strip(),
            "argv": sys.argv[1:],
            "secret": os.environ.get("SECRET_OF_THE_CALLER"),
            "given": os.environ.get("GIVEN"),
        }
        print("FACTS " + json.dumps(facts), flush=True)
    model = DistributedDataParallel(torch.nn.Linear(256, 256).cuda())
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(3):
        model(torch.ones(8, 256, device="cuda")).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    dist.destroy_process_group()
"""


@pytest.fixture(scope="module")
def script(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("code")
    for parent in (folder, folder.parent):  # readable for the container's user
        parent.chmod(0o755)
    path = folder / "train.py"
    path.write_text(textwrap.dedent(TRAIN))
    return path


def sandbox(command, environment, target, *options, cwd, gpus=2):
    line = [*command, "sandbox", *target, "--gpus", str(gpus), "--clock", "modelled", "--steps", "all"]
    line += ["--requirements", str(REQUIREMENTS), *options]
    result = subprocess.run(line, env=environment, cwd=cwd, capture_output=True, text=True, timeout=1700)
    return result, f"{' '.join(line)}\nexit {result.returncode}\n{result.stdout[-4000:]}\n{result.stderr[-8000:]}"


@pytest.fixture(scope="module")
def first_run(phantora_command, sandbox_environment, script, tmp_path_factory):
    cwd = tmp_path_factory.mktemp("runs")
    environment = {**sandbox_environment, "SECRET_OF_THE_CALLER": "secret"}
    options = ("--name", "first", "--env", "GIVEN=yes", "--", "--flag", "{tp}")
    result, what = sandbox(phantora_command, environment, [str(script)], *options, cwd=cwd)
    assert result.returncode == 0, what
    return result, cwd / "runs" / "first"


def test_report_comes_back(first_run):
    _, run = first_run
    report = json.loads((run / "report.json").read_text())
    assert report["verdict"] == "ok"
    assert report["world_size"] == 2
    assert len(report["steps"]) == 3
    assert all(step["duration_ns"] > 0 for step in report["steps"])
    assert (run / "ranks" / "00001.log").exists()


def test_run_directory_belongs_to_the_caller(first_run):
    _, run = first_run
    owners = {path.lstat().st_uid for path in [run, *run.rglob("*")]}
    assert owners == {os.getuid()}


def test_the_script_is_confined(first_run):
    result, _ = first_run
    line = next(line for line in result.stdout.splitlines() if line.startswith("FACTS "))
    facts = json.loads(line.removeprefix("FACTS "))
    assert facts["uid"] != 0
    assert int(facts["capabilities"], 16) == 0
    assert facts["no_new_privileges"] == "1"
    assert facts["seccomp"] == "2"
    assert facts["write_root"] == "Read-only file system"
    # In its overlay a script may change its own file, unless the file is root's; the caller's file stays as it is.
    assert facts["write_code"] == ("Permission denied" if os.getuid() == 0 else "allowed")
    assert facts["secret"] is None
    assert facts["given"] == "yes"
    assert facts["argv"] == ["--flag", "1"]
    assert int(facts["personality"], 16) & 0x0040000, "address randomisation is on"


def test_image_has_no_nvidia_libraries(first_run, docker_engine):
    _, run = first_run
    image = json.loads((run / "run.json").read_text())["sandbox"]["image"]
    code = (
        "import importlib.metadata as m, pathlib, sysconfig\n"
        "site = pathlib.Path(sysconfig.get_path('purelib'))\n"
        "print(m.version('nvidia-cudnn-cu13'), m.version('torchtitan'), (site / 'nvidia').exists())"
    )
    python = "/opt/phantora/venv/bin/python"
    out = docker_engine.containers.run(image, [python, "-c", code], remove=True, network_mode="none").decode().split()
    assert out[1:] == ["0.2.0", "False"]
    assert out[0].startswith("9.")


def test_nothing_is_left_behind(first_run, docker_engine):
    assert docker_engine.containers.list(all=True, filters={"label": f"org.phantora.run={first_run[1]}"}) == []


def test_same_digest_as_in_place(first_run, phantora_command, script, tmp_path):
    line = [*phantora_command, "run", str(script), "--gpus", "2", "--clock", "modelled", "--steps", "all"]
    line += ["--name", "inside", "--env", "GIVEN=yes", "--", "--flag", "{tp}"]
    result = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, timeout=600)
    assert result.returncode == 0, f"{' '.join(line)}\n{result.stderr[-8000:]}"
    reports = [json.loads((run / "report.json").read_text()) for run in (first_run[1], tmp_path / "runs" / "inside")]
    assert reports[0]["torch"] == reports[1]["torch"]
    assert reports[0]["digest"] == reports[1]["digest"]


WRITES = """
import os
from pathlib import Path
Path("out.txt").write_text("where it started")
here = Path(__file__).parent
(here / "deep").mkdir()
(here / "deep" / "out.txt").write_text("in its folder")
(here / "sub" / "more.txt").write_text("in a folder that was there")
assert (here / "sub" / "data.txt").read_text() == "yours"
(here / "sub" / "data.txt").unlink()
assert os.listdir(here / "sub") == ["more.txt"]
with open(os.path.expanduser("~/.cache/phantora-test"), "a+") as kept:
    kept.write("run ")
print(os.environ["TRITON_CACHE_DIR"], os.environ["HF_HUB_OFFLINE"], os.environ["WANDB_MODE"])
"""


def test_what_a_script_writes_lies_in_the_run_directory(phantora_command, sandbox_environment, tmp_path):
    (tmp_path / "code" / "sub").mkdir(parents=True)
    (tmp_path / "code" / "sub" / "data.txt").write_text("yours")
    (tmp_path / "code" / "writes.py").write_text(WRITES)
    for folder in (tmp_path, tmp_path / "code", tmp_path / "code" / "sub"):
        folder.chmod(0o755)
    environment = sandbox_environment | {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    for name in ("first", "second"):
        result, what = sandbox(phantora_command, environment, ["code/writes.py"], "--name", name, cwd=tmp_path, gpus=1)
        assert result.returncode == 0, what
        assert "/home/phantora/.cache/triton 1 offline" in result.stdout, what
    run = tmp_path / "runs" / "first"
    place = run / "files" / tmp_path.relative_to("/")
    written = {path.relative_to(place).as_posix(): path.read_text() for path in place.rglob("*") if path.is_file()}
    assert written == {
        "out.txt": "where it started",
        "code/deep/out.txt": "in its folder",
        "code/sub/more.txt": "in a folder that was there",
    }
    assert {path.lstat().st_uid for path in [run, *run.rglob("*")]} == {os.getuid()}
    assert not (run / ".overlay").exists()
    assert sorted(path.relative_to(tmp_path / "code").as_posix() for path in (tmp_path / "code").rglob("*")) == [
        "sub",
        "sub/data.txt",
        "writes.py",
    ]
    assert (tmp_path / "code" / "sub" / "data.txt").read_text() == "yours"
    assert (tmp_path / "cache" / "phantora" / "sandbox-home" / "phantora-test").read_text() == "run run "


@pytest.mark.skipif(os.getuid() != 0, reason="only root can mount")
def test_where_no_overlay_can_be_the_folder_is_read_only(phantora_command, sandbox_environment, tmp_path):
    """The kernel puts no overlay's upper layer on another overlay."""
    for name in ("code", "lower", "upper", "work", "disk"):
        (tmp_path / name).mkdir()
        (tmp_path / name).chmod(0o755)
    tmp_path.chmod(0o755)
    script = tmp_path / "code" / "writes.py"
    script.write_text("try: open(__file__ + 'x', 'w')\nexcept OSError as error: print(error.strerror)")
    layers = ",".join(f"{name}dir={tmp_path / name}" for name in ("lower", "upper", "work"))
    subprocess.run(["mount", "-t", "overlay", "overlay", "-o", layers, str(tmp_path / "disk")], check=True)
    try:
        options = ("--out", str(tmp_path / "disk" / "run"))
        result, what = sandbox(phantora_command, sandbox_environment, [str(script)], *options, cwd=tmp_path, gpus=1)
        assert result.returncode == 0, what
        assert "is read-only in this run: no overlay there (invalid argument)" in result.stderr, what
        assert "Read-only file system" in result.stdout, what
    finally:
        subprocess.run(["umount", "-l", str(tmp_path / "disk")], check=True)


@pytest.mark.parametrize(("gpus", "options", "nodes"), [(7, (), 1), (12, ("--gpus-per-node", "4"), 3)])
def test_numbers_of_gpus(phantora_command, sandbox_environment, script, tmp_path, gpus, options, nodes):
    result, what = sandbox(
        phantora_command, sandbox_environment, [str(script)], "--name", "run", *options, cwd=tmp_path, gpus=gpus
    )
    assert result.returncode == 0, what
    report = json.loads((tmp_path / "runs" / "run" / "report.json").read_text())
    assert (report["verdict"], report["world_size"], report["nodes"]) == ("ok", gpus, nodes)
    assert report["real"]["cgroup"]["limit_bytes"] > report["real"]["cgroup"]["peak_bytes"] > 0


def test_exit_code_of_a_failing_script_passes_through(phantora_command, sandbox_environment, tmp_path):
    tmp_path.chmod(0o755)
    (tmp_path / "fails.py").write_text("raise SystemExit('the script says no')\n")
    result, what = sandbox(phantora_command, sandbox_environment, [str(tmp_path / "fails.py")], cwd=tmp_path)
    assert result.returncode == 1, what
    assert "the script says no" in result.stderr, what


@pytest.mark.long
def test_torchtitan_llama3_8b(phantora_command, sandbox_environment, repository, tmp_path):
    """Unmodified TorchTitan from the image, its configuration and text from a mount; same digest as in place."""
    tmp_path.chmod(0o755)
    subprocess.run(
        [sys.executable, str(repository / "examples/titan/make_assets.py"), str(tmp_path / "assets")], check=True
    )
    configuration = (repository / "examples/titan/llama3_8b.toml").read_text()
    (tmp_path / "llama3_8b.toml").write_text(configuration.replace("examples/titan/assets", "assets"))
    for path in tmp_path.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    arguments = ("--", "--job.config_file", "llama3_8b.toml", "--job.dump_folder", "/tmp/outputs")
    target = ["-m", "torchtitan.train"]
    options = ("--env", "HF_HOME=/tmp/hf", "--name", "titan", *arguments)
    result, what = sandbox(phantora_command, sandbox_environment, target, *options, cwd=tmp_path, gpus=8)
    assert result.returncode == 0, what
    report = json.loads((tmp_path / "runs" / "titan" / "report.json").read_text())
    assert report["verdict"] == "ok"
    assert len(report["steps"]) == 5
    assert report["late_ops"] == 0
    plain = re.sub(r"\x1b\[[0-9;]*m", "", (tmp_path / "runs" / "titan" / "ranks" / "00000.log").read_text())
    printed = [int(value.replace(",", "")) for value in re.findall(r"tps: ([\d,]+)", plain)]
    assert len(printed) == 5, plain
    for index in range(1, 5):  # the first line also counts what comes before training
        assert 8192 / printed[index] == pytest.approx(report["steps"][index]["duration_ns"] / 1e9, rel=0.01)

    # The same in place, and both once more on one CPU with ranks started in another order and helper threads delayed.
    odd = {"PHANTORA_START_ORDER": "shuffle:5", "PHANTORA_TEST_HELPER_JITTER": "7"}
    cpu = str(min(os.sched_getaffinity(0)))
    line = [*phantora_command, "run", *target, "--gpus", "8", "--clock", "modelled", "--steps", "all"]
    for name, before, environment in (("inside", [], {}), ("odd", ["taskset", "--cpu-list", cpu], odd)):
        beside = subprocess.run(
            [*before, *line, "--name", name, "--env", f"HF_HOME={tmp_path / 'hf' / name}", *arguments],
            cwd=tmp_path, env={**os.environ, **environment}, capture_output=True, text=True, timeout=1700,
        )  # fmt: skip
        assert beside.returncode == 0, f"{' '.join(line)}\n{beside.stderr[-8000:]}"
        assert json.loads((tmp_path / "runs" / name / "report.json").read_text())["digest"] == report["digest"], name
    options = ("--env", "HF_HOME=/tmp/hf", "--name", "odd_sandbox", "--cpus", cpu, *arguments)
    result, what = sandbox(phantora_command, sandbox_environment | odd, target, *options, cwd=tmp_path, gpus=8)
    assert result.returncode == 0, what
    again = json.loads((tmp_path / "runs" / "odd_sandbox" / "report.json").read_text())
    assert again["digest"] == report["digest"]


def test_no_engine_is_exit_3_and_names_the_way_without(phantora_command, script, tmp_path):
    environment = {**os.environ, "DOCKER_HOST": "tcp://127.0.0.1:9"}
    result, what = sandbox(phantora_command, environment, [str(script)], cwd=tmp_path)
    assert result.returncode == 3, what
    assert "phantora run" in result.stderr, what
    assert "Traceback" not in result.stderr, what
    assert not (tmp_path / "runs").exists()
