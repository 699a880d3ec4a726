"""Finds and reads profiles: GPUs, clusters and hosts (TOML), by built-in name or by file.

The form is described in profiles/README.md: a section named like the kind holds the numbers, `<key>_source` says where
one comes from and is for people only, `[tables]` of a GPU names measured tables.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from phantora.errors import UsageError

if sys.version_info >= (3, 11):
    import tomllib
else:  # pragma: no cover - depends on the interpreter
    import tomli as tomllib

KINDS = {"gpu": "gpus", "cluster": "clusters", "host": "hosts"}
SOURCE_SUFFIX = "_source"
Scalar = str | int | float | bool


@dataclass(frozen=True)
class Profile:
    """One profile as read.

    Attributes:
        kind: `gpu`, `cluster` or `host`.
        name: Built-in name, or the file's stem.
        path: The file.
        built_in: Comes with Phantora.
        data: The parsed TOML, sub-tables included.
    """

    kind: str
    name: str
    path: Path
    built_in: bool
    data: dict[str, Any]

    @property
    def numbers(self) -> dict[str, Scalar]:
        """The section named like the kind, without the `_source` keys."""
        section = self.data.get(self.kind, {})
        return {key: value for key, value in section.items() if not key.endswith(SOURCE_SUFFIX)}

    def core_lines(self) -> dict[str, Scalar]:
        """Returns the lines of core.conf: `<kind>.<key>` and `table.<key>`.

        A table's path is absolute where it lies beside a user's own file, else relative to the profiles folder.
        """
        lines = {f"{self.kind}.{key}": value for key, value in self.numbers.items()}
        for key, value in self.data.get("tables", {}).items():
            beside = self.path.parent / str(value)
            lines[f"table.{key}"] = (
                str(beside.resolve()) if not self.built_in and beside.is_file() else f"tables/{value}"
            )
        return lines

    def get_int(self, key: str, default: int | None = None) -> int | None:
        """Returns an integer number, or the default where the profile is silent.

        Raises:
            UsageError: The number is there and is no integer.
        """
        value = self.numbers.get(key, default)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
            raise UsageError(f"an integer for '{key}' in {self.path}", repr(value), "Correct the profile.")
        return value

    def problems(self) -> list[str]:
        """Returns what is wrong with the file, one sentence each; empty when it is well-formed."""
        found = []
        for key, wanted in (("schema", 1), ("kind", self.kind)):
            if self.data.get(key) != wanted:
                found.append(f"{key} is {self.data.get(key)!r}, not {wanted!r}.")
        section = self.data.get(self.kind)
        if not isinstance(section, dict):
            return [*found, f"there is no section [{self.kind}]."]
        for key, value in section.items():
            if key.endswith(SOURCE_SUFFIX):
                if key.removesuffix(SOURCE_SUFFIX) not in section:
                    found.append(f"{key} belongs to no number.")
            elif not isinstance(value, (str, int, float)):
                found.append(f"{key} is neither a number nor text.")
            elif key + SOURCE_SUFFIX not in section:
                found.append(f"{key} names no source ({key}{SOURCE_SUFFIX}).")
        return found


def profiles_folder() -> Path:
    """Returns the folder with gpus/, clusters/, hosts/ and the compiled tables.

    Installed it lies in the package (phantora/profiles), in a checkout beside it (profiles/).

    Raises:
        PhantoraError: Neither exists.
    """
    package = Path(str(resources.files("phantora")))
    for folder in (package / "profiles", package.parent / "profiles"):
        if (folder / "gpus").is_dir():
            return folder
    raise UsageError("the built-in profiles", f"none in {package}", "Install phantora-sim again.")


def names(kind: str) -> list[str]:
    """Returns the names of the built-in profiles of a kind, sorted."""
    return sorted(path.stem for path in (profiles_folder() / KINDS[kind]).glob("*.toml"))


def load(kind: str, name_or_file: str) -> Profile:
    """Reads a profile.

    Args:
        kind: `gpu`, `cluster` or `host`.
        name_or_file: A built-in name, or the path of a TOML file (recognised by `.toml` or a slash).

    Raises:
        UsageError: No such profile, or the file is not TOML.
    """
    is_file = name_or_file.endswith(".toml") or "/" in name_or_file
    path = Path(name_or_file) if is_file else profiles_folder() / KINDS[kind] / f"{name_or_file}.toml"
    if not path.is_file():
        known = ", ".join(names(kind))
        raise UsageError(
            f"a {kind} profile '{name_or_file}'",
            "no such file" if is_file else f"only {known}",
            f"Use one of {known}, or give the path of a TOML file.",
        )
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"valid TOML in {path}", str(error), "Correct the file.") from None
    profile = Profile(kind, path.stem, path, not is_file, data)
    if data.get("schema") != 1 or data.get("kind") != kind or not isinstance(data.get(kind), dict):
        raise UsageError(f"a {kind} profile in {path}", profile.problems()[0].rstrip("."), "See profiles/README.md.")
    return profile
