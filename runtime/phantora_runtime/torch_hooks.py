"""Everything that is put in torch's place in processes with virtual time: stores, gloo, spawn, the adaptor for small ops."""

from __future__ import annotations

import importlib.util
import sys

from phantora_runtime import bridge, spawn


def install() -> None:
    """Patches torch, which must be imported; safe to call twice."""
    torch = sys.modules["torch"]
    if getattr(torch, "_phantora_hooks", False):
        return
    torch._phantora_hooks = True
    spawn.install()
    if torch.distributed.is_available():
        from phantora_runtime import gloo, stores

        stores.install()
        gloo.install()
    _load_adaptor()


def _load_adaptor() -> None:
    if importlib.util.find_spec("phantora_runtime.adaptor") is None:
        return
    from phantora_runtime import adaptor

    try:
        adaptor.load()
    except Exception as error:
        bridge.note("note", f"The torch adaptor could not be loaded, so small ops on the GPU read as zeros: {error}")
