"""The run directory: its name, and that no earlier run is ever overwritten by accident."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from pathlib import Path

from phantora.errors import PhantoraError, UsageError
from phantora.options import RunOptions
from phantora.sandbox import workspace

RUNS = Path("runs")
_LONGEST_NAME = 255  # bytes, on every Linux file system


def _label(options: RunOptions) -> str:
    text = options.module or Path(options.script or "run").stem
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", text).strip("-.") or "run"


def check(options: RunOptions) -> None:
    """Refuses, before anything costs time, what `make` would refuse. Changes nothing.

    Raises:
        UsageError: Both `--out` and `--name` are given, or they name something else than a directory for this run.
        PhantoraError: It cannot be written.
    """
    if options.out is not None and options.name is not None:
        raise UsageError("one of --out and --name", "both", "Leave one out.")
    if options.name is not None and ("/" in options.name or options.name in ("", ".", "..")):
        raise UsageError("a plain name for --name", f"'{options.name}'", "Use --out for a path.")
    folder = _chosen(options) or RUNS
    text = str(folder.absolute())
    too_long = any(len(os.fsencode(part)) > _LONGEST_NAME for part in folder.parts)
    if not text.isprintable() or text != text.strip() or too_long:
        raise UsageError(
            "one line of text as the name of the run directory", repr(text), "Choose a shorter, plain one."
        )
    try:
        if folder != RUNS and folder.exists():
            _check_clear(folder, options.force)
        there = next(parent for parent in (folder.absolute(), *folder.absolute().parents) if parent.exists())
    except OSError as error:
        raise _not_writable(error) from None
    if not (there.is_dir() and os.access(there, os.W_OK | os.X_OK)):
        found = "that it may not be written" if there.is_dir() else "a file"
        raise PhantoraError(f"a folder {there} for the run directory", found, "Choose another with --out.")


def make(options: RunOptions) -> Path:
    """Makes the directory that `--out`, `--name` or the script's name ask for.

    Returns:
        Its absolute path; it exists and is empty but for `ranks/`.

    Raises:
        UsageError, PhantoraError: As `check`.
    """
    check(options)
    chosen = _chosen(options)
    missing = [path for path in (chosen or RUNS, *(chosen or RUNS).parents) if not path.exists()]
    try:
        if chosen is None:
            folder = _make_counted(_label(options))
            missing.insert(0, folder)
        else:
            folder = chosen
            folder.mkdir(parents=True, exist_ok=True)
            _clear(folder)
        (folder / "ranks").mkdir()
    except OSError as error:
        _remove_empty(missing)
        raise _not_writable(error) from None
    return folder.resolve()


def discard(folder: Path) -> None:
    """Removes the directory of a run that never began, and `runs/` where nothing else is in it."""
    shutil.rmtree(folder, ignore_errors=True)
    if folder.parent == RUNS.resolve():
        _remove_empty([folder.parent])


def _chosen(options: RunOptions) -> Path | None:
    return RUNS / options.name if options.name is not None else options.out


def _remove_empty(folders: list[Path]) -> None:
    for folder in folders:
        with contextlib.suppress(OSError):
            folder.rmdir()


def _not_writable(error: OSError) -> PhantoraError:
    return PhantoraError(
        "a writable run directory", f"{error.strerror}: {error.filename}", "Choose another with --out."
    )


def _make_counted(label: str) -> Path:
    RUNS.mkdir(exist_ok=True)
    taken = [path.name.removeprefix(f"{label}-") for path in RUNS.glob(f"{label}-*")]
    counter = max((int(name) for name in taken if name.isdecimal()), default=0) + 1
    while True:
        folder = RUNS / f"{label}-{counter}"
        try:
            folder.mkdir()
        except FileExistsError:  # another run of the same script starts at this moment
            counter += 1
            continue
        return folder


def _check_clear(folder: Path, force: bool) -> None:
    if not folder.is_dir():
        raise UsageError("a directory for the run", f"the file {folder}", "Choose another name.")
    if not any(folder.iterdir()):
        return
    if not (folder / "run.json").exists():
        raise UsageError("an empty directory or an earlier run", f"other files in {folder}", "Choose another name.")
    if not force:
        raise UsageError("a fresh run directory", f"an earlier run in {folder}", "Add --force, or choose another name.")
    from phantora_tui.stream import EventStream

    stream = EventStream(folder)
    stream.close()
    if stream.live:
        raise UsageError("a run that has ended", f"one that goes on in {folder}", "End it, or choose another name.")


def _clear(folder: Path) -> None:
    workspace.remove_scratch(folder)  # of a sandbox whose launcher was killed
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


def find(run: str) -> Path:
    """Returns the directory of an earlier run, given its path or its name under runs/.

    Raises:
        UsageError: There is none.
    """
    for folder in (Path(run), RUNS / run):
        if (folder / "run.json").is_file():
            return folder
    raise UsageError(f"a run at '{run}' or 'runs/{run}'", "no run.json there", "List runs/ and give one of its names.")
