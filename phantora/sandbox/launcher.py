"""Joins the parts of `phantora sandbox`."""

from __future__ import annotations

import os
from pathlib import Path

from phantora import launch, resolve, run_directory
from phantora.options import RunOptions
from phantora.sandbox import engine, image, mounts
from phantora.sandbox.container import HOME, ContainerSpec
from phantora.sandbox.container import run as run_container
from phantora.terminal import Terminal

PREFIX = "/opt/phantora"
PYTHON = f"{PREFIX}/venv/bin/python"
CA_IN_CONTAINER = f"{PREFIX}/ca-bundle.crt"

_TEST_VARIABLES = ("PHANTORA_START_ORDER", "PHANTORA_TEST_HELPER_JITTER")


def run(options: RunOptions) -> int:
    """Runs a script in a container. Returns the exit code.

    Raises:
        PhantoraError: The options, this machine or its Docker Engine do not allow it.
    """
    sandbox = options.sandbox
    content = resolve.run_json(options)
    client = engine.connect(options.command)
    directory = Path(content["launch"]["directory"])
    mounted = mounts.code_mounts(content["launch"]["script"], directory)
    mounted += [mounts.parse(text) for text in sandbox.mounts]
    name = image.ensure(client, sandbox, log=_silent if options.quiet else image.log_to_stderr)

    python = "python3" if sandbox.image else PYTHON
    content["launch"]["python"] = python
    content["sandbox"] = {"image": name, "image_id": client.images.get(name).id}
    folder = run_directory.make(options)
    launch.write_run_json(folder, content)
    mounted.append(mounts.Mount(folder, str(folder), read_only=False))
    spec = ContainerSpec(
        image=name,
        command=[python, "-m", "phantora_runtime", str(folder)],
        environment=_environment(options, mounted),
        mounts=mounted,
        working_directory=str(directory),
        writable_directory=not _is_covered(directory, mounted),
        ranks=options.gpus,
        cpus=sandbox.cpus,
        memory=sandbox.memory,
        shm_size=sandbox.shm_size,
        network=sandbox.network,
        run=str(folder),
    )
    terminal = Terminal(folder, options)
    caller = (os.getuid(), os.getgid())
    if caller != spec.user:
        _give(folder, spec.user)
    try:
        return run_container(client, spec, terminal)
    finally:
        if caller != spec.user:
            _give(folder, caller)


def _environment(options: RunOptions, mounted: list[mounts.Mount]) -> dict[str, str]:
    """The environment of the runtime in the container; nothing of this machine's own goes in."""
    environment = {
        "HOME": HOME,
        "USER": "phantora",
        "LOGNAME": "phantora",
        "LANG": "C.UTF-8",
        "PYTHONPATH": f"{PREFIX}/lib",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PHANTORA_NATIVE": f"{PREFIX}/native",
        "PHANTORA_PROFILES": f"{PREFIX}/profiles",
        "PHANTORA_ADAPTOR": f"{PREFIX}/adaptor",
        "PHANTORA_USER_PYTHONPATH": "",
    }
    # What tests of determinism vary (ARCHITECTURE.md).
    environment |= {name: os.environ[name] for name in _TEST_VARIABLES if name in os.environ}
    if not options.sandbox.image:  # else the image's own, which finds its own python3
        environment["PATH"] = f"{PREFIX}/venv/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    bundle = options.sandbox.ca_bundle or os.environ.get("PHANTORA_CA_BUNDLE")
    if bundle and options.sandbox.network != "none":
        mounted.append(mounts.Mount(Path(bundle).resolve(), CA_IN_CONTAINER))
        environment |= dict.fromkeys(("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"), CA_IN_CONTAINER)
    return environment


def _is_covered(directory: Path, mounted: list[mounts.Mount]) -> bool:
    targets = [Path(mount.target) for mount in mounted]
    return any(target == directory or target in directory.parents for target in targets)


def _give(folder: Path, owner: tuple[int, int]) -> None:
    """Changes the owner of a run directory and all in it. Links themselves, never what they point at."""
    for parent, folders, files in os.walk(folder):
        for path in [parent, *(os.path.join(parent, name) for name in folders + files)]:
            os.chown(path, *owner, follow_symlinks=False)


def _silent(_line: str) -> None:
    """The build's output under --quiet."""
