"""`phantora report`: an earlier run's report, as text, Markdown, JSON, or its canonical op log."""

from __future__ import annotations

import gzip
import json
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from phantora import run_directory
from phantora.errors import PhantoraError, UsageError

_CHUNK = 1 << 20


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
        for chunk in _oplog(folder):
            sys.stdout.buffer.write(chunk)
        return
    text, content = _read(folder)
    if as_json:
        typer.echo(text, nl=False)
        return
    from phantora import report_text

    try:
        rendered = report_text.render(content, markdown=markdown)
    except (LookupError, TypeError, ValueError, AttributeError):
        raise _damaged(folder / "report.json", "keys missing or of another type") from None
    typer.echo(rendered, nl=False)


def _read(folder: Path) -> tuple[str, dict[str, Any]]:
    """Returns report.json as text and as what it says."""
    path = folder / "report.json"
    try:
        text = path.read_text(encoding="utf-8")
        content = json.loads(text)
    except FileNotFoundError:
        raise PhantoraError(f"the report of {folder}", "none", "The run has not ended yet, or was killed.") from None
    except OSError as error:
        raise PhantoraError(f"to read {path}", str(error.strerror), "Check that file.") from None
    except (ValueError, RecursionError) as error:
        raise _damaged(path, str(error)) from None
    if not isinstance(content, dict) or content.get("schema") != 1:
        raise _damaged(path, "no schema 1 in it")
    return text, content


def _oplog(folder: Path) -> Iterator[bytes]:
    path = folder / "oplog"
    try:
        with gzip.open(path, "rb") as log:
            while chunk := log.read(_CHUNK):
                yield chunk
    except FileNotFoundError:
        raise PhantoraError(f"the op log of {folder}", "none", "The run did not end; run it again.") from None
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise _damaged(path, str(error)) from None
    except OSError as error:
        raise PhantoraError(f"to read {path}", str(error.strerror), "Check that file.") from None


def _damaged(path: Path, found: str) -> PhantoraError:
    return PhantoraError(f"what a run left in {path}", found, "The file is damaged; run it again.")


def register(app: typer.Typer) -> None:
    """Adds the verb."""
    app.command()(report)
