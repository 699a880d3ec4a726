"""`python -m phantora_runtime RUNDIR`: runs what RUNDIR/run.json describes; the exit code is the run's."""

import sys
from pathlib import Path

from phantora_runtime.supervisor import supervise

if __name__ == "__main__":
    if len(sys.argv) != 2:
        print("usage: python -m phantora_runtime RUNDIR", file=sys.stderr)
        sys.exit(2)
    sys.exit(int(supervise(Path(sys.argv[1]).resolve())))
