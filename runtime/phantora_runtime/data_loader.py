"""DataLoader: a rank goes on when the batch it wants is ready, whichever batch happens to arrive first in real time."""

from __future__ import annotations

import sys
from typing import Any

from phantora_runtime import handoff


def install() -> None:
    """Hooks the iterator that reads from workers; torch.utils.data must be imported."""
    cls: Any = sys.modules["torch.utils.data.dataloader"]._MultiProcessingDataLoaderIter
    receive, process = cls._try_get_data, cls._process_data

    def _try_get_data(self: Any, *arguments: Any, **named: Any) -> Any:
        with handoff.holding() as clocks:
            success, data = receive(self, *arguments, **named)
        if success and isinstance(data, tuple) and data and isinstance(data[0], int):
            self.__dict__.setdefault("_phantora_clocks", {})[data[0]] = max(clocks, default=0)
        return success, data

    def _process_data(self: Any, *arguments: Any, **named: Any) -> Any:
        clocks = self.__dict__.get("_phantora_clocks", {})
        wanted = clocks.pop(self._rcvd_idx - 1, None)
        if wanted is None and clocks:  # out of order on purpose: what has arrived is what is wanted
            wanted = clocks.pop(next(iter(clocks)))
        handoff.join_ns(wanted or 0)
        return process(self, *arguments, **named)

    cls._try_get_data, cls._process_data = _try_get_data, _process_data
