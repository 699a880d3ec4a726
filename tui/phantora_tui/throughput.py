"""Tokens per second as the script itself prints them: the last number of a line that names tokens/s or tps."""

from __future__ import annotations

import re
from collections.abc import Iterable

_NUMBER = r"([\d,]+(?:\.\d+)?)"
_PATTERNS = (
    re.compile(rf"\b(?:tps|tokens?[ _]?(?:/|per)[ _]?s(?:ec(?:ond)?)?)(?:/gpu)?\s*[:=]\s*{_NUMBER}", re.IGNORECASE),
    re.compile(rf"{_NUMBER}\s*(?:tokens?|tok)\s*(?:/|per)\s*s(?:ec(?:ond)?)?\b", re.IGNORECASE),
)


def tokens_per_second(lines: Iterable[str]) -> float | None:
    """Returns the latest figure in these lines; None where they name none."""
    found = None
    for line in lines:
        for pattern in _PATTERNS:
            for match in pattern.finditer(line):
                found = float(match.group(1).replace(",", "") or 0)
    return found
