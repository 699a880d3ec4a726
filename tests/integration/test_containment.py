"""Scripts that nobody should trust, in a real container: each ends its own run with a clear message and the right exit
code, the machine keeps what it had, and nothing is left."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import textwrap
from dataclasses import dataclass
from pathlib import Path

import pytest

from phantora_runtime import files

pytestmark = [pytest.mark.docker, pytest.mark.slow, pytest.mark.timeout(3600)]
REQUIREMENTS = Path(__file__).resolve().parents[2] / "examples" / "requirements.txt"  # the image of test_sandbox.py


@dataclass(frozen=True)
class Hostile:
    """What a script does, and how its run must end."""

    script: str
    says: str  # in what the terminal shows
    code: int = 1
    verdict: str | None = "failed"
    options: tuple[str, ...] = ()
    small_disk: bool = False


# `secret` is a file of another user that is not mounted; `core` finds the simulator.
PRELUDE = """
import ctypes, mmap, os, signal, socket, sys, time
libc = ctypes.CDLL(None, use_errno=True)
secret = {secret!r}
def check(result):
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result
def core():
    for pid in filter(str.isdigit, os.listdir("/proc")):
        if b"phantora-core" in open(f"/proc/{{pid}}/cmdline", "rb").read():
            return int(pid)
"""

SCRIPTS = {
    "network": Hostile("socket.create_connection(('192.0.2.1', 80), timeout=5)", "Network is unreachable"),
    "names": Hostile("socket.getaddrinfo('example.org', 80)", "socket.gaierror"),
    "another user's file": Hostile("open('/etc/shadow').read()", "Permission denied: '/etc/shadow'"),
    "a file of this machine": Hostile("open(secret).read()", "No such file or directory"),
    "writing into the system": Hostile("open('/usr/lib/x', 'w')", "Read-only file system"),
    "writing into its own code": Hostile("open(__file__, 'a')", "Error"),
    "mounting": Hostile("check(libc.mount(b'none', b'/mnt', b'tmpfs', 0, None))", "Operation not permitted"),
    "becoming root": Hostile("os.setuid(0)", "Operation not permitted"),
    "tracing the simulator": Hostile("check(libc.ptrace(16, core(), 0, 0))", "Operation not permitted"),
    "a thread bomb": Hostile(
        "import threading\nwhile True: threading.Thread(target=lambda: signal.pause(), daemon=True).start()",
        "can't start new thread",
    ),
    "memory": Hostile(
        "held = []\nwhile True: held.append(b'x' * (64 << 20))",
        "the memory limit was reached (2.00 GiB). Raise it with --memory",
        options=("--memory", "2g"),
    ),
    "a fork bomb": Hostile(
        "while True:\n    try: os.fork()\n    except OSError: pass",
        "took longer than --timeout", code=124, verdict="stopped",
        options=("--memory", "4g", "--timeout", "15s"),
    ),
    "device memory": Hostile(
        "import torch\nheld = []\nwhile True: held.append(torch.empty(8 << 30, dtype=torch.uint8, device='cuda'))",
        "ran out of device memory", code=4, verdict="oom",
    ),
    "filling /tmp": Hostile(
        "with open('/tmp/x', 'wb') as f:\n    while True: f.write(bytes(16 << 20))", "No space left on device",
        options=("--memory", "2g"),
    ),
    "filling /dev/shm": Hostile(
        "with open('/dev/shm/x', 'wb') as f:\n    while True: f.write(bytes(16 << 20))", "No space left on device",
        options=("--shm-size", "128m"),
    ),
    "filling the disk": Hostile(
        "with open('x', 'wb') as f:\n    while True: f.write(bytes(1 << 20))",
        "more than half of the disk space that was free", small_disk=True,
    ),
    "filling the disk with output": Hostile(
        "while True: print('x' * (1 << 20), file=sys.stderr)",
        "more than half of the disk space that was free", small_disk=True,
    ),
    "links, pipes and folders in place of our files": Hostile(
        "import torch\ntorch.ones(4, device='cuda').sum().item()\n"
        "run = os.environ['PHANTORA_RUN_DIR']\n"
        "for name in ('events.jsonl', 'run.json', 'core.log', 'zygote.log', 'ranks/00000.log'): os.unlink(f'{run}/{name}')\n"
        "for name in ('report.json', 'core_report.json'): os.mkfifo(f'{run}/{name}')\n"
        "for name in ('events.jsonl', 'core.log', 'etc'): os.symlink('/etc', f'{run}/{name}')\n"
        "os.mkdir(f'{run}/run.json')\nos.symlink(secret, f'{run}/zygote.log')\nprint('planted')",
        "ok: 1 x", code=0, verdict="ok",
    ),
    "killing the ranks' parent": Hostile(
        "os.kill(os.getppid(), signal.SIGKILL)\ntime.sleep(1000)", "The ranks' parent process ended with signal 9"
    ),
    "killing the simulator": Hostile(
        "os.kill(core(), signal.SIGKILL)\ntime.sleep(1000)", "the core ended with status -9", code=5
    ),
    "killing the supervisor": Hostile(
        "os.kill(os.getppid(), signal.SIGSTOP)\nos.kill(1, signal.SIGKILL)\n"
        "for pid in filter(str.isdigit, os.listdir('/proc')):\n"
        "    if b'phantora_runtime\\0' in open(f'/proc/{pid}/cmdline', 'rb').read(): os.kill(int(pid), signal.SIGKILL)\n"
        "time.sleep(1000)",
        "killed by signal 9", code=3, verdict=None,
    ),
    "garbage in the segment": Hostile(
        "import random\nnoise = random.Random(3)\n"
        "path = os.environ['PHANTORA_SEGMENT']\n"
        "with open(path, 'r+b') as file:\n"
        "    size = os.fstat(file.fileno()).st_size\n"
        "    with mmap.mmap(file.fileno(), size) as segment:\n"
        "        for at in range(0, size - 4096, 4096): segment[at:at + 512] = noise.randbytes(512)\n"
        "import torch\ntorch.ones(4, device='cuda').sum().item()\ntime.sleep(5)",
        "phantora:",
    ),
    "garbage on the socket": Hostile(
        "import random\nnoise = random.Random(4)\nsent = 0\n"
        "for line in open('/proc/net/unix'):\n"
        "    name = line.split()[-1]\n"
        "    if not name.startswith('@phantora'): continue\n"
        "    with socket.socket(socket.AF_UNIX) as one:\n"
        "        one.connect('\\0' + name[1:])\n"
        "        try: one.sendall(noise.randbytes(1 << 20))\n"
        "        except OSError: pass\n"
        "        sent += 1\n"
        "assert sent, 'no socket of the simulator'\nimport torch\n"
        "print('still there:', torch.ones(4, device='cuda').sum().item())",
        "still there: 4.0", code=0, verdict="ok",
    ),
}  # fmt: skip


def make_small_disk(folder: Path, request) -> Path:
    """Mounts a file system of 200 MB for the time of a test."""
    if os.getuid():
        pytest.skip("only root can mount")
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=200m,mode=755", "none", str(folder)], check=True)
    request.addfinalizer(lambda: subprocess.run(["umount", "-l", str(folder)], check=True))
    return folder


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_hostile_script_ends_its_own_run(
    name, phantora_command, sandbox_environment, docker_engine, tmp_path, request
):
    hostile = SCRIPTS[name]
    secret = tmp_path / "secret"
    secret.write_text("of another user")
    secret.chmod(0o600)
    folder = tmp_path / "code"
    folder.mkdir()
    for parent in (folder, tmp_path):
        parent.chmod(0o755)
    code = textwrap.dedent(PRELUDE).format(secret=str(secret)) + hostile.script + "\n"
    (folder / "hostile.py").write_text(code)
    run = tmp_path / "runs" / "run"
    if hostile.small_disk:
        run = make_small_disk(tmp_path / "disk", request) / "run"
    line = [*phantora_command, "sandbox", "code/hostile.py", "--gpus", "1", "--clock", "modelled", "--timeout", "120s"]
    line += ["--requirements", str(REQUIREMENTS), "--out", str(run), *hostile.options]
    answer = subprocess.run(
        line, cwd=tmp_path, env=sandbox_environment, capture_output=True, text=True, errors="replace", timeout=600
    )
    shown = f"{' '.join(line)}\nexit {answer.returncode}\n{answer.stdout[-2000:]}\n{answer.stderr[-4000:]}"
    assert hostile.says in answer.stdout + answer.stderr, shown
    assert answer.returncode == hostile.code, shown
    if hostile.verdict is not None:
        assert json.loads((run / "report.json").read_text())["verdict"] == hostile.verdict, shown
    # Nothing is left, and nothing was touched.
    assert docker_engine.containers.list(all=True, filters={"label": f"org.phantora.run={run}"}) == []
    assert {path.lstat().st_uid for path in [run, *run.rglob("*")]} == {os.getuid()}
    kinds = {stat.S_IFMT(path.lstat().st_mode) for path in run.rglob("*")}
    assert kinds <= {stat.S_IFREG, stat.S_IFDIR}, kinds
    assert secret.read_text() == "of another user"
    assert (folder / "hostile.py").read_text() == code
    assert [path.name for path in folder.iterdir()] == ["hostile.py"]
    assert files.size(tmp_path) < 1 << 28
