"""Where the script may write: overlays kept in the run directory, above folders of this machine that are never written.

RUNDIR/files/ mirrors the paths inside the container: what the script writes to /home/me/code/out.txt lies in
RUNDIR/files/home/me/code/out.txt, and stays.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from phantora.sandbox.mounts import Mount
from phantora_runtime.settings import FILES

_SCRATCH = ".overlay"  # the kernel's own, on the same disk as the files
_NOT_IN_OPTIONS = frozenset(",:\\\"'")  # what separates mount options
_MOST_FOLDERS = 20_000


@dataclass(frozen=True)
class Overlay:
    """A writable view of a folder.

    Attributes:
        lower: The folder, never written; also its path inside.
        upper: What was written.
        scratch: The kernel's work folder.
    """

    lower: Path
    upper: Path
    scratch: Path

    def options(self) -> dict[str, str]:
        """The options of Docker's local volume driver; the volume ends with its container."""
        layers = f"lowerdir={self.lower},upperdir={self.upper},workdir={self.scratch}"
        return {"type": "overlay", "device": "overlay", "o": layers}

    def read_only(self) -> Mount:
        """What stands in for it where the Engine cannot mount overlays."""
        return Mount(self.lower, str(self.lower))


def overlay(run: Path, lower: Path, owner: tuple[int, int]) -> Overlay | None:
    """Prepares the overlay of a folder for a user; None where its path cannot be written in mount options.

    Where that user is not the caller (root), the folders of the lower layer are made ahead in the upper one, as the
    user's, so that the script can write into them; of very large trees the first 20,000.

    Raises:
        OSError: The run directory cannot be written.
    """
    if _NOT_IN_OPTIONS & set(f"{lower}{run}"):
        return None
    upper = mirrored(run, lower, owner)
    scratch = run / _SCRATCH
    scratch.mkdir(exist_ok=True)
    os.chown(scratch, *owner)
    if owner[0] != os.getuid():
        left = _MOST_FOLDERS
        for parent, folders, _ in os.walk(lower):
            here = upper / Path(parent).relative_to(lower)
            if here == run or left <= 0:
                break
            folders[:] = [name for name in folders[:left] if not os.path.islink(os.path.join(parent, name))]
            folders[:] = [name for name in folders if Path(parent, name) != run]
            left -= len(folders)
            for name in folders:
                _make(here / name, owner)
    return Overlay(lower, upper, scratch)


def mirrored(run: Path, path: Path, owner: tuple[int, int]) -> Path:
    """Makes the place in the run directory for what is written to `path` inside, and returns it."""
    place = run / FILES
    _make(place, owner)
    for part in path.parts[1:]:
        place /= part
        _make(place, owner)
    return place


def clear(run: Path, as_root: Callable[[Path], None]) -> None:
    """Removes what the kernel and Docker left of an overlay, and folders into which nothing was written.

    Args:
        run: The run directory, when nothing of the run is left to change it.
        as_root: Empties the kernel's folder where it holds what only root can remove.
    """
    scratch = run / _SCRATCH
    if os.getuid() == 0:
        shutil.rmtree(scratch, ignore_errors=True)
    remove_scratch(run)
    if scratch.is_dir() and not scratch.is_symlink():  # after a file was deleted in an overlay
        as_root(scratch)
        with contextlib.suppress(OSError):
            scratch.rmdir()
    for parent, _, _ in os.walk(run / FILES, topdown=False):
        with contextlib.suppress(OSError):
            os.rmdir(parent)


def remove_scratch(run: Path) -> None:
    """Removes the kernel's folder of an overlay as far as its owner can; the inner ones are root's, mostly empty."""
    scratch = run / _SCRATCH
    for folder in (scratch / "work", scratch / "index", scratch):
        with contextlib.suppress(OSError):
            folder.rmdir()


def give(folder: Path, owner: tuple[int, int], except_for: Iterable[Path] = ()) -> None:
    """Changes the owner of a folder and all in it. Links themselves, never what they point at."""
    for parent, folders, files in os.walk(folder):
        for path in [parent, *(os.path.join(parent, name) for name in folders + files)]:
            with contextlib.suppress(FileNotFoundError):
                os.chown(path, *owner, follow_symlinks=False)
        folders[:] = [name for name in folders if Path(parent, name) not in except_for]


def _make(folder: Path, owner: tuple[int, int]) -> None:
    folder.mkdir(exist_ok=True)
    os.chown(folder, *owner)
