"""Joins the parts of `phantora sandbox`."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path

from phantora import launch, resolve, run_directory
from phantora.errors import PhantoraError
from phantora.options import RunOptions
from phantora.sandbox import engine, image, jobs, limits, mounts, own_image, workspace
from phantora.sandbox.container import HOME, ContainerRefused, ContainerSpec, OverlayRefused, user
from phantora.sandbox.container import run as run_container
from phantora.sandbox.mounts import PREFIX
from phantora.terminal import Terminal
from phantora_runtime import files, settings
from phantora_runtime.exit_codes import ExitCode

CACHE = f"{HOME}/.cache"
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
    limit = limits.compute(client, sandbox, options.gpus)
    directory = Path(content["launch"]["directory"])
    code = mounts.code_folder(content["launch"]["script"], directory)
    mounted = [mounts.parse(text) for text in sandbox.mounts]
    log = _silent if options.quiet else image.log_to_stderr
    if sandbox.image:
        name = sandbox.image
        mounted += own_image.prepare(client, sandbox, log)
    else:
        name = image.ensure(client, sandbox, log=log)

    python = "python3" if sandbox.image else PYTHON
    content["launch"]["python"] = python
    content["sandbox"] = {"image": name, "image_id": client.images.get(name).id}
    folder = run_directory.make(options)
    launch.write_run_json(folder, content)
    terminal = Terminal(folder, options)
    mounted.append(mounts.Mount(folder, str(folder), read_only=False))
    mounted.append(mounts.Mount(_cache(), CACHE, read_only=False))
    spec = ContainerSpec(
        image=name,
        command=[python, "-m", "phantora_runtime", str(folder)],
        environment=_environment(options, mounted),
        mounts=mounted,
        working_directory=str(directory),
        limits=limit,
        timeout_s=content["launch"]["timeout_ns"] / 1e9,
        network=sandbox.network,
        run=str(folder),
    )
    caller = (os.getuid(), os.getgid())
    began = True
    try:
        if caller != spec.user:
            workspace.give(folder, spec.user)
        spec = _writable(spec, folder, code, directory)
        try:
            result = run_container(client, spec, terminal)
        except OverlayRefused as refusal:
            if not options.quiet:
                print(
                    f"phantora: note: {code} is read-only in this run: no overlay there ({refusal}).", file=sys.stderr
                )
            read_only = [overlay.read_only() for overlay in spec.overlays]
            result = run_container(client, replace(spec, overlays=(), mounts=[*spec.mounts, *read_only]), terminal)
        began = result != ExitCode.USAGE
        return result
    except ContainerRefused:
        began = False
        raise
    except OSError as error:
        raise PhantoraError(
            f"to write {folder}", str(error.strerror), "Make room, or choose another place with --out."
        ) from None
    finally:
        if began:
            files.sweep(folder, with_links=settings.FILES)
            if caller != spec.user:
                workspace.give(folder, caller)
            workspace.clear(folder, as_root=lambda scratch: jobs.remove_as_root(client, name, scratch))
        else:
            run_directory.discard(folder)


def _writable(spec: ContainerSpec, folder: Path, code: Path, directory: Path) -> ContainerSpec:
    """Lets the script write in its folder and where it starts; both is kept in the run directory."""
    mounted = list(spec.mounts)
    overlay = None
    if not _covers(mounted, code):
        overlay = workspace.overlay(folder, code, spec.user)
        if overlay is None:
            mounted.append(mounts.Mount(code, str(code)))
    seen = _covers(mounted, directory) or (overlay is not None and directory.is_relative_to(code))
    if not seen and mounts.hides_nothing(directory):
        place = workspace.mirrored(folder, directory, spec.user)
        mounted.append(mounts.Mount(place, str(directory), read_only=False))
    # Where the Engine mounts one thing within another, it would make the folder for it as root's.
    for mount in mounted if overlay is None else [*mounted, overlay.read_only()]:
        target = Path(mount.target)
        if any(target != place and target.is_relative_to(place) for place in (code, directory)):
            workspace.mirrored(folder, target if mount.source.is_dir() else target.parent, spec.user)
    return replace(spec, mounts=mounted, overlays=(overlay,) if overlay is not None else ())


def _covers(mounted: list[mounts.Mount], directory: Path) -> bool:
    return any(directory.is_relative_to(mount.target) for mount in mounted)


def _cache() -> Path:
    """Returns the folder that is the script's ~/.cache in every run, for what Triton, Inductor and others keep.

    Raises:
        PhantoraError: It cannot be made.
    """
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = base / "phantora" / "sandbox-home"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if os.getuid() == 0:
            os.chown(folder, *user())
    except OSError as error:
        raise PhantoraError(
            f"a writable cache folder {folder}", str(error.strerror), "Set XDG_CACHE_HOME to another place."
        ) from None
    return folder


def _environment(options: RunOptions, mounted: list[mounts.Mount]) -> dict[str, str]:
    """The environment of the runtime in the container; nothing of this machine's own goes in."""
    environment = {
        "HOME": HOME,
        "USER": "phantora",
        "LOGNAME": "phantora",
        "LANG": "C.UTF-8",
        "TMPDIR": "/tmp",
        "XDG_CACHE_HOME": CACHE,
        "HF_HOME": f"{CACHE}/huggingface",
        "TORCH_HOME": f"{CACHE}/torch",
        "TRITON_CACHE_DIR": f"{CACHE}/triton",
        "TORCHINDUCTOR_CACHE_DIR": f"{CACHE}/torchinductor",
        "WANDB_MODE": "offline",
        "PYTHONPATH": f"{PREFIX}/lib",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PHANTORA_NATIVE": f"{PREFIX}/native",
        "PHANTORA_PROFILES": f"{PREFIX}/profiles",
        "PHANTORA_ADAPTOR": f"{PREFIX}/adaptor",
        "PHANTORA_USER_PYTHONPATH": "",
    }
    if options.sandbox.network == "none":
        environment |= {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}
    # What tests of determinism vary (ARCHITECTURE.md).
    environment |= {name: os.environ[name] for name in _TEST_VARIABLES if name in os.environ}
    if not options.sandbox.image:  # else the image's own, which finds its own python3
        environment["PATH"] = f"{PREFIX}/venv/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    bundle = options.sandbox.ca_bundle or os.environ.get("PHANTORA_CA_BUNDLE")
    if bundle and options.sandbox.network != "none":
        mounted.append(mounts.Mount(Path(bundle).resolve(), CA_IN_CONTAINER))
        environment |= dict.fromkeys(("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"), CA_IN_CONTAINER)
    return environment


def _silent(_line: str) -> None:
    """The build's output under --quiet."""
