"""Writes phantora/sandbox/seccomp.json from the default profile of the Docker Engine.

Usage: make_seccomp.py DEFAULT_JSON, where DEFAULT_JSON is profiles/seccomp/default.json of moby (Apache-2.0); Debian's
golang-github-docker-docker-dev carries it. The file in this repository was made from version 20.10.24.

The changes are those that `change` makes, and nothing else.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

ADDR_NO_RANDOMIZE = 0x0040000
OUTPUT = Path(__file__).resolve().parents[1] / "phantora" / "sandbox" / "seccomp.json"


def change(profile: dict[str, Any]) -> None:
    """Lets a process switch address randomisation off; takes io_uring away as later Engines do, and ptrace.

    The script and the simulator have one user id, so ptrace would let the one into the other.
    """
    for rule in profile["syscalls"]:
        rule["names"] = [name for name in rule["names"] if not name.startswith("io_uring_") and name != "ptrace"]
    profile["syscalls"] = [rule for rule in profile["syscalls"] if rule["names"]]
    profile["syscalls"].append(
        {
            "names": ["personality"],
            "action": "SCMP_ACT_ALLOW",
            "args": [{"index": 0, "value": ADDR_NO_RANDOMIZE, "op": "SCMP_CMP_EQ"}],
            "comment": "Phantora: ranks run without address randomisation, so that two runs give equal op logs",
            "includes": {},
            "excludes": {},
        }
    )


def main() -> None:
    """Reads the default profile named on the command line and writes ours."""
    profile = json.loads(Path(sys.argv[1]).read_text())
    change(profile)
    OUTPUT.write_text(json.dumps(profile, indent=1) + "\n")


if __name__ == "__main__":
    main()
