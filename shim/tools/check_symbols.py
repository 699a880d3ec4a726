"""Checks that every function of NVIDIA's libraries that an installed torch imports has a row in shim/table.

usage: check_symbols.py [SITE_PACKAGES]     (default: where the running interpreter finds torch)
Exit status 1 names what is missing.
"""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

from shim_table import read_libraries, read_table

FAMILY = re.compile(
    r"^(__cuda|cuda|cu[A-Z]|cublas|cudnn|nccl|curand|cufft|cusolver|cusparse|nvrtc|nvshmem|cuFile|cupti|nvml|nvtx|nvJit)"
)
FROM_TORCH = re.compile(r"^lib(c10|torch|shm|caffe2|gomp)")
SYSTEM = re.compile(r"^(lib(c|m|dl|rt|pthread|stdc\+\+|gcc_s)\.so|ld-linux)")


def output(*command: str) -> str:
    """Standard output of a binutils command."""
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def site_packages() -> Path:
    """The folder that holds torch."""
    if len(sys.argv) > 1:
        return Path(sys.argv[1])
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        sys.exit("check_symbols: no torch here; give the site-packages folder that holds it")
    return Path(spec.origin).parent.parent


def main() -> int:
    """Entry point."""
    folder = Path(__file__).parent.parent / "table"
    rows = {row.name for row in read_table(folder)}
    sonames = {soname for library in read_libraries(folder) for soname in library.sonames}
    libraries = sorted((site_packages() / "torch" / "lib").glob("lib*.so"))
    imported: set[str] = set()
    needed: set[str] = set()
    for library in libraries:
        for line in output("nm", "-D", "--undefined-only", str(library)).splitlines():
            imported.add(line.split()[-1].split("@")[0])
        needed |= set(re.findall(r"\(NEEDED\).*\[(.+)\]", output("readelf", "-d", str(library))))
    wanted = {name for name in imported if FAMILY.match(name)}
    missing = sorted(wanted - rows)
    unnamed = sorted(n for n in needed - sonames if not FROM_TORCH.match(n) and not SYSTEM.match(n))
    for name in missing:
        print(f"no row for {name}")
    for name in unnamed:
        print(f"no soname row for {name}")
    print(f"{len(wanted)} functions imported by {len(libraries)} libraries of torch, {len(missing)} without a row")
    return 1 if missing or unnamed else 0


if __name__ == "__main__":
    sys.exit(main())
