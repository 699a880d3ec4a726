"""Child processes of a rank that start a fresh Python: the hooks that a forked child inherits are put in again."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
from collections.abc import Sequence
from types import ModuleType

from phantora_runtime import handoff


def prepare() -> None:
    """At interpreter start: hand-offs now, torch's hooks once torch has been imported."""
    handoff.install()
    if "torch" not in sys.modules:
        sys.meta_path.insert(0, _AfterTorch())


class _AfterTorch(importlib.abc.MetaPathFinder):
    """Lets others find torch, and runs our hooks after it has been executed."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != "torch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec("torch")
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                execute(module)
                from phantora_runtime import torch_hooks

                torch_hooks.install()

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec
