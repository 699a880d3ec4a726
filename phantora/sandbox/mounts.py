"""What the container sees of this machine: the script's folder (read-only), the run directory, and --mount.

Folders keep their own paths inside, so that arguments, tracebacks and run.json mean the same on both sides.
"""

from __future__ import annotations

import posixpath
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from phantora.errors import UsageError

PREFIX = "/opt/phantora"  # Phantora's own files in the container

# A mount over one of these, or over a folder that holds one, would hide the image's own files.
_RESERVED = (
    *(PurePosixPath(p) for p in ("/bin", "/boot", "/dev", "/etc", "/lib", "/lib64", PREFIX, "/proc", "/sbin")),
    *(PurePosixPath(p) for p in ("/sys", "/usr")),
)
# Over these themselves: folders within them are fine (/var/lib/jenkins, /tmp/job-1).
_RESERVED_THEMSELVES = tuple(PurePosixPath(p) for p in ("/home/phantora", "/run", "/tmp", "/var"))


@dataclass(frozen=True)
class Mount:
    """One folder or file of this machine in the container."""

    source: Path
    target: str
    read_only: bool = True


def parse(text: str) -> Mount:
    """Returns the mount that `--mount SRC[:DST[:ro]]` names: by default at its own path, and writable.

    Raises:
        UsageError: The text is no mount, or SRC does not exist.
    """
    source, *rest = text.split(":")
    if len(rest) > 2 or not source or (len(rest) == 2 and rest[1] not in ("ro", "rw")):
        raise UsageError("--mount SRC[:DST[:ro]]", f"'{text}'", "Write for example --mount /data:/data:ro.")
    path = Path(source).resolve()
    if not path.exists():
        raise UsageError(f"--mount of {source}", "no such file or folder", "Check the path.")
    target = rest[0] if rest and rest[0] else str(path)
    if not target.startswith("/"):
        raise UsageError("an absolute DST in --mount SRC:DST", f"'{target}'", "Write it with a leading slash.")
    target = "/" + posixpath.normpath(target).lstrip("/")  # `..` must not lead to what the check would refuse
    check_target(PurePosixPath(target), "--mount")
    return Mount(path, target, read_only=len(rest) == 2 and rest[1] == "ro")


def check_target(target: PurePosixPath, what: str) -> None:
    """Refuses a path inside the container that belongs to the image.

    Raises:
        UsageError: It does.
    """
    clash = [p for p in _RESERVED if p == target or p in target.parents or target in p.parents]
    clash += [p for p in _RESERVED_THEMSELVES if p == target or target in p.parents]
    if clash:
        raise UsageError(
            f"a folder for {what} that hides nothing of the image",
            f"{target} (clashes with {clash[0]})",
            "Put it in a folder of its own, for example under /home or /srv.",
        )


def hides_nothing(folder: Path) -> bool:
    """May a folder of this machine stand at its own path inside?"""
    try:
        check_target(PurePosixPath(folder), "")
    except UsageError:
        return False
    return True


def code_folder(script: str | None, directory: Path) -> Path:
    """Returns the folder of the user's code.

    Args:
        script: Absolute path of the script; None: a module, found in the working directory or in the image.
        directory: The working directory.
    """
    folder = Path(script).parent if script else directory
    check_target(PurePosixPath(folder), "the script" if script else "the working directory of a module")
    return folder
