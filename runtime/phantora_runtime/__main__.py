"""`python -m phantora_runtime RUNDIR`: runs what RUNDIR/run.json describes; the exit code is the run's."""

import signal
import sys
import traceback
from pathlib import Path

from phantora_runtime.exit_codes import ExitCode
from phantora_runtime.settings import UsageFault
from phantora_runtime.supervisor import ENDING_SIGNALS, supervise

if __name__ == "__main__":
    if len(sys.argv) != 2:
        print("usage: python -m phantora_runtime RUNDIR", file=sys.stderr)
        sys.exit(2)
    try:
        code = supervise(Path(sys.argv[1]).resolve())
    except UsageFault as fault:
        print(f"phantora: {fault}", file=sys.stderr)
        code = ExitCode.USAGE
    except Exception:  # a script's failure is told from ours by the exit code
        traceback.print_exc()
        print("phantora: This is a bug in Phantora; please report it with the lines above.", file=sys.stderr)
        code = ExitCode.OUR_BUG
    for number in ENDING_SIGNALS:  # the run has ended; one that comes now must not become its exit code
        signal.signal(number, signal.SIG_IGN)
    sys.exit(int(code))
