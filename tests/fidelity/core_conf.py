"""The configuration that the cost models read."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PROFILES = Path(__file__).resolve().parents[2] / "profiles"


def core_lines(gpu: str, cluster: str, overrides: dict[str, Any]) -> str:
    """The lines of core.conf that the cost models read, as the launcher makes them from the profiles."""
    lines: dict[str, Any] = {}
    for kind, folder, name in (("gpu", "gpus", gpu), ("cluster", "clusters", cluster)):
        data = tomllib.loads((PROFILES / folder / f"{name}.toml").read_text())
        lines |= {f"{kind}.{key}": value for key, value in data[kind].items() if not key.endswith("_source")}
        lines |= {f"table.{key}": PROFILES / "tables" / value for key, value in data.get("tables", {}).items()}
    return "".join(f"{key} = {value}\n" for key, value in (lines | overrides).items())
