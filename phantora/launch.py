"""Starts the runtime for a prepared run directory, and passes signals and the exit code on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from importlib import resources
from pathlib import Path
from typing import Any

from phantora import profile_store, resolve, run_directory
from phantora.errors import PhantoraError
from phantora.native import native_folder
from phantora.options import RunOptions


def prepare(options: RunOptions) -> tuple[Path, dict[str, Any]]:
    """Resolves the options and makes the run directory; the caller may change the content, then writes run.json.

    Returns:
        The run directory, absolute, and the content of run.json.

    Raises:
        PhantoraError: An option or this machine does not allow it; no directory is left then.
    """
    content = resolve.run_json(options)
    return run_directory.make(options), content


def write_run_json(folder: Path, content: dict[str, Any]) -> None:
    """Writes run.json."""
    (folder / "run.json").write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


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
    folder = run_directory.make(options)
    write_run_json(folder, content)
    environment = dict(os.environ)
    environment["PHANTORA_NATIVE"] = str(native)
    environment["PHANTORA_PROFILES"] = str(profile_store.profiles_folder())
    environment["PHANTORA_USER_PYTHONPATH"] = os.environ.get("PYTHONPATH", "")
    environment["PYTHONPATH"] = str(runtime_parent())
    environment["PYTHONDONTWRITEBYTECODE"] = "1"
    python = content["launch"]["python"]
    try:
        process = subprocess.Popen([python, "-m", "phantora_runtime", str(folder)], env=environment)
    except OSError as error:
        raise PhantoraError(
            f"to start {python}", str(error.strerror), "Give another interpreter with --python."
        ) from None
    return wait(process)


def wait(process: subprocess.Popen[bytes]) -> int:
    """Waits for the runtime; it reports its own end.

    Signals are passed on; a Ctrl-C that the terminal sent to both is told once only by the runtime.
    """

    def forward(number: int, _frame: object) -> None:
        process.send_signal(number)

    previous = {number: signal.signal(number, forward) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        code = process.wait()
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
    return 128 - code if code < 0 else code
