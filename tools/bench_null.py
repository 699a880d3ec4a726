"""What simulation costs: CPU per steady step of a run, against the same launcher under PHANTORA_NULL=1.

The two alternate. CPU is that of the ranks between two of their own steps, and of the core and the supervisor (which
hashes and compresses the op log) between the same steps of rank 0. Everything is real time, read from outside: a rank
leaves one small file a step (bench_null_script.py), whose date is the kernel's.

    python tools/bench_null.py --gpus 8 --size 7b --steps 8 --rounds 2 --json
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

_SCRIPT = Path(__file__).resolve().with_name("bench_null_script.py")
_POLL_S = 0.02
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Cost:
    """Per steady step, in seconds; the sum over all ranks."""

    ranks_cpu_s: float
    core_cpu_s: float
    supervisor_cpu_s: float
    wall_s: float

    @property
    def cpu_s(self) -> float:
        """Ranks and core."""
        return self.ranks_cpu_s + self.core_cpu_s


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpus", type=int, default=8)
    parser.add_argument("--size", default="7b", help="of examples/llama_fsdp.py")
    parser.add_argument("--warmup", type=int, default=2, help="steps left out")
    parser.add_argument("--steps", type=int, default=8, help="steady steps measured")
    parser.add_argument("--rounds", type=int, default=2, help="times that both are run")
    parser.add_argument("--timeout", type=int, default=1800, help="seconds for one run")
    parser.add_argument("--json", action="store_true", help="print JSON on stdout")
    options = parser.parse_args()
    runs: dict[str, list[Cost]] = {"simulated": [], "null": []}
    for turn in range(options.rounds):
        for kind, costs in runs.items():
            cost = measure(options, null=kind == "null")
            costs.append(cost)
            print(f"round {turn + 1}, {_line(kind, cost)}", file=sys.stderr, flush=True)
    middle = {kind: _median(costs) for kind, costs in runs.items()}
    ratio = middle["simulated"].cpu_s / middle["null"].cpu_s
    if options.json:
        result = {
            "gpus": options.gpus,
            "size": options.size,
            "steps": options.steps,
            "cpus": os.cpu_count(),
            "cpu_ratio": ratio,
            "median": {kind: {**asdict(cost), "cpu_s": cost.cpu_s} for kind, cost in middle.items()},
            "runs": {kind: [asdict(cost) for cost in costs] for kind, costs in runs.items()},
        }
        print(json.dumps(result, indent=1))
        return
    for kind, cost in middle.items():
        print(f"median,  {_line(kind, cost)}")
    print(f"ratio of CPU per step (ranks + core): {ratio:.2f}")


def measure(options: argparse.Namespace, null: bool) -> Cost:
    """Runs the script once and returns what a steady step cost."""
    folder = Path(tempfile.mkdtemp(prefix="phantora-bench-"))
    try:
        return _measure(options, null, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _measure(options: argparse.Namespace, null: bool, folder: Path) -> Cost:
    marks = folder / "marks"
    marks.mkdir()
    first, last = options.warmup - 1, options.warmup - 1 + options.steps
    count = last + 2  # one more, so that nothing is at its end when the last mark is made
    command = [sys.executable, "-m", "phantora", "run", str(_SCRIPT), "--gpus", str(options.gpus)]
    command += ["--clock", "modelled", "--steps", "all", "--out", str(folder / "run"), "--quiet", "--no-tui"]
    command += ["--timeout", f"{options.timeout}s", "--env", f"BENCH_MARKS={marks}"]
    command += ["--", "--size", options.size, "--steps", str(count)]
    environment = {key: value for key, value in os.environ.items() if key != "PHANTORA_NULL"}
    if null:
        environment["PHANTORA_NULL"] = "1"
    with (folder / "out").open("w") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out, env=environment, cwd=folder)
        try:
            ours = [_when(process, marks / f"0-{step}", folder) for step in (first, last)]
            process.wait()
        finally:
            process.terminate()
            process.wait()
    if process.returncode != 0:
        _fail(command, folder)
    spent = [
        _nanoseconds(marks / f"{rank}-{last}") - _nanoseconds(marks / f"{rank}-{first}") for rank in range(options.gpus)
    ]
    dates = [[(marks / f"{rank}-{step}").stat().st_mtime for rank in range(options.gpus)] for step in (first, last)]
    return Cost(
        ranks_cpu_s=sum(spent) / 1e9 / options.steps,
        core_cpu_s=(ours[1][0] - ours[0][0]) / options.steps,
        supervisor_cpu_s=(ours[1][1] - ours[0][1]) / options.steps,
        # Under null nothing holds ranks together: from the first to reach the one mark to the last to reach the other
        # would count their spread as well.
        wall_s=statistics.mean(after - before for before, after in zip(*dates, strict=True)) / options.steps,
    )


def _when(process: subprocess.Popen[bytes], mark: Path, folder: Path) -> tuple[float, float]:
    """Waits for a mark; returns the CPU seconds that core and supervisor have used by then."""
    while not mark.exists():
        if process.poll() is not None:
            _fail(process.args, folder)
        time.sleep(_POLL_S)
    core = supervisor = 0.0
    for pid in _descendants(process.pid):
        with contextlib.suppress(OSError, IndexError, ValueError):
            arguments = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
            seconds = (int(fields[11]) + int(fields[12])) / _TICKS
            if arguments[0].endswith(b"phantora-core"):
                core += seconds
            elif arguments[1:3] == [b"-m", b"phantora_runtime"]:
                supervisor += seconds
    return core, supervisor


def _descendants(root: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            parent = int(Path(f"/proc/{int(entry)}/stat").read_text().rpartition(") ")[2].split()[1])
            children.setdefault(parent, []).append(int(entry))
    found = [root]
    for pid in found:
        found += children.get(pid, [])
    return found


def _nanoseconds(mark: Path) -> int:
    return int(mark.read_text())


def _fail(command: object, folder: Path) -> None:
    sys.exit(f"bench: the run failed: {command}\n{(folder / 'out').read_text()[-4000:]}")


def _median(costs: list[Cost]) -> Cost:
    return Cost(*(statistics.median(values) for values in zip(*(asdict(cost).values() for cost in costs), strict=True)))


def _line(kind: str, cost: Cost) -> str:
    return (
        f"{kind:9}: {cost.cpu_s:.3f} CPU s a step (ranks {cost.ranks_cpu_s:.3f}, core {cost.core_cpu_s:.3f}; "
        f"supervisor {cost.supervisor_cpu_s:.3f} beside), {cost.wall_s:.3f} s wall a step"
    )


if __name__ == "__main__":
    main()
