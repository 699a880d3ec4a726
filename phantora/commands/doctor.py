"""`phantora doctor`: what this machine has and lacks. Changes nothing."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import typer

from phantora import native, profile_store, resolve
from phantora.errors import PhantoraError
from phantora.options import RunOptions
from phantora_runtime.exit_codes import ExitCode


def doctor() -> None:
    """Check what `phantora run` and `phantora sandbox` need on this machine."""
    good = True

    def line(ok: bool, what: str, detail: str) -> None:
        typer.echo(f"{'ok  ' if ok else 'MISS'} {what}: {detail}")

    try:
        line(True, "native files", str(native.native_folder()))
    except PhantoraError as error:
        line(False, "native files", str(error))
        good = False
    try:
        line(True, "profiles", str(profile_store.profiles_folder()))
    except PhantoraError as error:
        line(False, "profiles", str(error))
        good = False
    python = resolve.interpreter(RunOptions())
    torch = _torch_version(python)
    line(torch is not None, "torch", f"{torch} in {python}" if torch else f"none in {python}; see --python")
    good = good and torch is not None
    compiler = shutil.which(os.environ.get("CXX", "g++"))
    line(
        compiler is not None,
        "C++ compiler",
        compiler or "none; the torch adaptor cannot be built, small ops read zeros",
    )
    docker = Path("/var/run/docker.sock").exists() or bool(os.environ.get("DOCKER_HOST"))
    line(docker, "Docker", "socket found" if docker else "none; `phantora run` works without it")
    if not good:
        raise typer.Exit(int(ExitCode.ENVIRONMENT))


def _torch_version(python: Path) -> str | None:
    code = "import importlib.metadata as m; print(m.version('torch'))"
    try:
        done = subprocess.run([str(python), "-c", code], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None


def register(app: typer.Typer) -> None:
    """Adds the verb."""
    app.command()(doctor)
