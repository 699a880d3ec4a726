"""The folder of library names that all point at the shim (libcudart.so.13, libcublas.so.13, ...).

Its entries are symbolic links. A wheel cannot carry links, and copies would load a second shim beside the first; so the
wheel has a list of the names, and the links are made where they are first needed.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path

SHIM = "libphantora_shim.so"
LIST = "stubs.txt"
FOLDER = "stubs"


def names(native: Path) -> list[str]:
    """Returns the library names that the shim of this native folder stands in for."""
    return (native / LIST).read_text(encoding="utf-8").split()


def with_stubs(native: Path) -> Path:
    """Returns a native folder that has the links: the given one, or where it cannot be written one that mirrors it.

    Args:
        native: A folder with the shim, the core and the list of names.
    """
    if _complete(native):
        return native
    try:
        _link(native, native)
        return native
    except OSError:  # installed by another user, or read-only
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "phantora"
        mirror = cache / f"native-{_identity(native)}"
        if not (mirror / FOLDER).is_dir():
            mirror.mkdir(parents=True, exist_ok=True)
            for file in native.iterdir():
                if file.is_file() and not (mirror / file.name).is_symlink():
                    (mirror / file.name).symlink_to(file)
            _link(native, mirror)
        return mirror


def _complete(native: Path) -> bool:
    """An upgrade may bring names that the links of the version before do not have."""
    folder = native / FOLDER
    return folder.is_dir() and (not (native / LIST).exists() or set(os.listdir(folder)) >= set(names(native)))


def _identity(native: Path) -> str:
    state = (native / SHIM).stat()
    return hashlib.sha256(f"{native} {state.st_size} {state.st_mtime_ns}".encode()).hexdigest()[:16]


def _link(native: Path, where: Path) -> None:
    """Makes the folder under another name first, so that two starts at once never see half of it."""
    with tempfile.TemporaryDirectory(prefix=".stubs-", dir=where) as scratch:
        fresh = Path(scratch) / FOLDER
        fresh.mkdir(mode=0o755)
        for name in names(native):
            (fresh / name).symlink_to(Path("..") / SHIM)
        if (where / FOLDER).is_dir():
            for link in fresh.iterdir():
                link.replace(where / FOLDER / link.name)
            return
        try:
            fresh.rename(where / FOLDER)
        except OSError:
            if not (where / FOLDER).is_dir():  # else: another start made it meanwhile
                raise
