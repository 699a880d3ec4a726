"""Makes the image of a sandboxed run if it is not there yet; lists and removes such images."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from phantora.errors import PhantoraError, UsageError
from phantora.options import SandboxOptions
from phantora.sandbox import engine
from phantora.sandbox.context import BuildContext, pip_settings

DEFAULT_BASE_IMAGE = "python:3.12-slim"
DEFAULT_TORCH = "2.14.1"
REPOSITORY = "phantora"
LABEL = "org.phantora.image"

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_CAUSE = re.compile(r"\s*(ERROR: |E: |phantora: |.*No space left on device)")  # of pip, apt, ours, of a full disk
_NO_SPACE = re.compile("no space left on device", re.IGNORECASE)
_NO_IMAGE = ("pull access denied", "no such host", "registry", "manifest unknown")
_NO_PACKAGE = re.compile("No matching distribution|ResolutionImpossible|Invalid requirement|Cannot install")
_LINE_LENGTH = 110
_TAIL_LINES = 25

Log = Callable[[str], None]


def log_to_stderr(line: str) -> None:
    """The default destination of the build's output."""
    print(line, file=sys.stderr, flush=True)


def build_context(client: Any, options: SandboxOptions) -> BuildContext:
    """Returns what the options ask for as a build context.

    Raises:
        UsageError: A file they name cannot be read.
    """
    base = options.base_image or os.environ.get("PHANTORA_BASE_IMAGE") or DEFAULT_BASE_IMAGE
    bundle = options.ca_bundle or os.environ.get("PHANTORA_CA_BUNDLE")
    return BuildContext(
        base_image=base,
        base_identity=_local_identity(client, base),
        torch=options.torch or DEFAULT_TORCH,
        requirements=_read(options.requirements, "--requirements") if options.requirements else b"",
        ca_bundle=_read(Path(bundle), "--ca-bundle") if bundle else b"",
        environment=pip_settings(),
    )


def ensure(client: Any, options: SandboxOptions, log: Log = log_to_stderr, rebuild: bool = False) -> str:
    """Returns the name of an image for these options, built now if it is missing.

    Raises:
        PhantoraError: The build failed; the message has its last lines (exit code 3).
    """
    context = build_context(client, options)
    tag = f"{REPOSITORY}:{context.torch.replace('+', '_')}-{context.digest()}"
    if rebuild or not _is_there(client, tag):
        log(f"phantora: building image {tag} from {context.base_image} (once; a few minutes)")
        _build(client, context, tag, log)
    return tag


def ensure_compiler(client: Any, options: SandboxOptions, log: Log) -> str:
    """Returns the name of an image with a C++ compiler, built now from the base image if it is missing.

    Raises:
        PhantoraError: The build failed; the message has its last lines (exit code 3).
    """
    context = build_context(client, options)
    tag = f"{REPOSITORY}:compiler-{context.compiler_digest()}"
    if not _is_there(client, tag):
        log(f"phantora: building image {tag} from {context.base_image} (once; a minute)")
        _build(client, context, tag, log, stage="compiler")
    return tag


def _is_there(client: Any, name: str) -> bool:
    from docker.errors import ImageNotFound

    with engine.named(f"the image {name}"), suppress(ImageNotFound):
        client.images.get(name)
        return True
    return False


def _build(client: Any, context: BuildContext, tag: str, log: Log, stage: str = "") -> None:
    """Builds the whole Dockerfile, or up to a stage of it."""
    said: list[str] = []
    sent = context.tar()
    with engine.named(f"an image built from {context.base_image}"):
        events = client.api.build(
            fileobj=sent,
            custom_context=True,
            tag=tag,
            target=stage,
            buildargs={"BASE_IMAGE": context.base_image, "TORCH": context.torch},
            rm=True,
            forcerm=True,
            decode=True,
        )
        rest = ""
        for event in events:
            if "error" in event:
                said.append(rest)
                raise _build_error(context, _COLOUR.sub("", event["error"]).strip(), said)
            # Pieces of output, not lines of it.
            *lines, rest = (rest + _COLOUR.sub("", str(event.get("stream", "")))).replace("\r", "\n").split("\n")
            said += lines
            for line in lines:
                if line.startswith("Step "):
                    log(f"  {line[:_LINE_LENGTH]}")


def _build_error(context: BuildContext, message: str, said: list[str]) -> PhantoraError:
    """Shows the end of the build's output, and says in one line what failed."""
    failed = re.search(r"returned a non-zero code: (\d+)", message)
    tail = [line.rstrip() for line in said if line.strip()][-_TAIL_LINES:] if failed else []
    for line in tail:
        log_to_stderr(f"  {line}")
    found = f"a build step that ended with code {failed[1]}" if failed else message
    causes = [line.strip() for line in tail if _CAUSE.match(line)]
    if causes:
        found += f": {causes[-1]}"
    text = "\n".join([message, *tail])
    do = "The lines above are the end of the build's output." if failed else "Check the Docker Engine."
    if "CERTIFICATE_VERIFY_FAILED" in text or "certificate verify failed" in text:
        do = "Behind a proxy with its own certificate, name its CA file with --ca-bundle or PHANTORA_CA_BUNDLE."
    elif _NO_SPACE.search(text):
        do = "Make room where the Docker Engine keeps its images (`docker system df`, `phantora image prune`)."
    elif any(words in message for words in _NO_IMAGE):
        do = "Where no registry is reached, name an image of this machine with --base-image or PHANTORA_BASE_IMAGE."
    elif _NO_PACKAGE.search(text):
        do = "Correct --requirements or --torch, or name a package index that has it with PIP_INDEX_URL."
    return PhantoraError(f"an image built from {context.base_image}", found.rstrip("."), do)


def _local_identity(client: Any, name: str) -> str:
    from docker.errors import APIError

    try:
        return str(client.images.get(name).id)
    except APIError:
        return name


def _read(path: Path, option: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UsageError(f"a readable file for {option}", f"{error.strerror}: {path}", "Correct the path.") from None


def present(client: Any) -> list[tuple[str, int]]:
    """Returns name and size in bytes of every image made here, by name."""
    rows = []
    with engine.named("a list of images"):
        for image in client.images.list(filters={"label": LABEL}):
            rows += [(tag, int(image.attrs["Size"])) for tag in image.tags]
    return sorted(rows)


def prune(client: Any, log: Log = log_to_stderr) -> tuple[list[tuple[str, int]], int]:
    """Removes the images made here that no container uses, and the stages that building them left behind.

    Returns:
        Name and size in bytes of each image that went, and the bytes that the stages took.
    """
    from docker.errors import APIError

    removed = []
    for name, size in present(client):
        with engine.named(f"to remove {name}"):
            try:
                client.images.remove(name)
                removed.append((name, size))
            except APIError as error:
                log(f"phantora: {name} stays: {error.explanation}")
    with engine.named("to remove build stages"):
        stages = client.images.prune(filters={"dangling": True, "label": LABEL})
    return removed, int(stages["SpaceReclaimed"])
