"""What `phantora doctor` looks at: one function a thing, each says what it found and what to do. Changes nothing."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from phantora import native, profile_store, resolve
from phantora.errors import PhantoraError
from phantora.options import RunOptions
from phantora_runtime.quantities import format_bytes

_GIB = 1 << 30
_SMALL_MEMORY = 4 * _GIB  # a few ranks of a small model; 64 ranks of Llama-2-7B take about 4 GiB more
_SMALL_SHM = 64 << 20  # Docker's default; a DataLoader's batches need more
_TORCH = """
import importlib.util, json, pathlib, re, sys
spec = importlib.util.find_spec("torch")
found = {"python": "%d.%d" % sys.version_info[:2], "torch": None, "cuda": None}
if spec is not None and spec.origin:
    text = (pathlib.Path(spec.origin).parent / "version.py").read_text()
    for key, name in (("torch", "__version__"), ("cuda", "cuda")):
        match = re.search(rf"^{name}\\b[^=]*= *['\\"]([^'\\"]+)", text, re.M)
        found[key] = match.group(1) if match else None
print(json.dumps(found))
"""


@dataclass(frozen=True)
class Check:
    """One line of `phantora doctor`.

    Attributes:
        name: What was looked at.
        ok: True, False (something is missing), or None (worth knowing).
        found: What is there.
        do: What to do about it; empty when nothing.
        needed_by: The verbs that do not work without it.
    """

    name: str
    ok: bool | None
    found: str
    do: str = ""
    needed_by: tuple[str, ...] = ()


def all_checks() -> Iterator[Check]:
    """Looks at everything, in the order shown."""
    yield _installed("native files", native.native_folder)
    yield _installed("profiles", profile_store.profiles_folder)
    yield torch(resolve.interpreter(RunOptions()))
    yield compiler()
    yield docker()
    yield cgroups(Path("/sys/fs/cgroup"))
    yield cpus()
    yield memory(Path("/proc/meminfo"))
    yield hugepages(Path("/proc/meminfo"))
    yield shared_memory(Path("/dev/shm"))
    yield address_randomisation(Path("/proc/self/status"))
    yield glibc()


def _installed(name: str, find: Callable[[], Path]) -> Check:
    try:
        return Check(name, True, str(find()))
    except PhantoraError as error:
        return Check(name, False, str(error), "Install Phantora again.", ("run", "sandbox"))


def torch(python: Path) -> Check:
    """The torch that `run` would use, and for which GPUs it was built; torch itself is not imported."""
    needs = ("run",)
    install = "pip install 'phantora-sim[local]' there, or name another interpreter with --python."
    try:
        done = subprocess.run([str(python), "-c", _TORCH], capture_output=True, text=True, timeout=60, check=True)
        found = json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError):
        return Check("torch", False, f"{python} does not run", "Name another interpreter with --python.", needs)
    if found["torch"] is None:
        return Check("torch", False, f"none in {python} (Python {found['python']})", install, needs)
    if found["cuda"] is None:
        return Check("torch", False, f"{found['torch']} in {python} is a CPU-only torch",
                     "Install the build for CUDA 13 (PyPI's default): " + install, needs)  # fmt: skip
    text = f"{found['torch']} for CUDA {found['cuda']} in {python} (Python {found['python']})"
    if not found["cuda"].startswith("13."):
        return Check("torch", False, text, "This version simulates CUDA 13 only: " + install, needs)
    return Check("torch", True, text)


def compiler() -> Check:
    """For the torch adaptor of `run`; an image brings its own."""
    found = shutil.which(os.environ.get("CXX", "g++"))
    if found:
        return Check("C++ compiler", True, found)
    return Check("C++ compiler", False, "none", "Install g++: without it small tensors read as zeros under `run`.")


def docker() -> Check:
    """The Engine that `sandbox` would use."""
    from phantora.sandbox import engine

    try:
        version = engine.connect(("phantora", "doctor")).version()
    except PhantoraError as error:
        return Check("Docker Engine", False, error.found, error.do, ("sandbox",))
    return Check("Docker Engine", True, f"{version.get('Version')} ({version.get('Os')}/{version.get('Arch')})")


def cgroups(root: Path) -> Check:
    """Their version; limits and accounting of `sandbox` use either."""
    if (root / "cgroup.controllers").exists():
        return Check("cgroups", True, "version 2")
    if (root / "memory").exists() or (root / "cpu,cpuacct").exists():
        return Check("cgroups", True, "version 1")
    return Check("cgroups", None, f"none under {root}", "Limits of `sandbox` depend on the Engine's own machine.")


def cpus() -> Check:
    """CPUs that this process may use."""
    count = len(os.sched_getaffinity(0))
    advice = "Runs take longer with one CPU: ranks and simulator share it." if count == 1 else ""
    return Check("CPUs", True if count > 1 else None, str(count), advice)


def memory(meminfo: Path) -> Check:
    """Memory that is available now."""
    available = _meminfo(meminfo).get("MemAvailable", 0)
    if available >= _SMALL_MEMORY:
        return Check("memory", True, f"{format_bytes(available)} available")
    return Check("memory", None, f"{format_bytes(available)} available", "Enough for a few ranks only.")


def hugepages(meminfo: Path) -> Check:
    """Not needed; large parameters map faster with them."""
    numbers = _meminfo(meminfo)
    count = numbers.get("HugePages_Total", 0)
    size = format_bytes(numbers.get("Hugepagesize", 0))
    return Check("hugepages", None if count == 0 else True, f"{count} of {size}" if count else "none reserved")


def shared_memory(folder: Path) -> Check:
    """Where run segments and DataLoader batches lie under `run`."""
    try:
        free = shutil.disk_usage(folder).free
    except OSError as error:
        return Check(str(folder), False, str(error.strerror), "Mount a tmpfs there.", ("run",))
    if free <= _SMALL_SHM:
        return Check(str(folder), False, f"{format_bytes(free)} free", "Make it larger (docker: --shm-size 2g).")
    return Check(str(folder), True, f"{format_bytes(free)} free")


def address_randomisation(status: Path) -> Check:
    """Ranks run without it, which some seccomp profiles refuse; `sandbox` brings a profile that allows it."""
    from phantora_runtime import processes

    filtered = any(line.split() == ["Seccomp:", "2"] for line in _lines(status))
    where = "a seccomp filter is on" if filtered else "no seccomp filter"
    if processes.addresses_can_be_fixed():
        return Check("address randomisation", True, f"can be switched off ({where})")
    return Check("address randomisation", False, f"cannot be switched off ({where})",
                 "Runs work, but may differ from one to the next; allow personality(ADDR_NO_RANDOMIZE).")  # fmt: skip


def glibc() -> Check:
    """The native files need that of the machine which built them, or a later one."""
    name, version = platform.libc_ver()
    return Check("C library", name == "glibc", f"{name or 'unknown'} {version}".strip(),
                 "" if name == "glibc" else "Use a glibc system (Debian, Ubuntu, RHEL ...).",
                 () if name == "glibc" else ("run", "sandbox"))  # fmt: skip


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []


def _meminfo(path: Path) -> dict[str, int]:
    """Numbers of /proc/meminfo, in bytes where it says kB."""
    numbers = {}
    for line in _lines(path):
        name, _, rest = line.partition(":")
        words = rest.split()
        if words and words[0].isdigit():
            numbers[name] = int(words[0]) * (1024 if words[-1] == "kB" else 1)
    return numbers
