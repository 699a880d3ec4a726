"""The command `phantora`: one verb per file under commands/. Everything heavy is imported by the verb that needs it."""

from __future__ import annotations

import sys

import typer

from phantora.commands import doctor, image, profiles, report, run, sandbox, top, version
from phantora.errors import PhantoraError

app = typer.Typer(
    name="phantora",
    help="Run an unmodified PyTorch training script as if on a cluster of GPUs, with no GPU.",
    rich_markup_mode=None,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (run, sandbox, top, report, profiles, image, doctor, version):
    command.register(app)


def main() -> None:
    """Runs the command line; ends the process with an exit code of the contract."""
    try:
        app()
    except PhantoraError as error:
        print(f"phantora: {error}", file=sys.stderr)
        sys.exit(int(error.code))
