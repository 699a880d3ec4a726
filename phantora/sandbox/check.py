"""Refuses sandbox options that cannot work before an image is built for them, which takes minutes."""

from __future__ import annotations

import os
import re

from phantora.errors import UsageError
from phantora.options import RunOptions, SandboxOptions
from phantora.sandbox import mounts
from phantora_runtime.quantities import QuantityError, format_bytes, parse_bytes

_CPUS = re.compile(r"[0-9]{1,4}(-[0-9]{1,4})?(,[0-9]{1,4}(-[0-9]{1,4})?)*")
_VERSION = re.compile(r"[0-9]+(\.[0-9A-Za-z]+)*(\+[0-9A-Za-z.]+)?")
_IMAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:@-]*")
_LEAST_MEMORY = 256 << 20  # torch itself takes more


def check(options: RunOptions) -> None:
    """Refuses options that no machine can fulfil; limits.py compares them with this one.

    Raises:
        UsageError: One of them cannot be understood, or they contradict each other.
    """
    sandbox = options.sandbox
    check_image(sandbox)
    if sandbox.cpus is not None and not _is_set(sandbox.cpus):
        raise UsageError("CPU numbers for --cpus", f"'{sandbox.cpus}'", "Write for example --cpus 0-3 or --cpus 0,2.")
    _size("--memory", sandbox.memory, _LEAST_MEMORY)
    _size("--shm-size", sandbox.shm_size, 1)
    _check_mounts(sandbox.mounts)


def check_image(sandbox: SandboxOptions) -> None:
    """Refuses names that no image and no version of torch can have, and the user's own image beside one to be built.

    Raises:
        UsageError: One of them is such a name, or both kinds are asked for.
    """
    chosen = sandbox.base_image if sandbox.base_image != os.environ.get("PHANTORA_BASE_IMAGE") else None
    if sandbox.image and (chosen or sandbox.torch or sandbox.requirements):
        raise UsageError(
            "an image as it is (--image) or one to be built (--base-image, --torch, --requirements)",
            "both",
            "Leave one out.",
        )
    for option, name in (("--image", sandbox.image), ("--base-image", sandbox.base_image)):
        if name is not None and not _IMAGE.fullmatch(name):
            raise UsageError(f"an image name for {option}", f"'{name}'", "Write for example python:3.12-slim.")
    if sandbox.torch is not None and not _VERSION.fullmatch(sandbox.torch):
        raise UsageError("a version for --torch", f"'{sandbox.torch}'", "Write for example --torch 2.14.1.")


def _is_set(text: str) -> bool:
    if not _CPUS.fullmatch(text):
        return False
    ranges = [[int(end) for end in part.split("-")] for part in text.split(",")]
    return all(ends[0] <= ends[-1] for ends in ranges)


def _check_mounts(texts: tuple[str, ...]) -> None:
    taken: set[str] = set()
    for target in (mounts.parse(text).target for text in texts):
        if target in taken:
            raise UsageError("each --mount at a place of its own", f"two at {target}", "Name another DST.")
        taken.add(target)


def _size(option: str, text: str | None, least: int) -> None:
    if text is None:
        return
    try:
        size = parse_bytes(text)
    except QuantityError as error:
        raise UsageError(f"a size for {option}", str(error).rstrip("."), "Correct it.") from None
    if size < least:
        raise UsageError(f"{option} of {format_bytes(least)} or more", f"'{text}'", "Write for example 16GiB.")
