"""The exit codes of `phantora run` and `phantora sandbox`: one enum, for the host and for the runtime."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """What the shell sees. Values are part of the contract with other tools."""

    DONE = 0
    """The run ended well (verdict `ok`), also when `--steps` was reached."""

    SCRIPT_FAILED = 1
    """A rank's script failed: exception, signal, non-zero exit, or it exceeded a limit it was given."""

    USAGE = 2
    """The command line, a profile or a condition cannot be understood."""

    ENVIRONMENT = 3
    """This machine lacks something: torch, the native files, Docker, a readable interpreter."""

    VERDICT = 4
    """Verdict `oom`, `hang` or `mismatch`, or a `--fail-if` condition holds."""

    OUR_BUG = 5
    """A bug of ours: the core crashed or an invariant broke."""

    TIMEOUT = 124
    """`--timeout` passed (verdict `stopped`)."""

    INTERRUPTED = 130
    """Ctrl-C or SIGTERM (verdict `stopped`)."""
