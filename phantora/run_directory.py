"""The run directory: its name, and that no earlier run is ever overwritten by accident."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from phantora.errors import PhantoraError, UsageError
from phantora.options import RunOptions

RUNS = Path("runs")


def _label(options: RunOptions) -> str:
    text = options.module or Path(options.script or "run").stem
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", text).strip("-.") or "run"


def make(options: RunOptions) -> Path:
    """Makes the directory that `--out`, `--name` or the script's name ask for.

    Returns:
        Its absolute path; it exists and is empty but for `ranks/`.

    Raises:
        UsageError: Both `--out` and `--name` are given, or the directory holds a run and `--force` is not given.
        PhantoraError: It cannot be written.
    """
    if options.out is not None and options.name is not None:
        raise UsageError("one of --out and --name", "both", "Leave one out.")
    if options.name is not None and ("/" in options.name or options.name in ("", ".", "..")):
        raise UsageError("a plain name for --name", f"'{options.name}'", "Use --out for a path.")
    try:
        if options.out is None and options.name is None:
            return _make_counted(_label(options))
        folder = options.out if options.out is not None else RUNS / str(options.name)
        if folder.exists():
            _clear(folder, options.force)
        (folder / "ranks").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise PhantoraError(
            "a writable run directory", f"{error.strerror}: {error.filename}", "Choose another with --out."
        ) from None
    return folder.resolve()


def _make_counted(label: str) -> Path:
    RUNS.mkdir(exist_ok=True)
    taken = [path.name.removeprefix(f"{label}-") for path in RUNS.glob(f"{label}-*")]
    counter = max((int(name) for name in taken if name.isdigit()), default=0) + 1
    while True:
        folder = RUNS / f"{label}-{counter}"
        try:
            folder.mkdir()
        except FileExistsError:  # another run of the same script starts at this moment
            counter += 1
            continue
        (folder / "ranks").mkdir()
        return folder.resolve()


def _clear(folder: Path, force: bool) -> None:
    if not folder.is_dir():
        raise UsageError("a directory for the run", f"the file {folder}", "Choose another name.")
    if not any(folder.iterdir()):
        return
    if not (folder / "run.json").exists():
        raise UsageError("an empty directory or an earlier run", f"other files in {folder}", "Choose another name.")
    if not force:
        raise UsageError("a fresh run directory", f"an earlier run in {folder}", "Add --force, or choose another name.")
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
