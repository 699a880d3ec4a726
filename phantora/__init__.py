"""Phantora: run an unmodified PyTorch training script as if on a cluster of GPUs, with no GPU."""

from phantora_runtime import __version__

__all__ = ["__version__"]
