"""What the package says about itself, and that its host side works without torch."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def project() -> dict:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_distribution_and_command_names(project):
    assert project["project"]["name"] == "phantora-sim"
    assert project["project"]["scripts"] == {"phantora": "phantora.cli:main"}


def test_torch_is_only_in_the_local_extra(project):
    assert not [d for d in project["project"]["dependencies"] if d.startswith("torch")]
    assert [d for d in project["project"]["optional-dependencies"]["local"] if d.startswith("torch")]


def test_test_group_is_pinned(project):
    assert all("==" in requirement for requirement in project["dependency-groups"]["test"])


def test_every_mapped_package_exists(project):
    for source in project["tool"]["scikit-build"]["wheel"]["packages"].values():
        assert (ROOT / source).is_dir(), source


@pytest.mark.parametrize("module", ["phantora.cli", "phantora.sandbox"])
def test_host_side_imports_neither_torch_nor_textual_nor_docker(module):
    code = (
        f"import {module}, sys; "
        "bad = [m for m in ('torch', 'textual', 'docker', 'phantora_tui') if m in sys.modules]; "
        "sys.exit(', '.join(bad) or 0)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


def test_licence_is_apache():
    text = (ROOT / "LICENSE").read_text()
    assert "Apache License" in text
    assert "END OF TERMS AND CONDITIONS" in text
