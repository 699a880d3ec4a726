"""The user's own image (--image): used as it is, with Phantora's files mounted into it.

It needs a Python, a glibc that the native files accept, and torch: a short container looks before the run. The torch
adaptor fits one build of torch. It is compiled where a compiler is (image.ensure_compiler), against the headers of the
torch in the image, and kept in a cache of this machine.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from importlib import resources
from pathlib import Path, PurePosixPath
from typing import Any

from phantora import profile_store, stubs
from phantora.errors import PhantoraError
from phantora.native import FILES, native_folder
from phantora.options import SandboxOptions
from phantora.sandbox import engine, image, jobs
from phantora.sandbox.container import user
from phantora.sandbox.context import BUILD_FOLDER
from phantora.sandbox.elf import needed_glibc
from phantora.sandbox.mounts import PREFIX, Mount
from phantora_runtime import adaptor

PYTHON = "python3"
ADAPTORS = f"{PREFIX}/adaptor"
_OLDEST_PYTHON = (3, 10)
_CUDA = "13."


@dataclass(frozen=True)
class Facts:
    """What an image has.

    Attributes:
        python: Major and minor version.
        glibc: Major and minor version; empty: another C library.
        torch: None: its Python finds none.
        has_cuda: That torch was built for CUDA.
    """

    python: tuple[int, ...]
    glibc: tuple[int, ...]
    torch: adaptor.Torch | None
    has_cuda: bool = False

    @classmethod
    def parse(cls, text: str) -> Facts:
        """Reads what probe.py printed."""
        found = json.loads(text)
        torch = found["torch"] or {}
        has_cuda = torch.pop("has_cuda", False)
        glibc = tuple(map(int, re.findall(r"\d+", found["glibc"])[:2]))
        built = adaptor.Torch(**{**torch, "root": Path(torch["root"])}) if torch else None
        return cls(tuple(found["python"]), glibc, built, has_cuda)


def prepare(client: Any, options: SandboxOptions, log: image.Log) -> list[Mount]:
    """Returns the mounts that make the user's image (`options.image`) one that ranks can run in.

    Raises:
        PhantoraError: There is no such image, or it lacks something (exit code 3).
    """
    name = str(options.image)
    _pull_if_missing(client, name, log)
    mounts = own_files()
    facts = _look(client, name, mounts)
    check(name, facts, max(needed_glibc((native_folder() / file).read_bytes()) for file in FILES))
    assert facts.torch is not None  # checked
    folder = adaptor.cache_directory().resolve() / "images"
    if adaptor.built(folder, facts.torch) is None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            _build_adaptor(client, options, facts.torch, folder, log)
        except (PhantoraError, OSError) as error:  # the run goes on, and its report says what it lacks
            log(f"phantora: going on without the torch adaptor. {error}")
            return mounts
    return [*mounts, Mount(folder, ADAPTORS)]


def own_files() -> list[Mount]:
    """Returns Phantora's files as read-only mounts, at the places they have in images that are built."""
    native, stub_folder = native_folder(), stubs.FOLDER
    mounts = [Mount((native / name).resolve(), f"{PREFIX}/native/{name}") for name in FILES]
    mounts.append(Mount(native / stub_folder, f"{PREFIX}/native/{stub_folder}"))
    mounts.append(Mount(profile_store.profiles_folder(), f"{PREFIX}/profiles"))
    return [*mounts, _runtime()]


def _runtime() -> Mount:
    return Mount(Path(str(resources.files("phantora_runtime"))), f"{jobs.LIBRARY}/phantora_runtime")


def check(name: str, facts: Facts, glibc: tuple[int, ...]) -> None:
    """Refuses an image in which ranks cannot run.

    Args:
        name: The image's name.
        facts: What it has.
        glibc: What the native files need.

    Raises:
        PhantoraError: It is one (exit code 3).
    """
    if facts.python < _OLDEST_PYTHON:
        raise PhantoraError(
            f"Python {_dotted(_OLDEST_PYTHON)} or later as {PYTHON} in {name}",
            f"Python {_dotted(facts.python)}",
            "Put a later one first in the image's PATH.",
        )
    if facts.glibc < glibc:
        raise PhantoraError(
            f"glibc {_dotted(glibc)} or later in {name} (what Phantora's native files were built for)",
            f"glibc {_dotted(facts.glibc)}" if facts.glibc else "another C library",
            "Use an image of a newer system, or install Phantora from a wheel that was built on an older one.",
        )
    if facts.torch is None:
        raise PhantoraError(
            f"torch in {name}",
            f"none that its {PYTHON} finds",
            "Install it there, or leave --image out: an image with torch is built then.",
        )
    if not facts.has_cuda or not facts.torch.cuda.startswith(_CUDA):
        cuda = f"for CUDA {facts.torch.cuda}" if facts.torch.cuda else "without CUDA"
        raise PhantoraError(
            f"a torch for CUDA {_CUDA.rstrip('.')} in {name}",
            f"{facts.torch.version}, built {cuda}",
            "Install PyPI's default build there.",
        )


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


def _pull_if_missing(client: Any, name: str, log: image.Log) -> None:
    from docker.errors import APIError, ImageNotFound

    with engine.named(f"the image {name}"):
        try:
            client.images.get(name)
        except ImageNotFound:
            log(f"phantora: fetching image {name}")
            try:
                client.images.pull(name)
            except APIError as error:
                found = f"none here, and none to be fetched ({error.explanation})"
                raise PhantoraError(f"the image {name}", found, "Correct --image.") from None


def _look(client: Any, name: str, mounts: list[Mount]) -> Facts:
    probe = resources.files("phantora.sandbox").joinpath("probe.py").read_text(encoding="utf-8")
    what = f"a {PYTHON} that starts in {name}"
    with jobs.container(client, name, [PYTHON, "-c", probe], mounts, user()) as container:
        code, output = jobs.run(client, container, what)
    if code:
        last = output.strip().splitlines()[-1] if output.strip() else f"exit code {code}"
        raise PhantoraError(what, last, f"Put Python {_dotted(_OLDEST_PYTHON)} or later first in the image's PATH.")
    return Facts.parse(output)


def _build_adaptor(client: Any, options: SandboxOptions, torch: adaptor.Torch, folder: Path, log: image.Log) -> None:
    """Compiles the adaptor for the torch of the user's image into a folder of this machine."""
    compiler = image.ensure_compiler(client, options, log)
    log(f"phantora: compiling the torch adaptor for torch {torch.version} in {options.image} (once; a minute)")
    root = PurePosixPath(torch.root)
    mounts = [_runtime(), Mount(folder, ADAPTORS, read_only=False)]
    build = ["-m", "phantora_runtime.adaptor", "--build", ADAPTORS, "--torch", BUILD_FOLDER]
    with (
        jobs.container(client, str(options.image), [PYTHON], [], user()) as source,
        jobs.container(client, compiler, [PYTHON, *build], mounts, (os.getuid(), os.getgid())) as target,
    ):
        for part in (root / "version.py", root / "include"):
            with engine.named(f"{part} of {options.image}"):
                content, _ = client.api.get_archive(source, str(part))
                client.api.put_archive(target, BUILD_FOLDER, content)
        code, output = jobs.run(client, target, f"a container from {compiler}")
    if code:
        found = output.strip().removeprefix("phantora: ").rstrip(".")
        raise PhantoraError(f"the torch adaptor compiled in {compiler}", found, "Please report this torch's version.")
