"""`phantora profiles list|show|check`."""

from __future__ import annotations

from typing import Annotated

import typer

from phantora import profile_store
from phantora.errors import UsageError

profiles = typer.Typer(
    help="GPU, cluster and host profiles.", rich_markup_mode=None, no_args_is_help=True, add_completion=False
)


def _find(name: str) -> profile_store.Profile:
    for kind in profile_store.KINDS:
        if name in profile_store.names(kind):
            return profile_store.load(kind, name)
    if name.endswith(".toml") or "/" in name:
        last: UsageError | None = None
        for kind in profile_store.KINDS:
            try:
                return profile_store.load(kind, name)
            except UsageError as error:
                last = error
        if last is not None:
            raise last
    raise UsageError(f"a profile named '{name}'", "none", "See `phantora profiles list`.")


@profiles.command("list")
def list_profiles() -> None:
    """List the built-in profiles."""
    for kind in profile_store.KINDS:
        for name in profile_store.names(kind):
            summary = profile_store.load(kind, name).data.get("summary", "")
            typer.echo(f"{kind:8} {name:18} {summary}")


@profiles.command("show")
def show_profile(name: Annotated[str, typer.Argument(metavar="NAME|FILE")]) -> None:
    """Print a profile with its sources."""
    typer.echo(_find(name).path.read_text(encoding="utf-8"), nl=False)


@profiles.command("check")
def check_profiles(name: Annotated[str | None, typer.Argument(metavar="[NAME|FILE]")] = None) -> None:
    """Check one profile, or all built-in ones: form, and that every number names a source."""
    if name is not None:
        chosen = [_find(name)]
    else:
        chosen = [profile_store.load(kind, item) for kind in profile_store.KINDS for item in profile_store.names(kind)]
    bad = False
    for profile in chosen:
        problems = profile.problems()
        bad = bad or bool(problems)
        typer.echo(f"{profile.kind} {profile.name}: " + ("ok" if not problems else f"{len(problems)} problem(s)"))
        for problem in problems:
            typer.echo(f"  {problem}")
    if bad:
        raise typer.Exit(2)


def register(app: typer.Typer) -> None:
    """Adds the verb."""
    app.add_typer(profiles, name="profiles")
