"""Records streams/ again, after a change of the event format: real runs, shortened to what a view needs.

    python tests/golden/record_streams.py

Real times differ from one recording to the next, so the pictures have to be made again too (test_pictures.py).
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from phantora_runtime.viewers import line_type

STREAMS = Path(__file__).with_name("streams")
LLAMA = Path(__file__).resolve().parents[2] / "examples" / "llama_fsdp.py"
OUT_OF_MEMORY = """
import torch
model = torch.nn.Linear(1024, 1024, device="cuda")
optimizer = torch.optim.SGD(model.parameters())
try:
    torch.empty(200 << 30, dtype=torch.uint8, device="cuda")
except torch.OutOfMemoryError:
    print("caught")
kept = []
while True:
    kept.append(torch.empty(1 << 30, dtype=torch.uint8, device="cuda"))
    if len(kept) == 2:
        model(torch.ones(8, 1024, device="cuda")).sum().backward()
        optimizer.step()
"""
HANG = """
import os, torch, torch.distributed as dist
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl")
block = torch.ones(1024, device="cuda")
dist.all_reduce(block)
torch.cuda.synchronize()
if dist.get_rank() == 0:
    dist.all_reduce(block)
    torch.cuda.synchronize()
"""
RUNS = {
    "done": (LLAMA, 16, "10"),
    "running": (LLAMA, 16, "30"),
    "oom": (OUT_OF_MEMORY, 1, "all"),
    "hang": (HANG, 2, "all"),
}


def main() -> None:
    """Entry point."""
    for name, (script, gpus, steps) in RUNS.items():
        with tempfile.TemporaryDirectory() as folder:
            lines = record(Path(folder), script, gpus, steps)
        if name == "running":
            lines = cut(lines)
        (STREAMS / f"{name}.jsonl").write_bytes(b"".join(shortened(lines)))


def record(folder: Path, script: Path | str, gpus: int, steps: str) -> list[bytes]:
    """Runs a script, or the text of one, and returns the lines of its event stream."""
    if isinstance(script, str):
        (folder / "script.py").write_text(script)
        script = folder / "script.py"
    command = [sys.executable, "-m", "phantora", "run", str(script), "--gpus", str(gpus), "--steps", steps, "--quiet"]
    command += ["--clock", "modelled", "--no-tui", "--out", str(folder / "run")]
    command += ["--", "--steps", steps] if script is LLAMA else []
    subprocess.run(command, check=False, cwd=folder)  # an exit code tells the verdict
    return (folder / "run" / "events.jsonl").read_bytes().splitlines(keepends=True)


def cut(lines: list[bytes]) -> list[bytes]:
    """Ends in the middle of the run: at the first state of the ranks after a dozen steps."""
    steps = [place for place, line in enumerate(lines) if line_type(line) == "step"]
    after = (place for place in range(steps[11], len(lines)) if line_type(lines[place]) == "ranks")
    return lines[: next(after) + 1]


def shortened(lines: list[bytes]) -> list[bytes]:
    """Of the lines that replace their forerunner the last two: shares are of the time between them."""
    left = {"ranks": 2, "kernels": 1, "waiting": 1, "details": 1}
    kept: list[bytes] = []
    for line in reversed(lines):
        kind = line_type(line)
        if left.get(kind, 1) > 0:
            kept.append(line)
        if kind in left:
            left[kind] -= 1
    return kept[::-1]


if __name__ == "__main__":
    main()
