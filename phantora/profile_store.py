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

from phantora import profile_form
from phantora.errors import UsageError
from phantora.profile_form import SOURCE_SUFFIX

if sys.version_info >= (3, 11):
    import tomllib
else:  # pragma: no cover - depends on the interpreter
    import tomli as tomllib

KINDS = {"gpu": "gpus", "cluster": "clusters", "host": "hosts"}
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

    def problems(self) -> list[str]:
        """Returns why it cannot be used, one sentence each; empty when it can."""
        form = _read(profiles_folder() / KINDS[self.kind] / f"{names(self.kind)[0]}.toml")
        tables = profiles_folder() / "tables"
        return profile_form.problems(
            self.kind, self.data, form, (tables,) if self.built_in else (self.path.parent, tables)
        )

    def get_int(self, key: str) -> int | None:
        """Returns a whole number, or None where the profile is silent."""
        value = self.numbers.get(key)
        return None if value is None else int(value)


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
    """Reads a profile that can be used.

    Args:
        kind: `gpu`, `cluster` or `host`.
        name_or_file: A built-in name, or the path of a TOML file (recognised by `.toml` or a slash).

    Raises:
        UsageError: No such profile, or the file is none.
    """
    profile = read(name_or_file, kind)
    if found := profile.problems():
        more = f" ({len(found) - 1} more)" if len(found) > 1 else ""
        do = f"Correct it: `phantora profiles check {name_or_file}` lists what is wrong."
        raise UsageError(f"a {kind} profile in {profile.path}", found[0].rstrip(".") + more, do)
    return profile


def read(name_or_file: str, kind: str | None = None) -> Profile:
    """Reads a profile, well-formed or not.

    Args:
        name_or_file: As for `load`.
        kind: `gpu`, `cluster` or `host`; None: whichever has that name, or what the file says.

    Raises:
        UsageError: No such profile, or the file is not TOML.
    """
    kinds = [kind] if kind is not None else list(KINDS)
    if name_or_file.endswith(".toml") or "/" in name_or_file:
        path = Path(name_or_file)
        if path.is_file():
            data = _read(path)
            said = str(data.get("kind"))
            return Profile(kind or (said if said in KINDS else "gpu"), path.stem, path, False, data)
        found = "no such file"
    else:
        for each in kinds:
            path = profiles_folder() / KINDS[each] / f"{name_or_file}.toml"
            if path.is_file():
                return Profile(each, path.stem, path, True, _read(path))
        found = "none of that name"
    known = ", ".join(name for each in kinds for name in names(each))
    what = f"a {kind} profile" if kind else "a profile"
    raise UsageError(f"{what} '{name_or_file}'", found, f"Use one of {known}, or give the path of a TOML file.")


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"valid TOML in {path}", str(error), "Correct the file.") from None
    except OSError as error:
        raise UsageError(f"to read {path}", str(error.strerror), "Check its permissions.") from None
