"""Installs torch without NVIDIA's libraries into the interpreter that runs this file.

Nothing on a simulated GPU calls NVIDIA's libraries: the preloaded shim answers in their place. Installed they are
more than 4 GB. So torch itself goes in with `--no-deps`, then what else it needs; the NVIDIA packages are satisfied
by stub distributions that consist of metadata alone. Without these, the next `pip install` of anything that depends
on torch would fetch the libraries after all. Triton goes in for real: frameworks import it without asking.

Used in image builds, by `make demo` and by `make test`. Standard library and pip only.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import re
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

from pip._vendor.packaging.requirements import Requirement
from pip._vendor.packaging.utils import canonicalize_name

STUBBED = re.compile(r"^(nvidia-.*|cuda-.*)$")
STUB_INSTALLER = "phantora-stub"


def pip_install(*arguments: str) -> None:
    """Runs pip in this interpreter; a failure ends the program with pip's own message and exit code."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *arguments]
    result = subprocess.run(command)
    if result.returncode:
        print(f"install_torch: failed: {' '.join(command)}", file=sys.stderr)
        sys.exit(result.returncode)


def installed_version(name: str) -> str | None:
    """The installed version of a distribution, or None."""
    importlib.invalidate_caches()
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def active_requirements(distribution: str) -> list[Requirement]:
    """The requirements of an installed distribution that hold on this machine, extras left out."""
    lines = importlib.metadata.requires(distribution) or []
    requirements = [Requirement(line) for line in lines]
    return [r for r in requirements if r.marker is None or r.marker.evaluate({"extra": ""})]


def stub_version(requirement: Requirement) -> str:
    """A version that satisfies the requirement: the one it pins, else the lowest it names."""
    named = [s.version for s in requirement.specifier if s.operator in ("==", "~=", ">=")]
    for version in [*named, "0"]:
        if requirement.specifier.contains(version, prereleases=True):
            return version
    raise SystemExit(f"install_torch: no stub version satisfies {requirement}")


def write_stub(requirement: Requirement, site_packages: Path) -> None:
    """Writes a distribution that has metadata and no files, unless something of that name is installed."""
    if installed_version(requirement.name):
        return
    version = stub_version(requirement)
    folder = site_packages / f"{re.sub(r'[-.]+', '_', requirement.name)}-{version}.dist-info"
    folder.mkdir(exist_ok=True)
    extras = "".join(f"Provides-Extra: {extra}\n" for extra in sorted(requirement.extras))
    (folder / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {requirement.name}\nVersion: {version}\n"
        f"Summary: Stands in for the real package, which no simulated GPU needs\n{extras}"
    )
    (folder / "INSTALLER").write_text(f"{STUB_INSTALLER}\n")
    (folder / "RECORD").write_text("".join(f"{folder.name}/{name},,\n" for name in ("METADATA", "INSTALLER", "RECORD")))


def names_in(requirements_file: Path) -> set[str]:
    """The canonical names of the distributions a requirements file lists."""
    names: set[str] = set()
    for line in requirements_file.read_text().splitlines():
        match = re.match(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)", line)
        if match:
            names.add(canonicalize_name(match[1]))
    return names


def main() -> None:
    """Installs torch, the stubs, torch's other needs and the user's requirements, in that order."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--torch", required=True, metavar="VERSION")
    parser.add_argument("--requirements", type=Path, metavar="FILE")
    options = parser.parse_args()
    site_packages = Path(sysconfig.get_path("purelib"))
    wanted = names_in(options.requirements) if options.requirements else set()

    installed = installed_version("torch")
    if installed is None or installed.split("+")[0] != options.torch:
        pip_install("--no-deps", f"torch=={options.torch}")
    rest = []
    for requirement in active_requirements("torch"):
        name = canonicalize_name(requirement.name)
        if STUBBED.match(name) and name not in wanted:
            write_stub(requirement, site_packages)
        else:
            rest.append(f"{requirement.name}{requirement.specifier}")
    if rest:
        pip_install(*rest)
    if options.requirements:
        with tempfile.TemporaryDirectory() as folder:
            constraint = Path(folder) / "constraint.txt"
            constraint.write_text(f"torch=={installed_version('torch')}\n")
            pip_install("--requirement", str(options.requirements), "--constraint", str(constraint))


if __name__ == "__main__":
    main()
