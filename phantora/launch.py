"""Starts the runtime for a prepared run directory, and passes signals and the exit code on."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from importlib import resources
from pathlib import Path
from typing import Any

from phantora import profile_store, resolve, run_directory
from phantora.errors import PhantoraError
from phantora.native import native_folder
from phantora.options import RunOptions
from phantora.terminal import Terminal, pump
from phantora_runtime import processes
from phantora_runtime.exit_codes import ExitCode

_FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_WITH_REPORT = (ExitCode.DONE, ExitCode.SCRIPT_FAILED, ExitCode.VERDICT)


def write_run_json(folder: Path, content: dict[str, Any]) -> None:
    """Writes run.json, and beside it the user's own tables, which a container would not see where they are.

    Where that fails, nothing of the run is left.

    Raises:
        PhantoraError: The disk is full, or the like.
    """
    try:
        for key, value in content["core"].items():
            if key.startswith("table.") and os.path.isabs(value):
                copy = folder / f"{key}.txt"
                shutil.copyfile(value, copy)
                content["core"][key] = str(copy)
        (folder / "run.json").write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        run_directory.discard(folder)
        raise PhantoraError(
            f"to write into {folder}", str(error.strerror), "Make room, or choose another place with --out."
        ) from None


def runtime_parent() -> Path:
    """Returns the folder that holds the package phantora_runtime."""
    return Path(str(resources.files("phantora_runtime"))).parent


def run(options: RunOptions) -> int:
    """Runs a script in place, without a container. Returns the exit code.

    Raises:
        PhantoraError: The options or this machine do not allow it.
    """
    content = resolve.run_json(options)
    native = native_folder()
    python = content["launch"]["python"]
    _check_interpreter(python)
    folder = run_directory.make(options)
    write_run_json(folder, content)
    environment = dict(os.environ)
    environment["PHANTORA_NATIVE"] = str(native)
    environment["PHANTORA_PROFILES"] = str(profile_store.profiles_folder())
    environment["PHANTORA_USER_PYTHONPATH"] = os.environ.get("PYTHONPATH", "")
    environment["PYTHONPATH"] = str(runtime_parent())
    environment["PYTHONDONTWRITEBYTECODE"] = "1"
    processes.become_subreaper()
    code = run_to_end([python, "-m", "phantora_runtime", str(folder)], environment, Terminal(folder, options))
    if code < 0:
        processes.kill_descendants()  # nobody else is left to do it
        if -code in _FORWARDED:
            print("phantora: stopped: The run was interrupted before it began.", file=sys.stderr)
            return int(ExitCode.INTERRUPTED)
        raise PhantoraError(
            "the run's supervisor to end by itself",
            f"it killed by {signal.Signals(-code).name}",
            "Is there enough memory?" if -code == signal.SIGKILL else "Please report this.",
            ExitCode.ENVIRONMENT if -code == signal.SIGKILL else ExitCode.OUR_BUG,
        )
    if code == ExitCode.USAGE:
        run_directory.discard(folder)  # refused before anything ran
    if code in _WITH_REPORT and not (folder / "report.json").exists():
        raise PhantoraError(f"a report in {folder}", "none", "Did the script remove it?")
    return code


def _check_interpreter(python: str) -> None:
    """Before there is a run directory: whatever else a program is, it cannot print this."""
    probe = "import sys; print(sys.implementation.name, sys.version_info >= (3, 10))"
    try:
        said = subprocess.run([python, "-c", probe], capture_output=True, text=True, errors="replace").stdout.split()
    except OSError as error:
        said = [str(error.strerror)]
    if said != ["cpython", "True"]:
        found = "an older one, or something else" if not said else " ".join(said)
        raise PhantoraError(
            f"a CPython 3.10 or later at {python}", found[:200], "Name another interpreter with --python."
        )


def run_to_end(command: list[str], environment: dict[str, str], terminal: Terminal) -> int:
    """Starts a program that reports its own end and waits for it; a negative number means the signal that ended it.

    Signals are passed on; a Ctrl-C that the terminal sent to both is told once only by the program.
    """
    process: subprocess.Popen[bytes] | None = None
    early: list[int] = []

    def forward(number: int, _frame: object) -> None:
        if process is None:
            early.append(number)
        else:
            process.send_signal(number)
        terminal.leave()

    previous = {number: signal.signal(number, forward) for number in _FORWARDED}
    try:
        where = subprocess.PIPE if terminal.takes_output else None
        process = subprocess.Popen(command, env=environment, stdout=where, stderr=where)
        for number in early:
            process.send_signal(number)
        pumps = [
            pump(os.dup(stream.fileno()), descriptor, terminal)
            for descriptor, stream in ((1, process.stdout), (2, process.stderr))
            if stream is not None
        ]

        def wait() -> int:
            assert process is not None
            code = process.wait()
            for thread in pumps:
                thread.join(timeout=5.0)
            return code

        return terminal.run(wait, process.send_signal)
    finally:
        if process is not None:
            for stream in (process.stdout, process.stderr):
                if stream is not None:
                    stream.close()
        for number, handler in previous.items():
            signal.signal(number, handler)
