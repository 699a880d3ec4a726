"""Reads shim/table: the rows of intercepted functions and the libraries they belong to."""

from __future__ import annotations

import dataclasses
from pathlib import Path

POLICIES = ("EMULATE", "MODEL", "PASS", "STUB", "REFUSE")


class TableError(Exception):
    """A row that cannot be used; the message names file and line."""


@dataclasses.dataclass(frozen=True)
class Library:
    """A library the shim stands in for."""

    name: str
    table: str
    refuses: int
    refuses_name: str
    sonames: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Row:
    """One intercepted function."""

    name: str
    library: Library
    policy: str
    cuda13: bool
    cuda12: bool
    base: str
    refuses: str
    note: str


def _lines(path: Path) -> list[tuple[int, list[str]]]:
    result = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        if line and not line.startswith("#"):
            result.append((number, line.split("\t")))
    return result[1:]  # the first line names the columns


def read_libraries(folder: Path) -> list[Library]:
    """Reads libraries.tsv."""
    libraries = []
    for number, cells in _lines(folder / "libraries.tsv"):
        if len(cells) != 5:
            raise TableError(f"libraries.tsv:{number}: 5 columns wanted, {len(cells)} found")
        name, table, refuses, refuses_name, sonames = cells
        status = 0 if refuses == "-" else int(refuses)
        libraries.append(Library(name, table, status, refuses_name, tuple(sonames.split())))
    return libraries


def _read_rows(path: Path, library: Library) -> list[Row]:
    rows = []
    for number, cells in _lines(path):
        cells += [""] * (7 - len(cells))
        name, policy, cuda13, cuda12, base, refuses, note = cells
        if policy not in POLICIES:
            raise TableError(f"{path.name}:{number}: policy {policy!r} is none of {', '.join(POLICIES)}")
        if {cuda13, cuda12} - {"yes", ""}:
            raise TableError(f"{path.name}:{number}: the cuda columns hold `yes` or nothing")
        rows.append(Row(name, library, policy, cuda13 == "yes", cuda12 == "yes", base, refuses, note))
    return rows


def read_table(folder: Path) -> list[Row]:
    """Reads all function tables; a name may have one row only."""
    rows: list[Row] = []
    for library in read_libraries(folder):
        if library.table != "-":
            rows += _read_rows(folder / f"{library.table}.tsv", library)
    seen: dict[str, Row] = {}
    for row in rows:
        if row.name in seen:
            raise TableError(f"{row.name} has a row in {seen[row.name].library.name} and in {row.library.name}")
        seen[row.name] = row
    return rows


def read_libc(folder: Path) -> list[str]:
    """Names of the interposed C library functions."""
    return [cells[0] for _, cells in _lines(folder / "libc.tsv")]
