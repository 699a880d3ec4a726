"""Errors that end a command: one plain line with what was wanted, what was found and what to do; never a traceback."""

from __future__ import annotations

from phantora_runtime.exit_codes import ExitCode


class PhantoraError(Exception):
    """Ends the command with a line on stderr and an exit code."""

    def __init__(self, wanted: str, found: str, do: str, code: ExitCode = ExitCode.ENVIRONMENT) -> None:
        """Builds the line.

        Args:
            wanted: What was needed, as a phrase: `a GPU profile named h100`.
            found: What is there instead.
            do: What the user should do, as an imperative.
            code: The exit code.
        """
        super().__init__(f"Wanted {wanted}; found {found}. {do}")
        self.found = found
        self.do = do
        self.code = code


class UsageError(PhantoraError):
    """The command line cannot be understood (exit code 2)."""

    def __init__(self, wanted: str, found: str, do: str) -> None:
        """As PhantoraError, with exit code 2."""
        super().__init__(wanted, found, do, ExitCode.USAGE)
