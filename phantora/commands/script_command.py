"""A command whose own options may stand before or after the script, and whose script's arguments follow `--`."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperCommand

_AFTER_DASHES = "phantora.script_arguments"


class ScriptCommand(TyperCommand):
    """Takes everything after the first `--` away before the options are parsed."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Splits at the first `--`; the rest is kept for `script_arguments`."""
        if "--" in args:
            cut = args.index("--")
            args, rest = args[:cut], args[cut + 1 :]
        else:
            rest = []
        ctx.meta[_AFTER_DASHES] = tuple(rest)
        return super().parse_args(ctx, args)


def script_arguments(ctx: typer.Context) -> tuple[str, ...]:
    """Returns what stood after `--`."""
    return tuple(ctx.meta.get(_AFTER_DASHES, ()))
