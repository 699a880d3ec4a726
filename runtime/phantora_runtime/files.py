"""Files of the run directory. The script can write there too and put a link, a FIFO or a folder in a file's place."""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path
from typing import IO

_MAX_READ = 64 << 20


def open_own(path: Path, append: bool = False) -> IO[str]:
    """Opens a text file for writing; what stands there and is no plain file is removed first.

    Raises:
        OSError: It cannot be written.
    """
    remove_if_foreign(path)
    how = os.O_APPEND if append else os.O_TRUNC
    # Not blocking: a FIFO that appears in this moment must not hold us.
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | how, 0o644)
    return open(fd, "a" if append else "w", encoding="utf-8")


def write_own(path: Path, text: str) -> None:
    """Writes a whole file, as `open_own` opens it."""
    with open_own(path) as file:
        file.write(text)


def read_plain(path: Path) -> str:
    """Returns the text of a plain file, broken characters replaced; of a very long one only the last 64 MiB.

    Raises:
        OSError: There is none, or it is no plain file.
    """
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(fd, "rb") as file:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(f"{path} is no plain file")
        file.seek(max(0, status.st_size - _MAX_READ))
        return file.read(_MAX_READ).decode(errors="replace")


def remove_if_foreign(path: Path) -> None:
    """Removes what stands at `path` unless it is a plain file."""
    try:
        mode = path.lstat().st_mode
    except OSError:
        return
    if stat.S_ISDIR(mode):
        shutil.rmtree(path, ignore_errors=True)
    elif not stat.S_ISREG(mode):
        path.unlink(missing_ok=True)


def sweep(folder: Path, with_links: str) -> None:
    """Removes FIFOs, sockets and devices from a tree, and links but those in its folder `with_links`."""
    for parent, folders, names in os.walk(folder):
        may_link = with_links in Path(parent).relative_to(folder).parts[:1]
        for name in folders + names:
            path = Path(parent, name)
            if not (path.is_symlink() and may_link) and (path.is_symlink() or not path.is_dir()):
                remove_if_foreign(path)


def size(folder: Path) -> int:
    """Returns what a tree, or a file, takes on its disk in bytes; links count themselves."""
    try:
        total = folder.lstat().st_blocks * 512
    except OSError:
        return 0
    for parent, folders, names in os.walk(folder):
        for name in folders + names:
            try:
                total += os.lstat(os.path.join(parent, name)).st_blocks * 512
            except OSError:
                continue
    return total
