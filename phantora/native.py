"""Finds the native files: the shim, the folder of library names that point at it, and the core."""

from __future__ import annotations

import os
from importlib import resources
from pathlib import Path

from phantora.errors import PhantoraError
from phantora.stubs import with_stubs

FILES = ("libphantora_shim.so", "phantora-core")


def candidates() -> list[Path]:
    """Returns the folders looked at, best first: the installed package, $PHANTORA_NATIVE, a checkout's build."""
    package = Path(str(resources.files("phantora")))
    folders = [package / "_native"]
    if os.environ.get("PHANTORA_NATIVE"):
        folders.append(Path(os.environ["PHANTORA_NATIVE"]))
    folders.append(package.parent / "build" / "native")
    return folders


def native_folder() -> Path:
    """Returns the first folder that holds all native files.

    Raises:
        PhantoraError: No folder does (exit code 3).
    """
    for folder in candidates():
        if all((folder / name).exists() for name in FILES):
            return with_stubs(folder.resolve())
    raise PhantoraError(
        f"the native files ({', '.join(FILES)})",
        "none in " + ", ".join(str(folder) for folder in candidates()),
        "Install phantora-sim again, or in a checkout run `make native`.",
    )
