"""`phantora run`: in place, no container."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from phantora.commands import run_options as o
from phantora.commands.script_command import ScriptCommand

Python = Annotated[
    Path | None,
    typer.Option("--python", metavar="PATH", help="Interpreter whose torch is used. [default: the environment's]"),
]


def run(
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
    python: Python = None,
) -> None:
    """Run a training script on simulated GPUs, in place (no container).

    The script has the rights of the user who starts it; `phantora sandbox` is for scripts that you do not trust.
    """
    from phantora import launch

    raise typer.Exit(launch.run(o.collect(ctx, script)))


def register(app: typer.Typer) -> None:
    """Adds the verb."""
    app.command(cls=ScriptCommand, options_metavar="[OPTIONS]", epilog="Script arguments go after --.")(run)
