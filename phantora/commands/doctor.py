"""`phantora doctor`: what this machine has and lacks. Changes nothing."""

from __future__ import annotations

import typer

from phantora_runtime.exit_codes import ExitCode

_SIGNS = {True: "ok  ", False: "MISS", None: "note"}


def doctor() -> None:
    """Check what `phantora run` and `phantora sandbox` need on this machine. Exit code 3: neither would work."""
    from phantora import checks

    lacking: set[str] = set()
    for check in checks.all_checks():
        typer.echo(f"{_SIGNS[check.ok]} {check.name}: {check.found}")
        if check.do:
            typer.echo(f"       {check.do}")
        if check.ok is False:
            lacking.update(check.needed_by)
    for verb in ("run", "sandbox"):
        typer.echo(f"phantora {verb}: {'does not work here' if verb in lacking else 'works here'}")
    if lacking == {"run", "sandbox"}:
        raise typer.Exit(int(ExitCode.ENVIRONMENT))


def register(app: typer.Typer) -> None:
    """Adds the verb."""
    app.command()(doctor)
