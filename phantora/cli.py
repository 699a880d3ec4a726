"""The command `phantora`: one verb per file under commands/. Everything heavy is imported by the verb that needs it."""

from __future__ import annotations

import os
import sys
import traceback
from typing import Any, cast

import typer

from phantora.commands import doctor, image, profiles, report, run, sandbox, top, version
from phantora.errors import PhantoraError, UsageError
from phantora_runtime.exit_codes import ExitCode

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


# click's error for a bad command line; newer typers bring click inside, so it has no name that is always there.
_BadCommandLine = cast("type[Exception]", typer.BadParameter.__mro__[1])


def main() -> None:
    """Runs the command line; ends the process with an exit code of the contract."""
    sys.exit(int(_run()))


def _run() -> int:
    try:
        code = app(standalone_mode=False) or ExitCode.DONE
        print(end="", flush=True)
        return int(code)
    except typer.Abort:
        return ExitCode.INTERRUPTED
    except PhantoraError as error:
        return _told(error)
    except _BadCommandLine as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            print(error, file=sys.stderr)
            return ExitCode.USAGE
        return _told(_as_usage_error(error))
    except OSError as error:
        _give_up_stdout()
        where = f": {error.filename}" if error.filename else ""
        do = "Check that path, and that the disk is not full."
        return _told(PhantoraError("to read and write files", f"{error.strerror}{where}", do))
    except Exception:
        traceback.print_exc()
        print("phantora: This is a bug in Phantora; please report it with the lines above.", file=sys.stderr)
        return ExitCode.OUR_BUG


def _give_up_stdout() -> None:
    """Where it is full, what is in its buffer would fail once more when Python ends."""
    try:
        print(end="", flush=True)
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _told(error: PhantoraError) -> int:
    """One line, whatever a name that is quoted in it holds."""
    line = "".join(character if character.isprintable() else " " for character in str(error))
    print(f"phantora: {line}", file=sys.stderr)
    return error.code


def _as_usage_error(error: Any) -> UsageError:
    """What click says in several lines, in one of ours."""
    command = error.ctx.command_path if error.ctx else "phantora"
    text, _, guess = " ".join(error.format_message().split()).partition(". Did you mean ")
    found = text.removeprefix("Got ").rstrip(".")
    do = f"Did you mean {guess}" if guess else "Correct the command line."
    return UsageError(f"arguments as `{command} -h` lists them", found[:1].lower() + found[1:], do)
