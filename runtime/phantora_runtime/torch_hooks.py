"""All that is put in torch's place: stores, gloo, spawn, and the adaptor for small ops."""

from __future__ import annotations

import importlib.util
import sys
from typing import Any

from phantora_runtime import control, data_loader, spawn


def install(null_mode: bool = False) -> None:
    """Patches torch, which must be imported; safe to call twice.

    Args:
        null_mode: There is no core: stores and gloo stay torch's own.
    """
    torch: Any = sys.modules["torch"]
    if getattr(torch, "_phantora_hooks", False):
        return
    torch._phantora_hooks = True
    spawn.install()
    if not null_mode:
        data_loader.install()
    if torch.distributed.is_available() and not null_mode:
        from phantora_runtime import gloo, stores

        stores.install()
        gloo.install()
    _load_adaptor()


def _load_adaptor() -> None:
    if importlib.util.find_spec("phantora_runtime.adaptor") is None:
        return
    from phantora_runtime import adaptor

    if not adaptor.load():
        control.send(
            "note", text="The torch adaptor could not be loaded, so small ops on the GPU read as zeros; see zygote.log."
        )
