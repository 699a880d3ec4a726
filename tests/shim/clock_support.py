"""Runs small programs as ranks under the preloaded shim and a stand-in core, for the tests of the clock."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
from fake_core import FakeCore

ROOT = Path(__file__).resolve().parents[2]
HOST_SOURCES = ("client*.cpp", "api.cpp", "libc/*.cpp")
EPOCH_NS = 1_700_000_000_000_000_000

SHOW_BUILD_ID = (
    "import ctypes; show = ctypes.CDLL(None).phantora_build_id; show.restype = ctypes.c_char_p; print(show().decode())"
)

# Every rank program starts like this; `result(...)` is what the test reads.
PRELUDE = """
import ctypes, json, os, sys, threading, time
shim = ctypes.CDLL(None)
for name in ("now", "stamp"):
    getattr(shim, f"phantora_{name}_ns").restype = ctypes.c_uint64
shim.phantora_join_ns.argtypes = shim.phantora_advance_ns.argtypes = [ctypes.c_uint64]
def now(): return shim.phantora_now_ns()
def result(**values): os.write(1, (json.dumps(values) + "\\n").encode())
shim.phantora_attach(int(os.environ["RANK"]))
"""


def find_library(folder: Path) -> Path:
    """The built shim: installed, from `make native`, or the host half compiled here."""
    candidates = [ROOT / "phantora/_native", ROOT / "build/native", ROOT / "build/native/phantora/_native"]
    if "PHANTORA_NATIVE" in os.environ:
        candidates.insert(0, Path(os.environ["PHANTORA_NATIVE"]))
    for candidate in candidates:
        if (candidate / "libphantora_shim.so").exists():
            return candidate / "libphantora_shim.so"
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.fail("no built shim and no g++: run `make native`")
    stub = folder / "values.cpp"
    stub.write_text("namespace phantora::client { void drain_values() {} }\n")
    sources = [str(path) for pattern in HOST_SOURCES for path in sorted((ROOT / "shim/src").glob(pattern))]
    library = folder / "libphantora_shim.so"
    subprocess.run(
        [compiler, "-std=c++20", "-O1", "-fPIC", "-shared", "-ftls-model=initial-exec", "-fno-builtin-dlsym",
         "-static-libstdc++", "-static-libgcc", "-Wl,-Bsymbolic-functions", f"-I{ROOT}/shim/include",
         f"-I{ROOT}/shim/src", *sources, str(stub), "-o", str(library)],
        check=True,
    )  # fmt: skip
    return library


class RealCore:
    """The built simulator core on a configuration for tests; the same options as FakeCore takes."""

    errors: ClassVar[list[str]] = []

    def __init__(self, program: Path, folder: Path, world: int, **options: Any) -> None:
        lines = {
            "world_size": world, "gpus_per_node": options.get("per_node", 8), "nodes": 1, "steps": "all",
            "seed": options.get("seed", 7), "epoch_ns": EPOCH_NS, "clock": "modelled",
            "cpu_count": options.get("cpus", 3), "out_dir": folder,
            "warmup": 1, "gpu.total_bytes": 1 << 30, "core.costs": "unit", "ring_slots": options.get("slots", 256),
        }  # fmt: skip
        conf = folder / "core.conf"
        conf.write_text("".join(f"{name} = {value}\n" for name, value in lines.items()))
        self.process = subprocess.Popen([program, conf], stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        ready = self.process.stdout.readline().split()
        assert ready and ready[0] == "ready", f"the core did not start: {ready}"
        self.segment = dict(word.split("=", 1) for word in ready[1:])["segment"]
        self.actors: list[Any] = []

    def end(self) -> None:
        """Ends the run."""
        self.process.terminate()

    def close(self) -> None:
        """Ends the core."""
        self.process.terminate()
        self.process.wait(timeout=20)


class Run:
    """One simulated run whose ranks are Python texts."""

    def __init__(self, library: Path, folder: Path, world: int, core: Path | None = None, **options: Any) -> None:
        shown = subprocess.run(
            [sys.executable, "-c", SHOW_BUILD_ID],
            env={**os.environ, "LD_PRELOAD": str(library)}, check=True, capture_output=True, text=True,
        )  # fmt: skip
        self.library, self.folder, self.world = library, folder, world
        self.started: list[subprocess.Popen[str]] = []
        self.core: Any
        if core is None:
            build_id = options.pop("build_id", shown.stdout.strip())
            self.core = FakeCore(ROOT, folder, build_id, world, epoch_ns=EPOCH_NS, **options)
        else:
            self.core = RealCore(core, folder, world, **options)

    def start(self, rank: int, program: str, **environment: str) -> subprocess.Popen[str]:
        """Starts one rank."""
        variables = {
            **{name: value for name, value in os.environ.items() if not name.startswith("PHANTORA_")},
            "LD_PRELOAD": str(self.library), "PHANTORA_SEGMENT": self.core.segment, "RANK": str(rank),
            "WORLD_SIZE": str(self.world), "PYTHONHASHSEED": "0", **environment,
        }  # fmt: skip
        process = subprocess.Popen([sys.executable, "-c", PRELUDE + textwrap.dedent(program)], env=variables, text=True,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)  # fmt: skip
        self.started.append(process)
        return process

    def close(self) -> None:
        """Ends what still runs."""
        for process in self.started:
            if process.poll() is None:
                process.kill()
            process.wait()
        self.core.close()

    def finish(self, *ranks: subprocess.Popen[str], timeout: float = 30, status: int = 0) -> list[dict]:
        """Waits for ranks; returns what each handed to `result`."""
        results = []
        for process in ranks:
            try:
                out, errors = process.communicate(timeout=timeout)
            except subprocess.TimeoutExpired:
                process.kill()
                out, errors = process.communicate()
                pytest.fail(f"a rank hangs; printed {out!r} {errors!r}; core: {self.core.actors}")
            assert process.returncode == status, (process.returncode, out, errors)
            values: dict = {}
            for line in out.splitlines():
                values.update(json.loads(line))
            results.append(values)
        assert self.core.errors == []
        return results

    def one(self, program: str, **environment: str) -> dict:
        """Runs rank 0 alone."""
        return self.finish(self.start(0, program, **environment))[0]


@pytest.fixture(scope="session")
def clock_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library under test."""
    return find_library(tmp_path_factory.mktemp("shim"))


@pytest.fixture(params=["stand-in", "core"])
def run_on(request: pytest.FixtureRequest, clock_library: Path, tmp_path: Path) -> Iterator:
    """As run_of, once on the stand-in and once on the simulator core itself."""
    core = None if request.param == "stand-in" else clock_library.parent / "phantora-core"
    if core is not None and not core.exists():
        pytest.skip("no phantora-core beside the shim: run `make native`")
    runs: list[Run] = []

    def make(world: int = 1, **options: Any) -> Run:
        runs.append(Run(clock_library, tmp_path, world, core, **options))
        return runs[-1]

    yield make
    for run in runs:
        run.close()


@pytest.fixture
def run_of(clock_library: Path, tmp_path: Path) -> Iterator:
    """Makes runs and closes their cores."""
    runs: list[Run] = []

    def make(world: int = 1, **options: Any) -> Run:
        runs.append(Run(clock_library, tmp_path, world, **options))
        return runs[-1]

    yield make
    for run in runs:
        run.close()


def c_program(folder: Path, name: str, source: str) -> Path:
    """Compiles a C++ program."""
    path, program = folder / f"{name}.cpp", folder / name
    path.write_text(source)
    subprocess.run(["g++", "-std=c++20", "-O1", "-pthread", path, "-o", program, "-ldl"], check=True)
    return program


__all__ = ["EPOCH_NS", "PRELUDE", "ROOT", "Run", "c_program", "clock_library", "ctypes", "run_of", "run_on"]
