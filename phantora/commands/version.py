"""`phantora version`."""

from __future__ import annotations

import typer

from phantora import __version__


def version() -> None:
    """Print the version."""
    typer.echo(__version__)


def register(app: typer.Typer) -> None:
    """Adds the verb."""
    app.command()(version)
