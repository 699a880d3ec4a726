"""Durations, sizes and `--fail-if` conditions: parsing, and how they are printed."""

from __future__ import annotations

import re
from dataclasses import dataclass

_NS_PER_UNIT = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9, "m": 60 * 10**9, "min": 60 * 10**9, "h": 3600 * 10**9}
_BYTES_PER_UNIT = {
    "": 1, "b": 1,
    "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12,
    "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40,
    "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40,
}  # fmt: skip
_NUMBER_AND_UNIT = re.compile(r"\s*([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*([A-Za-z%]*)\s*\Z")
_LARGEST = 1 << 62
_CONDITION = re.compile(r"\s*(step|memory|unknown)\s*>\s*(.+?)\s*\Z")


class QuantityError(ValueError):
    """The text is no such quantity; the message is a complete sentence."""


def parse_duration_ns(text: str) -> int:
    """Returns integer nanoseconds for `30m`, `1.5s`, `250ms`; a bare number is seconds.

    Raises:
        QuantityError: The text is not a duration.
    """
    match = _NUMBER_AND_UNIT.match(text)
    unit = (match[2].lower() or "s") if match else ""
    if match is None or unit not in _NS_PER_UNIT:
        raise QuantityError(f"'{text}' is not a duration; write for example 90s, 30m or 1.5h.")
    return _scaled(text, float(match[1]) * _NS_PER_UNIT[unit])


def parse_bytes(text: str) -> int:
    """Returns integer bytes for `76GiB`, `80GB`, `512m` (m, g as Docker: powers of two); a bare number is bytes.

    Raises:
        QuantityError: The text is not a size.
    """
    match = _NUMBER_AND_UNIT.match(text)
    if match is None or match[2].lower() not in _BYTES_PER_UNIT:
        raise QuantityError(f"'{text}' is not a size; write for example 76GiB or 80GB.")
    return _scaled(text, float(match[1]) * _BYTES_PER_UNIT[match[2].lower()])


def _scaled(text: str, number: float) -> int:
    if number > _LARGEST:
        raise QuantityError(f"'{text}' is too large.")
    return round(number)


def format_duration(ns: float) -> str:
    """Returns for example `412 ns`, `3.21 ms`, `1.204 s`, `2 min 05 s`."""
    if ns < 1_000:
        return f"{ns:.0f} ns"
    for unit, scale in (("us", 10**3), ("ms", 10**6)):
        if ns < scale * 999.95:
            return f"{ns / scale:.4g} {unit}"
    if ns < 60 * 10**9:
        return f"{ns / 10**9:.4g} s"
    minutes, seconds = divmod(round(ns / 10**9), 60)
    return f"{minutes} min {seconds:02d} s"


def format_bytes(count: float) -> str:
    """Returns for example `512 B`, `20.0 MiB`, `79.10 GiB`."""
    for unit, scale, digits in (("GiB", 2**30, 2), ("MiB", 2**20, 1), ("KiB", 2**10, 1)):
        if abs(count) >= scale:
            return f"{count / scale:.{digits}f} {unit}"
    return f"{count:.0f} B"


@dataclass(frozen=True)
class Condition:
    """One `--fail-if`: `oom`, `step>1.5s`, `memory>76GiB` or `unknown>1%`.

    Attributes:
        text: As the user wrote it.
        subject: `oom`, `step`, `memory` or `unknown`.
        limit: ns, bytes or a share of 1; 0 for `oom`.
    """

    text: str
    subject: str
    limit: float


def parse_condition(text: str) -> Condition:
    """Returns the condition that `--fail-if` names.

    Raises:
        QuantityError: The text is no condition.
    """
    if text.strip() == "oom":
        return Condition(text, "oom", 0)
    match = _CONDITION.match(text)
    if match is None:
        raise QuantityError(f"'{text}' is not a condition; write oom, step>1.5s, memory>76GiB or unknown>1%.")
    subject, limit = match[1], match[2]
    if subject == "step":
        return Condition(text, subject, parse_duration_ns(limit))
    if subject == "memory":
        return Condition(text, subject, parse_bytes(limit))
    share = _NUMBER_AND_UNIT.match(limit)
    if share is None or share[2] not in ("", "%"):
        raise QuantityError(f"'{limit}' is not a share; write for example unknown>1%.")
    return Condition(text, subject, float(share[1]) / (100 if share[2] else 1))
