"""The live view in a real terminal, driven by keys through tmux."""

from __future__ import annotations

import importlib.util
import os
import shlex
import shutil
import subprocess
import time
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
STREAMS = Path(__file__).resolve().parents[1] / "golden" / "streams"

QUIET = """
import os, torch, torch.distributed as dist
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl")
block = torch.ones(8, device="cuda")
while True:
    dist.all_reduce(block)
    torch.cuda.synchronize()
"""


class Terminal:
    """A tmux session of its own server."""

    def __init__(self, folder: Path, width: int = 100, height: int = 32) -> None:
        self._tmux = ["tmux", "-S", str(folder / "tmux")]
        environment = {**os.environ, "TERM": "xterm-256color", "PS1": "$ "}
        size = ["-x", str(width), "-y", str(height)]
        subprocess.run([*self._tmux, "new-session", "-d", *size, "sh"], check=True, env=environment, cwd=folder)

    def type(self, text: str, *keys: str) -> None:
        subprocess.run([*self._tmux, "send-keys", "-l", text], check=True)
        if keys:
            subprocess.run([*self._tmux, "send-keys", *keys], check=True)

    def screen(self) -> str:
        return subprocess.run([*self._tmux, "capture-pane", "-p"], check=True, capture_output=True, text=True).stdout

    def wait_for(self, text: str) -> str:
        until = time.monotonic() + 120
        while time.monotonic() < until:
            if text in (screen := self.screen()):
                return screen
            time.sleep(0.2)
        pytest.fail(f"'{text}' never came:\n{self.screen()}")

    def close(self) -> None:
        subprocess.run([*self._tmux, "kill-server"], check=False)


@pytest.fixture
def terminal(tmp_path):
    if shutil.which("tmux") is None:
        if os.environ.get("CI"):
            pytest.fail("CI needs tmux")
        pytest.skip("no tmux")
    made = Terminal(tmp_path)
    yield made
    made.close()


def finished_run(folder: Path, stream: str) -> None:
    (folder / "ranks").mkdir(parents=True)
    (folder / "run.json").write_text("{}")
    shutil.copy(STREAMS / f"{stream}.jsonl", folder / "events.jsonl")
    (folder / "ranks" / "00002.log").write_text("rank two says hello\n")


def test_a_finished_run_is_looked_through(terminal, phantora_command, tmp_path):
    finished_run(tmp_path / "runs" / "llama", "done")
    terminal.type(f"{shlex.join(phantora_command)} top llama; echo left with $?", "Enter")
    assert "16 × NVIDIA H100" in terminal.wait_for("✔ ok")
    terminal.type("4")
    terminal.wait_for("flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel")
    terminal.type("1")
    terminal.wait_for("16 lines")
    terminal.type("jj", "Enter")
    assert "allocations" in terminal.wait_for("rank two says hello")
    terminal.type("?")
    terminal.wait_for("Collectives that have not begun")
    terminal.type("q")
    terminal.wait_for("left with 0")


@pytest.mark.torch
def test_a_run_is_watched_left_and_comes_to_its_end(terminal, phantora_command, tmp_path):
    if importlib.util.find_spec("torch") is None:  # not imported: torch alone finds no CUDA here
        pytest.skip("no torch in this interpreter")
    (tmp_path / "quiet.py").write_text(QUIET)
    line = [*phantora_command, "run", "quiet.py", "--gpus", "2", "--steps", "all", "--name", "watched"]
    terminal.type(f"{shlex.join(line)}; echo ended with $?", "Enter")
    terminal.wait_for("▶ running")
    assert (tmp_path / "runs" / "watched" / "events.sock").is_socket()
    terminal.type("q")
    terminal.wait_for("phantora top runs/watched")
    terminal.wait_for("phantora: step")  # the line of progress
    subprocess.run([*terminal._tmux, "send-keys", "C-c"], check=True)
    screen = terminal.wait_for("ended with 130")
    assert "phantora: stopped: The run was interrupted." in screen
    assert not (tmp_path / "runs" / "watched" / "events.sock").exists()


def test_without_a_terminal_there_is_no_live_view(phantora_command, tmp_path):
    finished_run(tmp_path / "runs" / "llama", "done")
    answer = subprocess.run(
        [*phantora_command, "top", "llama"], cwd=tmp_path, capture_output=True, text=True, stdin=subprocess.DEVNULL
    )
    assert (answer.returncode, answer.stdout) == (2, "")
    assert "Wanted a terminal" in answer.stderr and "phantora report llama" in answer.stderr
