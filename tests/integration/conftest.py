"""A real Docker Engine and a real base image."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def sandbox_environment(docker_engine) -> dict[str, str]:
    """The environment in which `phantora sandbox` can build its image: base image and certificates preset."""
    environment = dict(os.environ)
    if "PHANTORA_BASE_IMAGE" not in environment:
        script = Path(__file__).with_name("base_image.sh")
        result = subprocess.run(["sh", str(script)], capture_output=True, text=True, timeout=900)
        if result.returncode:
            pytest.fail(f"sh {script}\n{result.stderr}")
        environment["PHANTORA_BASE_IMAGE"] = result.stdout.strip()
    bundle = next((os.environ[n] for n in ("PIP_CERT", "SSL_CERT_FILE") if os.environ.get(n)), None)
    if bundle and "PHANTORA_CA_BUNDLE" not in environment:
        environment["PHANTORA_CA_BUNDLE"] = bundle
    return environment
