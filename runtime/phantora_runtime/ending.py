"""How a run ended, before the report is written."""

from __future__ import annotations

import signal
from dataclasses import dataclass, field
from enum import Enum
from typing import Any


class Reason(Enum):
    """What ended the run."""

    COMPLETED = "completed"
    RANK_FAILED = "rank failed"
    PARENT_LOST = "the ranks' parent process was killed"
    DISK_FILLED = "disk filled"
    MEMORY_LIMIT = "memory limit reached"
    CORE_VERDICT = "core verdict"
    CORE_FAULT = "core fault"
    TIMEOUT = "timeout"
    INTERRUPTED = "interrupted"


# Exit status of a rank that the end of the run stopped (the shim's kEndingStatus): not a failure of its own.
ENDED_WITH_RUN = 97
_MAX_MESSAGE = 300  # characters of an exception's message in our one-line messages


@dataclass
class Ending:
    """Why and how.

    Attributes:
        reason: What ended the run.
        rank: The first rank that failed.
        status: Its exit status; negative for a signal.
        exception: What it sent about its uncaught exception (see rank.py); empty otherwise.
        log_tail: Last lines of its output where there is no exception.
        fault: What went wrong in the core; for the user where the machine or a limit ended the run.
        stacks: Stacks per rank, asked for at a time-out or hang.
        oom_errors: Out-of-memory errors that torch raised, per rank.
        torch_version: As the zygote imported it.
        notes: For the report.
    """

    reason: Reason = Reason.COMPLETED
    rank: int = -1
    status: int = 0
    exception: dict[str, Any] = field(default_factory=dict)
    log_tail: str = ""
    fault: str = ""
    stacks: dict[int, str] = field(default_factory=dict)
    oom_errors: dict[int, int] = field(default_factory=dict)
    torch_version: str | None = None
    notes: list[str] = field(default_factory=list)

    def how(self) -> str:
        """Returns how the failed rank ended, as a phrase."""
        if self.exception:
            first = str(self.exception.get("message", "")).strip().splitlines()
            return f"{self.exception['type']}: {first[0][:_MAX_MESSAGE]}" if first else str(self.exception["type"])
        if self.status < 0:
            try:
                return f"killed by {signal.Signals(-self.status).name}"
            except ValueError:
                return f"killed by signal {-self.status}"
        return f"exit status {self.status}"
