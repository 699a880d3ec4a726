"""The options that `run` and `sandbox` share: declared once as annotated types, collected once into RunOptions."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from phantora import options as defaults
from phantora.commands.script_command import script_arguments
from phantora.errors import UsageError
from phantora.options import RunOptions, SandboxOptions

Script = Annotated[
    list[str] | None, typer.Argument(metavar="SCRIPT", help="The training script; its own arguments go after --.")
]
Module = Annotated[
    str | None, typer.Option("-m", metavar="MODULE", help="Run a module instead of a script, as python -m does.")
]
Gpus = Annotated[int, typer.Option("--gpus", metavar="N", help="Simulated GPUs = ranks.")]
GpusPerNode = Annotated[
    int | None, typer.Option("--gpus-per-node", metavar="N", help="GPUs in a node. [default: the cluster's, 8]")
]
Gpu = Annotated[
    str | None, typer.Option("--gpu", metavar="NAME", help="GPU profile. [default: the cluster's, h100-sxm-80gb]")
]
Cluster = Annotated[str, typer.Option("--cluster", metavar="NAME|FILE", help="Cluster profile.")]
Host = Annotated[str, typer.Option("--host", metavar="NAME|FILE", help="Host profile the CPU time is scaled to.")]
Clock = Annotated[
    str,
    typer.Option(
        "--clock",
        metavar="measured|modelled",
        help="Host time: measured on this machine, or fixed costs from the profile (bit-identical runs).",
    ),
]
Steps = Annotated[
    str, typer.Option("--steps", metavar="K|all", help="Stop cleanly when step K+1 begins; all: run to the end.")
]
Warmup = Annotated[int, typer.Option("--warmup", metavar="K", help="Steps left out of the medians.")]
Out = Annotated[
    Path | None,
    typer.Option("--out", metavar="DIR", help="The run directory itself. [default: runs/<script>-<counter>]"),
]
Name = Annotated[str | None, typer.Option("--name", metavar="NAME", help="Run directory runs/NAME.")]
Force = Annotated[bool, typer.Option("--force", help="Replace an earlier run in that directory.")]
FailIf = Annotated[
    list[str] | None,
    typer.Option(
        "--fail-if",
        metavar="COND",
        help="Exit 4 if it holds: oom, step>1.5s, memory>76GiB, unknown>1%. Repeatable.",
    ),
]
Tui = Annotated[
    bool | None,
    typer.Option("--tui/--no-tui", help="Live view. [default: if stderr is a terminal]", show_default=False),
]
Quiet = Annotated[bool, typer.Option("--quiet", help="Of Phantora's own lines print the verdict only.")]
Json = Annotated[bool, typer.Option("--json", help="Print the report on stdout; the script's output goes to stderr.")]
Tp = Annotated[int, typer.Option("--tp", metavar="N", help="Tensor parallel size, put into script arguments as {tp}.")]
Pp = Annotated[int, typer.Option("--pp", metavar="N", help="Pipeline parallel size, {pp}.")]
Dp = Annotated[int, typer.Option("--dp", metavar="N", help="Data parallel size, {dp}.")]
Cp = Annotated[int, typer.Option("--cp", metavar="N", help="Context parallel size, {cp}.")]
Ep = Annotated[int, typer.Option("--ep", metavar="N", help="Expert parallel size, {ep}.")]
Env = Annotated[
    list[str] | None, typer.Option("--env", metavar="K=V", help="Environment variable of the ranks. Repeatable.")
]
Seed = Annotated[int, typer.Option("--seed", metavar="N", help="Seeds all entropy that ranks read.")]
Timeout = Annotated[str, typer.Option("--timeout", metavar="DURATION", help="Limit in real time: 90s, 30m, 2h.")]


def collect(ctx: typer.Context, script: list[str] | None, sandbox: SandboxOptions | None = None) -> RunOptions:
    """Returns the options of the command that is running.

    Args:
        ctx: Its context; parameters carry the names used in run.py and sandbox.py.
        script: The positional arguments.
        sandbox: What only `sandbox` knows.

    Raises:
        UsageError: More than one positional argument stands before `--`, or --tui has no terminal.
    """
    from phantora.terminal import is_terminal

    given: dict[str, Any] = ctx.params
    positional = list(script or [])
    if len(positional) > (0 if given["module"] else 1):
        extra = positional[0 if given["module"] else 1]
        raise UsageError("script arguments after --", f"'{extra}' before it", "Example: train.py --gpus 8 -- --lr 3e-4")
    if given["tui"] and not is_terminal():
        raise UsageError("a terminal on stdin and stderr for --tui", "none", "Leave --tui out.")
    return RunOptions(
        script=positional[0] if positional else None,
        module=given["module"],
        arguments=script_arguments(ctx),
        gpus=given["gpus"],
        gpus_per_node=given["gpus_per_node"],
        gpu=given["gpu"],
        cluster=given["cluster"],
        host=given["host"],
        clock=given["clock"],
        steps=given["steps"],
        warmup=given["warmup"],
        out=given["out"],
        name=given["name"],
        force=given["force"],
        fail_if=tuple(given["fail_if"] or ()),
        tui=given["tui"],
        quiet=given["quiet"],
        json=given["json"],
        tensor_parallel=given["tp"],
        pipeline_parallel=given["pp"],
        data_parallel=given["dp"],
        context_parallel=given["cp"],
        expert_parallel=given["ep"],
        environment=tuple(given["env"] or ()),
        seed=given["seed"],
        timeout=given["timeout"],
        python=given.get("python"),
        sandbox=sandbox or SandboxOptions(),
        command=("phantora", *sys.argv[1:]),
    )


DEFAULTS = defaults
