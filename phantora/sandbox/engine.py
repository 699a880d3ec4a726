"""Connects to the Docker Engine."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from phantora.errors import PhantoraError

_ANSWER_WAIT_S = 30
_WORK_WAIT_S = 600
_ONLY_SANDBOX = frozenset(
    (
        "--image",
        "--base-image",
        "--torch",
        "--requirements",
        "--ca-bundle",
        "--mount",
        "--cpus",
        "--memory",
        "--shm-size",
        "--network",
    )
)


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
        client = docker.from_env(timeout=_ANSWER_WAIT_S)
        client.ping()
    except (DockerException, OSError) as error:
        instead = f"or run without a container: {without_container(command)}"
        if "Permission denied" in str(error) or "PermissionError" in str(error):
            raise PhantoraError(
                "to use the Docker Engine",
                "that its socket is not open to this user",
                f"Join the group that owns it (often `sudo usermod -aG docker $USER`, then log in again), {instead}",
            ) from None
        raise PhantoraError(
            "a Docker Engine", f"none that answers ({_first_line(error)})", f"Start one, {instead}"
        ) from None
    client.api.timeout = _WORK_WAIT_S
    return client


@contextmanager
def named(wanted: str) -> Iterator[None]:
    """What the Engine refuses, and that it goes away, become an error for the user.

    Args:
        wanted: What it is asked for.

    Raises:
        PhantoraError: In place of the Docker SDK's errors (exit code 3).
    """
    from docker.errors import APIError, DockerException
    from urllib3.exceptions import HTTPError

    check = "Check the Docker Engine with `docker info`."
    try:
        yield
    except APIError as error:
        raise PhantoraError(wanted, _first_line(error.explanation or error), check) from None
    except (DockerException, HTTPError, OSError) as error:
        raise PhantoraError(wanted, f"that the Engine went away ({_first_line(error)})", check) from None


def without_container(command: Sequence[str]) -> str:
    """Returns the `phantora run` command line for a `phantora sandbox` one: options that only the latter knows go."""
    words = list(command)
    if "sandbox" not in words:
        return "phantora run SCRIPT"
    rest = words[words.index("sandbox") + 1 :]
    end = rest.index("--") if "--" in rest else len(rest)
    kept: list[str] = []
    position = 0
    while position < end:
        word = rest[position]
        if word.split("=")[0] in _ONLY_SANDBOX:
            position += 1 if "=" in word else 2
            continue
        kept.append(word)
        position += 1
    return shlex.join(["phantora", "run", *kept, *rest[end:]])


def _first_line(error: object) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__
