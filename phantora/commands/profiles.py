"""`phantora profiles list|show|check`."""

from __future__ import annotations

from typing import Annotated

import typer

from phantora import profile_form, profile_store

profiles = typer.Typer(
    help="GPU, cluster and host profiles.", rich_markup_mode=None, no_args_is_help=True, add_completion=False
)


@profiles.command("list")
def list_profiles() -> None:
    """List the built-in profiles."""
    for kind in profile_store.KINDS:
        for name in profile_store.names(kind):
            summary = profile_store.read(name, kind).data.get("summary", "")
            typer.echo(f"{kind:8} {name:18} {summary}")


@profiles.command("show")
def show_profile(name: Annotated[str, typer.Argument(metavar="NAME|FILE")]) -> None:
    """Print a profile with its sources."""
    typer.echo(profile_store.read(name).path.read_text(encoding="utf-8"), nl=False)


@profiles.command("check")
def check_profiles(name: Annotated[str | None, typer.Argument(metavar="[NAME|FILE]")] = None) -> None:
    """Check one profile, or all built-in ones: form, and that every number names a source."""
    if name is not None:
        chosen = [profile_store.read(name)]
    else:
        chosen = [profile_store.read(item, kind) for kind in profile_store.KINDS for item in profile_store.names(kind)]
    bad = False
    for profile in chosen:
        section = profile.data.get(profile.kind)
        problems = profile.problems()
        if isinstance(section, dict):
            problems += profile_form.without_source(section)
        bad = bad or bool(problems)
        typer.echo(f"{profile.kind} {profile.name}: " + ("ok" if not problems else f"{len(problems)} problem(s)"))
        for problem in problems:
            typer.echo(f"  {problem}")
    if bad:
        raise typer.Exit(2)


def register(app: typer.Typer) -> None:
    """Adds the verb."""
    app.add_typer(profiles, name="profiles")
