"""What a profile must look like: keys and types are those of the built-in profiles, the rest is said here."""

from __future__ import annotations

import math
from collections.abc import Iterator
from difflib import get_close_matches
from pathlib import Path
from typing import Any

SOURCE_SUFFIX = "_source"
_OPTIONAL = {"gpu": frozenset[str](), "cluster": frozenset({"gpu", "gpus_per_node"}), "host": frozenset({"cpu_count"})}
# All other numbers are divided by, or would make a call or a copy free of cost.
MAY_BE_ZERO = frozenset(
    (
        *("free", "compute_minor", "pcie_domain", "nvlink_count", "power_limit_mw"),
        *("context_bytes", "nccl_comm_bytes", "reserved_shared_per_block"),
    )
)
_LARGEST = 1 << 60  # the simulator's last instant in nanoseconds; no other unit needs more


def problems(kind: str, data: dict[str, Any], form: dict[str, Any], tables: tuple[Path, ...]) -> list[str]:
    """Returns why a profile cannot be used, one sentence each; empty when it can.

    Args:
        kind: `gpu`, `cluster` or `host`.
        data: The profile.
        form: A built-in profile of that kind.
        tables: Folders in which its tables may lie.
    """
    for key, wanted in (("schema", 1), ("kind", kind)):
        if data.get(key) != wanted:
            return [f"{key} is {data.get(key)!r}, not {wanted!r}."]
    if not isinstance(data.get(kind), dict):
        return [f"there is no section [{kind}]."]
    found = [_unknown(key, form) for key in data if key not in form]
    found += [
        f"{key} is {data[key]!r}, not text." for key in ("name", "summary") if not isinstance(data.get(key, ""), str)
    ]
    return [*found, *_of_section(kind, data[kind], form[kind]), *_of_tables(data, form, tables)]


def without_source(section: dict[str, Any]) -> list[str]:
    """Returns a sentence for each number that does not say where it comes from."""
    numbers = [key for key in section if not key.endswith(SOURCE_SUFFIX)]
    return [f"{k} names no source ({k}{SOURCE_SUFFIX})." for k in numbers if k + SOURCE_SUFFIX not in section]


def _unknown(key: str, known: dict[str, Any]) -> str:
    close = get_close_matches(key, known, n=1)
    return f"{key!r} is no known key" + (f" (is {close[0]} meant?)." if close else ".")


def _of_section(kind: str, section: dict[str, Any], form: dict[str, Any]) -> Iterator[str]:
    for key, value in section.items():
        if key not in form:
            yield _unknown(key, form)
        elif key.endswith(SOURCE_SUFFIX) and key.removesuffix(SOURCE_SUFFIX) not in section:
            yield f"{key} belongs to no number."
        elif isinstance(form[key], str):
            # Line breaks and # mean something in the simulator's configuration, where sources do not go.
            plain = isinstance(value, str) and (
                key.endswith(SOURCE_SUFFIX) or (value.isprintable() and "#" not in value)
            )
            if not plain or not value.strip():
                yield f"{key} is {value!r}, not text of one line without #."
        elif wrong := _of_number(key, value, whole=isinstance(form[key], int)):
            yield f"{key} is {value!r}, not {wrong}."
    for key in form:
        if key not in section and not key.endswith(SOURCE_SUFFIX) and key not in _OPTIONAL[kind]:
            yield f"{key} is missing."


def _of_number(key: str, value: Any, whole: bool) -> str | None:
    """Returns what was wanted where the value is not that."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return "a number"
    if isinstance(value, float) and not math.isfinite(value):
        return "a finite number"
    if whole and value != int(value):
        return "a whole number"
    if value < 0 or (value == 0 and key not in MAY_BE_ZERO):
        return "0 or more" if key in MAY_BE_ZERO else "above 0"
    if value > _LARGEST:
        return f"{_LARGEST} or less"
    return "a share of 1" if "efficiency" in key and value > 1 else None


def _of_tables(data: dict[str, Any], form: dict[str, Any], folders: tuple[Path, ...]) -> Iterator[str]:
    tables, known = data.get("tables", {}), form.get("tables", {})
    if not isinstance(tables, dict):
        yield f"tables is {tables!r}, not a section."
        return
    for key, value in tables.items():
        if key not in known:
            yield _unknown(key, known)
        elif not isinstance(value, str) or not any((folder / value).is_file() for folder in folders):
            yield f"table {key} is {value!r}, which is no file in {' or '.join(str(folder) for folder in folders)}."
