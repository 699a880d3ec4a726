"""Says as JSON what the Python that runs it is, and which torch it finds.

Runs in the user's own image before anything else of Phantora: any Python 3 must understand it.
"""

import json
import os
import sys


def _glibc() -> str:
    try:
        return (os.confstr("CS_GNU_LIBC_VERSION") or "").replace("glibc ", "")
    except (OSError, ValueError):  # another C library
        return ""


def _torch() -> "dict[str, object] | None":
    from phantora_runtime.adaptor import Torch

    torch = Torch.find()
    if torch is None:
        return None
    return {**vars(torch), "root": str(torch.root), "has_cuda": torch.has_cuda()}


print(json.dumps({
    "python": sys.version_info[:2],
    "glibc": _glibc(),
    "torch": _torch() if sys.version_info >= (3, 10) else None,
}))  # fmt: skip
