"""DataLoader: a rank goes on when the batch it wants is ready, whichever batch happens to arrive first in real time.

Pinned batches do not come from torch's caching allocator for pinned memory. The pinning thread shares that with the
main thread: which of the two finds a block to reuse, asks for an event or records one depends on real time, and
whatever the main thread does costs it virtual time. A batch's own page-locked pages are the same to the script and to
copies; what is lost is about 1.5 microseconds of the main thread for each pinned tensor (an event recorded, asked for).
"""

from __future__ import annotations

import functools
import mmap
import sys
import threading
from typing import Any

from phantora_runtime import handoff

_thread = threading.local()


def install() -> None:
    """Hooks DataLoader's parts that run in a rank; torch.utils.data must be imported."""
    _hook_iterator()
    _hook_pinning()


def _hook_iterator() -> None:
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


class _Pages(mmap.mmap):
    """Page-locked pages of one tensor; unlocked when its storage goes, in whichever thread that is."""

    unlock: Any = None

    def __del__(self) -> None:
        if self.unlock is not None:
            self.unlock()


def _hook_pinning() -> None:
    torch: Any = sys.modules["torch"]
    loops: Any = sys.modules["torch.utils.data._utils.pin_memory"]
    loop, pin = loops._pin_memory_loop, torch.Tensor.pin_memory

    def _pin_memory_loop(*arguments: Any, **named: Any) -> None:
        _thread.pins = True
        loop(*arguments, **named)

    def pin_memory(self: Any, *arguments: Any, **named: Any) -> Any:
        plain = type(self) is torch.Tensor and self.layout is torch.strided and self.device.type == "cpu"
        if not getattr(_thread, "pins", False) or not plain or self.numel() == 0 or self.is_pinned():
            return pin(self, *arguments, **named)
        return _pinned_copy(torch, self)

    loops._pin_memory_loop, torch.Tensor.pin_memory = _pin_memory_loop, pin_memory


def _pinned_copy(torch: Any, tensor: Any) -> Any:
    extent = 1 + sum((size - 1) * stride for size, stride in zip(tensor.size(), tensor.stride(), strict=True))
    pages = _Pages(-1, extent * tensor.element_size())
    memory = torch.frombuffer(pages, dtype=torch.uint8)
    runtime = torch.cuda.cudart()
    if int(runtime.cudaHostRegister(memory.data_ptr(), len(pages), 0)) == 0:
        pages.unlock = functools.partial(runtime.cudaHostUnregister, memory.data_ptr())
    copy = torch.empty(0, dtype=tensor.dtype)
    copy.set_(memory.untyped_storage(), 0, tensor.size(), tensor.stride())
    return copy.copy_(tensor)
