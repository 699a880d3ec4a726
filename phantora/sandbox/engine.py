"""Connects to the Docker Engine."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

from phantora.errors import PhantoraError


def connect(command: Sequence[str] = ()) -> Any:
    """Returns a client of the Engine that DOCKER_HOST or the default socket names.

    Args:
        command: The user's command line, to name the one that needs no Docker.

    Raises:
        PhantoraError: No Engine answers (exit code 3).
    """
    try:
        import docker
        from docker.errors import DockerException
    except ImportError:
        raise PhantoraError(
            "the Docker SDK for Python", "no module 'docker'", "Install it with: pip install docker"
        ) from None
    try:
        client = docker.from_env(timeout=600)
        client.ping()
    except DockerException as error:
        raise PhantoraError(
            "a Docker Engine",
            f"none that answers ({_first_line(error)})",
            f"Start one, or run without a container: {without_container(command)}",
        ) from None
    return client


def without_container(command: Sequence[str]) -> str:
    """Returns the `phantora run` command line that corresponds to a `phantora sandbox` one."""
    words = list(command)
    if "sandbox" not in words:
        return "phantora run SCRIPT"
    where = words.index("sandbox")
    return shlex.join(["phantora", "run", *words[where + 1 :]])


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__
