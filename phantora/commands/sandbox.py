"""`phantora sandbox`: the same run in a container."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from phantora.commands import run_options as o
from phantora.commands.script_command import ScriptCommand
from phantora.errors import UsageError
from phantora.options import SandboxOptions


def sandbox(
    ctx: typer.Context,
    script: o.Script = None,
    module: o.Module = None,
    gpus: o.Gpus = o.DEFAULTS.DEFAULT_GPUS,
    gpus_per_node: o.GpusPerNode = None,
    gpu: o.Gpu = None,
    cluster: o.Cluster = o.DEFAULTS.DEFAULT_CLUSTER,
    host: o.Host = o.DEFAULTS.DEFAULT_HOST,
    clock: o.Clock = o.DEFAULTS.DEFAULT_CLOCK,
    steps: o.Steps = o.DEFAULTS.DEFAULT_STEPS,
    warmup: o.Warmup = o.DEFAULTS.DEFAULT_WARMUP,
    out: o.Out = None,
    name: o.Name = None,
    force: o.Force = False,
    fail_if: o.FailIf = None,
    tui: o.Tui = None,
    quiet: o.Quiet = False,
    json: o.Json = False,
    tp: o.Tp = 1,
    pp: o.Pp = 1,
    dp: o.Dp = 1,
    cp: o.Cp = 1,
    ep: o.Ep = 1,
    env: o.Env = None,
    seed: o.Seed = 0,
    timeout: o.Timeout = o.DEFAULTS.DEFAULT_TIMEOUT,
    image: Annotated[str | None, typer.Option("--image", metavar="IMG", help="Bring your own image.")] = None,
    base_image: Annotated[
        str | None,
        typer.Option("--base-image", metavar="IMG", envvar="PHANTORA_BASE_IMAGE", help="What our image is built on."),
    ] = None,
    torch: Annotated[str | None, typer.Option("--torch", metavar="VERSION", help="torch of the built image.")] = None,
    requirements: Annotated[
        Path | None, typer.Option("--requirements", metavar="FILE", help="Further packages for the built image.")
    ] = None,
    ca_bundle: Annotated[
        Path | None,
        typer.Option(
            "--ca-bundle", metavar="FILE", envvar="PHANTORA_CA_BUNDLE", help="Certificates that the image build trusts."
        ),
    ] = None,
    mount: Annotated[
        list[str] | None,
        typer.Option("--mount", metavar="SRC[:DST[:ro]]", help="Further files for the container. Repeatable."),
    ] = None,
    cpus: Annotated[str | None, typer.Option("--cpus", metavar="SET", help="CPUs of the container.")] = None,
    memory: Annotated[str | None, typer.Option("--memory", metavar="SIZE", help="Memory limit.")] = None,
    shm_size: Annotated[str | None, typer.Option("--shm-size", metavar="SIZE", help="Size of /dev/shm.")] = None,
    network: Annotated[str, typer.Option("--network", metavar="none|bridge", help="The container's network.")] = "none",
) -> None:
    """Run a training script on simulated GPUs, in a container: non-root, without network."""
    if network not in ("none", "bridge"):
        raise UsageError("--network none or bridge", f"'{network}'", "Choose one of the two.")
    own = SandboxOptions(
        image=image,
        base_image=base_image,
        torch=torch,
        requirements=requirements,
        ca_bundle=ca_bundle,
        mounts=tuple(mount or ()),
        cpus=cpus,
        memory=memory,
        shm_size=shm_size,
        network=network,
    )
    options = o.collect(ctx, script, own)
    import phantora.sandbox

    raise typer.Exit(phantora.sandbox.run(options))


def register(app: typer.Typer) -> None:
    """Adds the verb."""
    app.command(cls=ScriptCommand, options_metavar="[OPTIONS]", epilog="Script arguments go after --.")(sandbox)
