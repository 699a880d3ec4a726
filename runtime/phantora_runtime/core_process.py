"""Starts the simulator core and reads what it left: core.conf in, one line when ready, core_report.json out."""

from __future__ import annotations

import json
import os
import select
import subprocess
import time
from pathlib import Path
from typing import Any

from phantora_runtime import files, processes, settings, stacks
from phantora_runtime.exit_codes import ExitCode

_READY_WAIT_S = 30.0
_STACK_WAIT_MS = 300
# For tests alone: further lines of core.conf, `key=value` separated by commas.
EXTRA_VARIABLE = "PHANTORA_TEST_CORE"


class CoreFault(Exception):
    """The core did not start or did not end as it should: a bug of ours (exit code 5)."""


def config_text(run: settings.Run, oplog_fd: int) -> str:
    """Returns core.conf. Table paths become absolute here: only this machine knows where the profiles lie."""
    lines = dict(run.core)
    for key, value in lines.items():
        if key.startswith("table."):
            lines[key] = str(settings.profiles_folder() / str(value))
    lines["out_dir"] = str(run.folder)
    lines["oplog_fd"] = oplog_fd
    lines["core.stack_signal"] = int(stacks.STACK_SIGNAL)
    lines["core.stack_wait_ms"] = _STACK_WAIT_MS
    for extra in filter(None, os.environ.get(EXTRA_VARIABLE, "").split(",")):
        key, _, value = extra.partition("=")
        lines[key.strip()] = value.strip()
    return "".join(f"{key} = {_format(value)}\n" for key, value in lines.items())


def _format(value: Any) -> str:
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


class Core:
    """The running core."""

    def __init__(self, run: settings.Run, native: Path, oplog_fd: int) -> None:
        path = run.folder / "core.conf"
        files.write_own(path, config_text(run, oplog_fd))
        self._log_path = run.folder / "core.log"
        self._report_path = run.folder / "core_report.json"
        with open(self._log_path, "wb") as log:
            self.process = subprocess.Popen(
                [str(native / "phantora-core"), str(path)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                pass_fds=[oplog_fd],
                preexec_fn=processes.die_with_parent,
                start_new_session=True,
            )
        self.segment = self._wait_until_ready()

    def _wait_until_ready(self) -> str:
        """Returns the path that ranks open.

        Raises:
            UsageFault: The core refuses the configuration: a table of the user's own is malformed.
            EnvironmentFault: The machine does not let it start.
            CoreFault: It ends in another way, or says nothing for a long time.
        """
        out = self.process.stdout
        assert out is not None
        ready, _, _ = select.select([out], [], [], _READY_WAIT_S)
        words = out.readline().decode().split() if ready else []
        fields = dict(word.partition("=")[::2] for word in words[1:])
        if not words or words[0] != "ready" or "segment" not in fields:
            if not ready or words:  # else it ends by itself
                self.process.kill()
            status = self.process.wait()
            said = self.log_tail().removeprefix("phantora-core: ") or "it said nothing"
            if status == ExitCode.USAGE:
                said = said.replace(f"{self._log_path.parent}/", "")
                raise settings.UsageFault(
                    f"Wanted a profile that the simulator can read; found {said}. Correct that table or number in it."
                )
            if status == ExitCode.ENVIRONMENT:
                raise settings.EnvironmentFault(f"Wanted to start the simulator; found {said}. Make room for it.")
            raise CoreFault(f"The core did not start: {said}")
        return fields["segment"]

    def finish(self, ask: bool, wait_s: float) -> int:
        """Waits for the core's end and returns its exit status.

        Args:
            ask: Send SIGTERM first: write what is known and end.
            wait_s: Real time after which it is killed.
        """
        if ask and self.process.poll() is None:
            self.process.terminate()
        deadline = time.monotonic() + wait_s
        while self.process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)
        if self.process.poll() is None:
            self.process.kill()
        return self.process.wait()

    def report(self) -> dict[str, Any] | None:
        """Returns core_report.json, or None where the core left none."""
        try:
            content = json.loads(files.read_plain(self._report_path))
        except (OSError, ValueError):
            return None
        return content if isinstance(content, dict) else None

    def log_tail(self, lines: int = 5) -> str:
        """Returns the last lines of what the core said on stderr."""
        try:
            text = files.read_plain(self._log_path)
        except OSError:
            return ""
        return "\n".join(text.strip().splitlines()[-lines:])
