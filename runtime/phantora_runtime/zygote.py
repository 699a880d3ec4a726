"""Imports torch and the script's libraries once, then forks one rank per GPU and tells the supervisor how each ends.

Started by the supervisor as `python -c "..." RUNDIR` with the shim preloaded. A library that starts threads or
initialises CUDA when it is imported must not be forked from: the zygote then starts over without it, and the ranks
import it themselves.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from phantora_runtime import control, processes, rank, script_imports, settings

LEFT_OUT_VARIABLE = "PHANTORA_LEFT_OUT"
START_ORDER_VARIABLE = "PHANTORA_START_ORDER"
# In a container of their own, ranks leave the CPU to supervisor and core, which must be heard whatever a script starts.
_BEHIND = 19
_COMMAND = "from phantora_runtime.zygote import main; main()"
# Torch imports these at the first optimizer or sharded module: 45 MB and seconds of CPU in every rank if left to them.
_LAZY_IN_TORCH = ("torch._dynamo",)


def command(python: str, run_directory: Path) -> list[str]:
    """Returns the command line that starts a zygote."""
    return [python, "-c", _COMMAND, str(run_directory)]


def main() -> None:
    """Entry point."""
    processes.die_with_parent()
    processes.be_killed_first()
    folder = Path(sys.argv[1])
    run = settings.read(folder)
    if run.sandboxed:
        os.nice(_BEHIND)
    os.chdir(run.launch.directory)
    # Libraries may read the command line when they are imported; the script's folder is not theirs to search.
    rank.set_arguments(run)
    sys.path.pop(0)
    left_out = [name for name in os.environ.get(LEFT_OUT_VARIABLE, "").split(",") if name]
    _import_torch(run)
    with _device_count_as_in_ranks(run.launch.gpus_per_node):
        wanted = script_imports.find(run.launch.script, run.launch.module, run.launch.directory)
        for name in [*wanted, *(_LAZY_IN_TORCH if "torch" in sys.modules else ())]:
            if name not in left_out:
                _import_library(name, left_out, folder)
    gc.collect()
    gc.freeze()
    control.send("imported", modules=len(sys.modules), left_out=left_out)
    _watch(_fork_ranks(run))


def _import_torch(run: settings.Run) -> None:
    if importlib.util.find_spec("torch") is None:
        control.send("no_torch", python=sys.executable)
        if "PHANTORA_ALLOW_NO_TORCH" not in os.environ:
            os._exit(3)
        return
    control.send("importing", name="torch")
    import torch

    control.send("torch", version=torch.__version__)
    rank.prepare_torch(run)


def _import_library(name: str, left_out: list[str], folder: Path) -> None:
    threads = _threads()
    control.send("importing", name=name)
    try:
        importlib.import_module(name)
    except BaseException as error:
        control.send("import_failed", name=name, error=repr(error))
        return  # the rank fails, or handles it, as it would without us
    if _threads() > threads or _cuda_initialised():
        os.environ[LEFT_OUT_VARIABLE] = ",".join([*left_out, name])
        os.execv(sys.executable, command(sys.executable, folder))


@contextlib.contextmanager
def _device_count_as_in_ranks(count: int) -> Iterator[None]:
    """Libraries may ask for the number of GPUs when imported; torch itself would then refuse CUDA in our forks."""
    torch: Any = sys.modules.get("torch")
    if torch is None:
        yield
        return
    saved = torch._C._cuda_getDeviceCount, torch.cuda._device_count_nvml
    torch._C._cuda_getDeviceCount, torch.cuda._device_count_nvml = lambda: count, lambda: -1
    try:
        yield
    finally:
        torch._C._cuda_getDeviceCount, torch.cuda._device_count_nvml = saved


def _threads() -> int:
    return len(os.listdir("/proc/self/task"))


def _cuda_initialised() -> bool:
    """Would torch refuse CUDA in a fork of this process? Tried in one that is thrown away."""
    torch: Any = sys.modules.get("torch")
    if torch is None:
        return False
    if torch.cuda.is_initialized():
        return True
    pid = os.fork()
    if pid == 0:
        os._exit(int(torch.cuda._is_in_bad_fork()))
    return os.waitpid(pid, 0)[1] != 0


def start_order(world_size: int, order: str) -> list[int]:
    """Returns the order in which ranks are forked: ascending, or shuffled by `shuffle:<n>` (for tests)."""
    ranks = list(range(world_size))
    if order.startswith("shuffle:"):
        random.Random(int(order.partition(":")[2])).shuffle(ranks)
    return ranks


def _fork_ranks(run: settings.Run) -> dict[int, int]:
    """Returns rank by pid; in a rank it does not return."""
    pids: dict[int, int] = {}
    zygote = os.getpid()
    for number in start_order(run.launch.world_size, os.environ.get(START_ORDER_VARIABLE, "")):
        pid = os.fork()
        if pid == 0:
            processes.die_with_parent()
            if os.getppid() != zygote:
                os._exit(1)
            rank.run(run, number)
        pids[pid] = number
        control.send("started", rank=number, pid=pid)
    return pids


def _watch(ranks: dict[int, int]) -> None:
    left = dict(ranks)
    while left:
        pid, status = os.waitpid(-1, 0)
        number = left.pop(pid, None)
        if number is not None:
            control.send("exited", rank=number, status=os.waitstatus_to_exitcode(status))
    os._exit(0)
