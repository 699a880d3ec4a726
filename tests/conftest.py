"""What all tests share."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def pytest_configure() -> None:
    """One set of native files for all tests: the installed package's, else the checkout's."""
    from phantora.errors import PhantoraError
    from phantora.native import native_folder

    with contextlib.suppress(PhantoraError):  # tests that need them say so themselves
        os.environ.setdefault("PHANTORA_NATIVE", str(native_folder()))


@pytest.fixture(scope="session")
def repository() -> Path:
    """The root of the checkout."""
    return ROOT


@pytest.fixture(scope="session")
def phantora_command() -> list[str]:
    """The command under test: the one installed beside this interpreter, else the checkout's own."""
    installed = shutil.which("phantora", path=str(Path(sys.executable).parent))
    return [installed] if installed else [sys.executable, "-m", "phantora"]


@pytest.fixture(scope="session")
def docker_engine():
    """A client of the Docker Engine. Skips where there is none, unless CI says there must be one."""
    import docker
    from docker.errors import DockerException

    try:
        client = docker.from_env(timeout=600)
        client.ping()
    except DockerException as error:
        if os.environ.get("CI"):
            pytest.fail(f"CI needs a Docker Engine: {error}")
        pytest.skip(f"no Docker Engine: {error}")
    yield client
    client.close()
