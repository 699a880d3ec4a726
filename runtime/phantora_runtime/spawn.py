"""torch.multiprocessing.spawn in a script that starts its own ranks: each rank runs the function in place."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any


def is_own_launch(nprocs: int) -> bool:
    """Would this spawn start one process per GPU of the node, which are our ranks already?"""
    return "LOCAL_WORLD_SIZE" in os.environ and nprocs == int(os.environ["LOCAL_WORLD_SIZE"])


class _Finished:
    """What `spawn(..., join=False)` returns: processes that have all ended well."""

    processes: tuple[Any, ...] = ()

    def pids(self) -> list[int]:
        return []

    def join(self, timeout: float | None = None, grace_period: float | None = None) -> bool:
        return True


def install() -> None:
    """Replaces torch.multiprocessing.spawn; other numbers of processes still start processes."""
    multiprocessing: Any = sys.modules["torch"].multiprocessing
    original = multiprocessing.spawn  # the function, which hides the module of that name

    def spawn(
        fn: Callable[..., Any],
        args: tuple[Any, ...] = (),
        nprocs: int = 1,
        join: bool = True,
        daemon: bool = False,
        start_method: str = "spawn",
    ) -> Any:
        if not is_own_launch(nprocs):
            return original(fn, args, nprocs, join, daemon, start_method)
        fn(int(os.environ["LOCAL_RANK"]), *args)
        return None if join else _Finished()

    spawn.__doc__ = original.__doc__
    multiprocessing.spawn = spawn
    module = sys.modules.get("torch.multiprocessing.spawn")
    if module is not None:
        module.spawn = spawn  # type: ignore[attr-defined]
