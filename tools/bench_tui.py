"""What the live view costs: CPU of `phantora top` and of the thread that serves it, against the run's own CPU.

The event stream of a run (recorded now, or --run DIR) is played back through a real server to a real viewer in a
pseudo-terminal, its frames at --rate, which is the core's fastest. The figures are the kernel's accounts of CPU. The
run's CPU per second is that of its report; playing back alone keeps its hundreds of processes from blurring the rest.

    python tools/bench_tui.py --gpus 256 --steps 4
    python tools/bench_tui.py --run runs/llama_fsdp-1 --keys 4
"""

from __future__ import annotations

import argparse
import fcntl
import itertools
import json
import os
import pty
import shutil
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
from pathlib import Path

from phantora_runtime.viewers import EventServer, line_type

_EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "llama_fsdp.py"
_SMALL = ["--size", "tiny", "--layers", "1", "--sequence", "128"]  # 256 ranks in 7 GiB of this machine's memory
_START_S = 5.0  # for the viewer to import and draw its first frame: left out


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path, help="a run directory, instead of a run recorded now")
    parser.add_argument("--gpus", type=int, default=256)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--rate", type=float, default=10.0, help="frames a second")
    parser.add_argument("--frames", type=int, default=300, help="at most so many, the run's last")
    parser.add_argument("--keys", default="", help="typed before measuring: another view, a filter")
    parser.add_argument("--size", default="160x50", help="of the terminal, columns x rows")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="phantora-bench-"))
    try:
        run = options.run or _record(options, folder / "run")
        real = json.loads((run / "report.json").read_text())["real"]
        lines = (run / "events.jsonl").read_bytes().splitlines(keepends=True)
        _report(options, real, *_play(options, lines, folder / "played"))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _record(options: argparse.Namespace, run: Path) -> Path:
    command = [sys.executable, "-m", "phantora", "run", str(_EXAMPLE), "--gpus", str(options.gpus), "--out", str(run)]
    command += ["--steps", str(options.steps), "--no-tui", "--timeout", "2h", "--", *_SMALL]
    subprocess.run(command, check=True, stdout=sys.stderr)
    return run


def _play(options: argparse.Namespace, lines: list[bytes], folder: Path) -> tuple[int, float, float, float]:
    """Returns the frames played, the seconds that took, and the CPU seconds of the viewer and the server."""
    places = [place for place, line in enumerate(lines) if line_type(line) == "ranks"][-options.frames - 1 :]
    if len(places) < 2:
        sys.exit("bench: the run has too few frames")
    (folder / "ranks").mkdir(parents=True)
    (folder / "run.json").write_text("{}")
    with (folder / "events.jsonl").open("wb", buffering=0) as events:
        events.writelines(lines[: places[0] + 1])
        server = EventServer(folder)
        server.start()
        (thread,) = (one for one in threading.enumerate() if one.name == "viewers")
        assert thread.ident is not None
        clock = time.pthread_getcpuclockid(thread.ident)
        viewer, terminal = _start_viewer(folder, options.size)
        try:
            time.sleep(_START_S)
            os.write(terminal, options.keys.encode())
            time.sleep(1.0)
            began, before = time.monotonic(), (_cpu_s(viewer), time.clock_gettime(clock))
            for number, (start, end) in enumerate(itertools.pairwise(places)):
                time.sleep(max(0.0, began + number / options.rate - time.monotonic()))
                events.write(b"".join(lines[start + 1 : end + 1]))
            time.sleep(1.0)
            after, took = (_cpu_s(viewer), time.clock_gettime(clock)), time.monotonic() - began
        finally:
            viewer.kill()
            viewer.wait()
            server.finish()
    return len(places) - 1, took, after[0] - before[0], after[1] - before[1]


def _start_viewer(folder: Path, size: str) -> tuple[subprocess.Popen[bytes], int]:
    """Returns the viewer and the far side of its terminal, which a thread empties."""
    columns, rows = map(int, size.split("x"))
    terminal, near = pty.openpty()
    fcntl.ioctl(near, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    environment = {**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor"}
    command = [sys.executable, "-m", "phantora", "top", str(folder)]
    viewer = subprocess.Popen(command, stdin=near, stdout=near, stderr=near, env=environment, start_new_session=True)
    os.close(near)
    threading.Thread(target=_empty, args=(terminal,), daemon=True).start()
    return viewer, terminal


def _empty(terminal: int) -> None:
    try:
        while os.read(terminal, 1 << 16):
            pass
    except OSError:  # the viewer has gone
        return


def _cpu_s(process: subprocess.Popen[bytes]) -> float:
    """CPU time of all its threads so far, to the nanosecond; /proc/PID/stat counts whole ticks."""
    if process.poll() is not None:
        sys.exit(f"bench: the viewer ended with {process.returncode}")
    return time.clock_gettime(~process.pid << 3 | 2)  # what clock_getcpuclockid(3) makes of a process id


def _report(
    options: argparse.Namespace, real: dict[str, float], frames: int, took: float, viewer: float, server: float
) -> None:
    own = real["cpu_s"] / real["wall_s"]
    cpus = len(os.sched_getaffinity(0))
    print(f"{frames} frames in {took:.1f} s at {options.size}; the run used {own:.2f} of {cpus} CPUs")
    for name, spent in (("viewer", viewer), ("server", server)):
        share, of_all = spent / took / own, spent / took / cpus
        print(f"{name}: {1e3 * spent / took:.1f} ms of CPU a second, {share:.2%} of the run's, {of_all:.2%} of all")


if __name__ == "__main__":
    main()
