"""Everything that can be killed, killed when a run starts, in its middle and when it ends: the right exit code, and
nothing is left."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import threading
import time
from pathlib import Path

import pytest
from docker.errors import APIError

from phantora.sandbox import stale

pytestmark = [pytest.mark.docker, pytest.mark.slow, pytest.mark.timeout(3600)]
REQUIREMENTS = Path(__file__).resolve().parents[2] / "examples" / "requirements.txt"  # the image of test_sandbox.py
PHASES = ("start", "middle", "end")
WAIT_S = 180.0  # for what must come; nothing here is expected to take so long

SCRIPT = """
import os, sys, time, torch
model = torch.nn.Linear(64, 64, device="cuda")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(int(sys.argv[1])):
    model(torch.ones(4, 64, device="cuda")).sum().backward()
    optimizer.step()
    if step == 3: print("in the middle", flush=True)
    sum(range(200_000))
print("at the end", flush=True)
"""


class Proxy:
    """A way to the Engine that can be cut."""

    def __init__(self, path: Path, engine: str) -> None:
        self._engine = engine
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()
        self._open = [self._listener]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            far = socket.socket(socket.AF_UNIX)
            far.connect(self._engine)
            self._open += [near, far]
            for source, target in ((near, far), (far, near)):
                threading.Thread(target=self._copy, args=(source, target), daemon=True).start()

    def _copy(self, source: socket.socket, target: socket.socket) -> None:
        try:
            while data := source.recv(1 << 16):
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)
        except OSError:
            return

    def cut(self) -> None:
        for one in self._open:
            try:
                one.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue
        for one in self._open:
            one.close()


class Running:
    """A sandboxed run that goes on, and what is seen of it from outside."""

    def __init__(self, command, environment, engine, folder: Path, phase: str) -> None:
        (folder / "code").mkdir()
        (folder / "code" / "train.py").write_text(SCRIPT)
        for path in (folder / "code", folder):
            path.chmod(0o755)
        self.run = folder / "runs" / "run"
        self.engine = engine
        self._output = folder / "output"
        self._phase = phase
        self.volumes: set[str] = set()  # of containers that were seen
        self.proxy = Proxy(folder / "engine.sock", engine_socket())
        line = [*command, "sandbox", "code/train.py", "--gpus", "2", "--clock", "modelled", "--steps", "all"]
        line += ["--requirements", str(REQUIREMENTS), "--name", "run", "--no-tui"]
        line += ["--", "5" if phase == "end" else "1000000"]
        with open(self._output, "wb") as output:
            self.process = subprocess.Popen(
                line,
                cwd=folder,
                env=environment | {"DOCKER_HOST": f"unix://{folder / 'engine.sock'}"},
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def shown(self) -> str:
        return self._output.read_text(errors="replace")

    def containers(self):
        label = f"org.phantora.run={self.run}"
        found = self.engine.containers.list(all=True, filters={"label": label}, ignore_removed=True)
        mounts = [mount for one in found for mount in one.attrs["Mounts"]]
        self.volumes |= {mount["Name"] for mount in mounts if mount["Type"] == "volume"}
        return found

    def processes(self) -> dict[str, list[int]]:
        """Pids on this machine of the run's core and ranks."""
        found: dict[str, list[int]] = {"core": [], "rank": []}
        for container in self.containers():
            try:
                rows = container.top()["Processes"]
            except APIError:  # not started yet, or gone
                continue
            commands = {row[1]: row[-1] for row in rows}
            for row in rows:
                if "phantora-core" in row[-1] and "docker-init" not in row[-1]:
                    found["core"].append(int(row[1]))
                elif "zygote" in row[-1] and "zygote" in commands.get(row[2], ""):
                    found["rank"].append(int(row[1]))
        return found

    def wait_for(self, what: str, look):
        deadline = time.monotonic() + WAIT_S
        while not (found := look()):
            assert time.monotonic() < deadline, f"{what} did not come.\n{self.shown()}"
            time.sleep(0.05)
        return found

    def wait_for_phase(self) -> None:
        if self._phase == "start":
            self.wait_for("the container", self.containers)
        else:
            self.wait_for(
                "the phase", lambda: f"{'at' if self._phase == 'end' else 'in'} the {self._phase}" in self.shown()
            )


def engine_socket() -> str:
    host = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock")
    if not host.startswith("unix://"):
        pytest.skip("the Engine is not behind a local socket")
    return host.removeprefix("unix://")


def kill_process(running: Running, name: str) -> bool:
    """Kills one of the run's processes; False where the run ended before there was one to kill."""
    running.wait_for(name, lambda: running.process.poll() is not None or running.processes()[name])
    for pid in running.processes()[name][-1:]:
        os.kill(pid, signal.SIGKILL)
        return True
    return False


def kill_container(running: Running) -> bool:
    try:
        running.containers()[0].kill()
    except (APIError, IndexError):
        return False
    return True


# Who is killed, how, and the exit code. A run that is over when it is killed ends as it would have.
VICTIMS = {
    "the CLI by SIGINT": (lambda running: running.process.send_signal(signal.SIGINT) or True, 130),
    "the CLI by SIGTERM": (lambda running: running.process.send_signal(signal.SIGTERM) or True, 130),
    "the CLI by SIGKILL": (lambda running: running.process.kill() or True, -signal.SIGKILL),
    "the container": (kill_container, 3),
    "the core": (lambda running: kill_process(running, "core"), 5),
    "a rank": (lambda running: kill_process(running, "rank"), 1),
    "the connection": (lambda running: running.proxy.cut() or True, 3),
}


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("victim", VICTIMS)
def test_kill(victim, phase, phantora_command, sandbox_environment, docker_engine, tmp_path):
    kill, expected = VICTIMS[victim]
    running = Running(phantora_command, sandbox_environment, docker_engine, tmp_path, phase)
    try:
        running.wait_for_phase()
        running.containers()
        if victim == "the container" and phase == "start":
            running.wait_for("a container that runs", lambda: any(c.status == "running" for c in running.containers()))
        killed = kill(running)
        code = running.process.wait(WAIT_S)
        assert code == expected or (phase == "end" and code == 0), f"exit {code}\n{running.shown()}"
        assert killed or code == 0, running.shown()
        assert "Traceback" not in running.shown(), running.shown()
        if code >= 0:
            assert "phantora: " in running.shown().splitlines()[-1], running.shown()
        # A container that runs ends and goes by itself; one that its launcher could not start waits for the next one.
        running.wait_for("the end of it", lambda: all(one.status == "created" for one in running.containers()))
        if running.containers():
            assert code in (-signal.SIGKILL, 3) and phase == "start"
            stale.remove(docker_engine)
    finally:
        running.process.kill()
        running.process.wait()
        running.proxy.cut()
    assert running.containers() == []
    assert running.volumes.isdisjoint(volume.id for volume in docker_engine.volumes.list())
    assert not list(running.run.rglob("*.sock"))
    left = {path.lstat().st_uid for path in [running.run, *running.run.rglob("*")]}
    assert left == {os.getuid()} or code == -signal.SIGKILL, left
