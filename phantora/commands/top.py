"""`phantora top`: the live view on a run, while it goes on or after its end."""

from __future__ import annotations

from typing import Annotated

import typer

from phantora import run_directory


def top(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A run directory, or a name under runs/.")],
) -> None:
    """Show a run in the terminal: several may watch one run, and leaving does not end it."""
    from phantora.terminal import is_terminal

    folder = run_directory.find(run)
    if not is_terminal():
        from phantora.errors import UsageError

        raise UsageError("a terminal on stdin and stderr", "none", f"Use phantora report {run}.")
    from phantora_tui.app import LiveView

    LiveView(folder, folder.resolve().name).run()


def register(app: typer.Typer) -> None:
    """Adds the verb."""
    app.command()(top)
