"""compose.yaml starts the appliance that `phantora sandbox` starts."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

pytestmark = [pytest.mark.docker, pytest.mark.slow, pytest.mark.timeout(3600)]
ROOT = Path(__file__).resolve().parents[2]
REQUIREMENTS = ROOT / "examples" / "requirements.txt"  # the image of test_sandbox.py
SCRIPT = """
import os, torch
status = dict(line.split(":", 1) for line in open("/proc/self/status") if ":" in line)
assert int(status["CapEff"], 16) == int(status["CapBnd"], 16) == 0, "capabilities"
assert status["NoNewPrivs"].strip() == "1" and status["Seccomp"].strip() == "2", "no seccomp"
assert os.getuid() != 0 and os.listdir("/sys/class/net") == ["lo"]
try: open("/usr/x", "w")
except OSError: pass
else: raise SystemExit("the image is writable")
model = torch.nn.Linear(64, 64, device="cuda")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    model(torch.ones(4, 64, device="cuda")).sum().backward()
    optimizer.step()
"""


def compose() -> list[str]:
    if subprocess.run(["docker", "compose", "version"], capture_output=True).returncode == 0:
        return ["docker", "compose"]
    if shutil.which("docker-compose"):
        return ["docker-compose"]
    if os.environ.get("CI"):
        pytest.fail("CI needs Docker Compose")
    pytest.skip("no Docker Compose")


def test_the_same_run_as_in_the_sandbox(phantora_command, sandbox_environment, docker_engine, tmp_path):
    docker_compose = compose()
    code, runs = tmp_path / "code", tmp_path / "runs"
    for folder in (code, runs):
        folder.mkdir()
    (code / "train.py").write_text(SCRIPT)
    tmp_path.chmod(0o755)
    uid, gid = os.getuid() or 10_001, os.getgid() or 10_001
    os.chown(runs, uid, gid)
    options = ["--gpus", "2", "--clock", "modelled", "--requirements", str(REQUIREMENTS)]

    def call(*line: str, cwd: Path = tmp_path, **more: str) -> subprocess.CompletedProcess[str]:
        answer = subprocess.run(
            line, cwd=cwd, env=sandbox_environment | more, capture_output=True, text=True, timeout=1800
        )
        assert answer.returncode == 0, f"{' '.join(line)}\n{answer.stdout}\n{answer.stderr}"
        return answer

    call(*phantora_command, "sandbox", "code/train.py", *options, "--name", "sandbox")
    image = call(*phantora_command, "image", "build", "--requirements", str(REQUIREMENTS)).stdout.strip()
    answer = call(
        *docker_compose,
        *("-f", str(ROOT / "compose.yaml"), "-p", "phantora-test", "run", "--rm", "phantora"),
        *("code/train.py", "--gpus", "2", "--clock", "modelled", "--name", "compose"),
        cwd=ROOT, PHANTORA_IMAGE=image, PHANTORA_CODE=str(code), PHANTORA_RUNS=str(runs), PHANTORA_UID=str(uid), PHANTORA_GID=str(gid),
    )  # fmt: skip
    assert "ok: 2 x h100-sxm-80gb ran" in answer.stdout + answer.stderr
    reports = [json.loads((runs / name / "report.json").read_text()) for name in ("sandbox", "compose")]
    assert reports[0]["digest"] == reports[1]["digest"]
    assert {path.lstat().st_uid for path in (runs / "compose").rglob("*")} == {uid}
    assert docker_engine.containers.list(all=True, filters={"label": "com.docker.compose.project=phantora-test"}) == []
