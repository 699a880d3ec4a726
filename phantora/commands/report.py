"""`phantora report`: an earlier run's report, as text, Markdown, JSON, or its canonical op log."""

from __future__ import annotations

import gzip
import json
import shutil
import sys
from typing import Annotated

import typer

from phantora import run_directory
from phantora.errors import PhantoraError, UsageError


def report(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A run directory, or a name under runs/.")],
    html: Annotated[bool, typer.Option("--html", hidden=True)] = False,
    as_json: Annotated[bool, typer.Option("--json", help="report.json as it is.")] = False,
    markdown: Annotated[bool, typer.Option("--md", help="Markdown.")] = False,
    oplog: Annotated[bool, typer.Option("--oplog", help="The canonical op log, uncompressed (binary).")] = False,
) -> None:
    """Print what a finished run found."""
    if html:
        raise UsageError("--json, --md or --oplog", "--html, which this version does not make", "Use --md.")
    if as_json + markdown + oplog > 1:
        raise UsageError("one of --json, --md and --oplog", "several", "Choose one.")
    folder = run_directory.find(run)
    if oplog:
        if not (folder / "oplog").is_file():
            raise PhantoraError(f"the op log of {folder}", "none", "The run did not end; run it again.")
        with gzip.open(folder / "oplog", "rb") as log:
            shutil.copyfileobj(log, sys.stdout.buffer)
        return
    if not (folder / "report.json").is_file():
        raise PhantoraError(f"the report of {folder}", "none", "The run has not ended yet, or was killed.")
    text = (folder / "report.json").read_text(encoding="utf-8")
    if as_json:
        typer.echo(text, nl=False)
        return
    from phantora import report_text

    typer.echo(report_text.render(json.loads(text), markdown=markdown), nl=False)


def register(app: typer.Typer) -> None:
    """Adds the verb."""
    app.command()(report)
