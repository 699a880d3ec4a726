"""From options and profiles to run.json: all that the runtime needs, resolved before anything starts."""

from __future__ import annotations

import dataclasses
import os
import platform
import re
import sys
from pathlib import Path
from typing import Any

from phantora import __version__, profile_store, run_directory
from phantora.errors import PhantoraError, UsageError
from phantora.options import DEFAULT_CPU_COUNT, DEFAULT_GPU, DEFAULT_GPUS_PER_NODE, RunOptions
from phantora_runtime.quantities import QuantityError, parse_condition, parse_duration_ns

# Virtual time 0 is this date on every machine: 2026-01-01 00:00:00 UTC.
EPOCH_NS = 1_767_225_600 * 10**9
_MAX_RANKS = 65_536
_MAX_GPUS_PER_NODE = 255
_MAX_STEPS = 10**9


def run_json(options: RunOptions) -> dict[str, Any]:
    """Returns the content of run.json.

    `launch` is what the supervisor needs to start ranks, `core` the lines of core.conf but for what only the supervisor
    knows (folders and descriptors). Table paths in `core` are relative to the profiles folder.

    Raises:
        UsageError: An option makes no sense.
        PhantoraError: The interpreter does not exist.
    """
    _check_target(options)
    notes: list[str] = []
    cluster = profile_store.load("cluster", options.cluster)
    host = profile_store.load("host", options.host)
    gpu = profile_store.load("gpu", _choose_gpu(options, cluster, notes))
    gpus_per_node, nodes = _shape(options, cluster, notes)
    timeout_ns, steps = _limits(options)
    run_directory.check(options)
    core = _core(options, gpu, cluster, host, gpus_per_node, nodes, steps)
    return {
        "schema": 1,
        "command": list(options.command),
        "versions": {"phantora": __version__, "python": platform.python_version(), "torch": None},
        "seed": options.seed,
        "options": _plain(options),
        "profiles": {
            profile.kind: {"name": profile.name, "built_in": profile.built_in, "content": profile.data}
            for profile in (gpu, cluster, host)
        },
        "notes": notes,
        "launch": {
            "script": str(Path(options.script).resolve()) if options.script else None,
            "script_argument": options.script,
            "module": options.module,
            "arguments": _substitute(options),
            "directory": os.getcwd(),
            "python": str(interpreter(options)),
            "environment": _environment(options),
            "world_size": options.gpus,
            "gpus_per_node": gpus_per_node,
            "nodes": nodes,
            "steps": steps,
            "warmup": options.warmup,
            "timeout_ns": timeout_ns,
            "fail_if": list(options.fail_if),
            "json": options.json,
            "quiet": options.quiet,
            "seed": options.seed,
            "clock": options.clock,
            "gpu": gpu.name,
            "cluster": cluster.name,
            "host": host.name,
            "parallel": options.parallel,
        },
        "core": core,
    }


def interpreter(options: RunOptions) -> Path:
    """Returns the Python whose torch is used: `--python`, else the active environment's, else our own.

    Raises:
        PhantoraError: `--python` names no executable file.
    """
    if options.python is not None:
        if not (options.python.is_file() and os.access(options.python, os.X_OK)):
            raise PhantoraError(
                "a Python interpreter", f"no executable file {options.python}", "Correct --python or leave it out."
            )
        return options.python.absolute()
    for variable in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        if os.environ.get(variable):
            candidate = Path(os.environ[variable]) / "bin" / "python"
            if candidate.is_file():
                return candidate
    return Path(sys.executable)


def _check_target(options: RunOptions) -> None:
    if (options.script is None) == (options.module is None):
        found = "neither" if options.script is None else "both"
        raise UsageError("a SCRIPT or -m MODULE", found, "Example: phantora run train.py --gpus 8 -- --lr 3e-4")
    if options.script is not None:
        _check_script(Path(options.script))
    elif not options.module:
        raise UsageError("a module for -m", "an empty name", "Write for example -m torchtitan.train.")
    if options.clock not in ("measured", "modelled"):
        raise UsageError("--clock measured or modelled", f"'{options.clock}'", "Choose one of the two.")
    if not 1 <= options.gpus <= _MAX_RANKS:
        raise UsageError(f"--gpus from 1 to {_MAX_RANKS}", str(options.gpus), "Correct it.")
    if not 0 <= options.warmup <= _MAX_STEPS:
        raise UsageError(f"--warmup from 0 to {_MAX_STEPS}", str(options.warmup), "Correct it.")
    if not 0 <= options.seed < 2**63:
        raise UsageError("--seed from 0 to 2^63-1", str(options.seed), "Correct it.")
    sizes = options.parallel
    product = 1
    for short, size in sizes.items():
        if size < 1:
            raise UsageError(f"--{short} of 1 or more", str(size), "Correct it.")
        product *= size
    # Experts are mostly spread over ranks that the other sizes count already.
    if not {product, product // sizes["ep"]} & {1, options.gpus}:
        given = " x ".join(f"{short} {size}" for short, size in sizes.items() if size > 1)
        raise UsageError(
            f"parallel sizes whose product is --gpus {options.gpus}",
            f"{given} = {product}",
            "Change --gpus or the sizes (what is left over is usually --dp).",
        )


def _check_script(script: Path) -> None:
    if not script.exists():
        raise UsageError(f"the script {script}", "no such file", "Check the path.")
    if script.is_dir() and not (script / "__main__.py").is_file():
        raise UsageError("a script", f"the folder {script} without a __main__.py", "Name the script in it.")
    if not os.access(script, os.R_OK):
        raise UsageError(f"the script {script}", "that it may not be read", "Check its permissions.")


def _choose_gpu(options: RunOptions, cluster: profile_store.Profile, notes: list[str]) -> str:
    named = cluster.numbers.get("gpu")
    if options.gpu is not None:
        if named is not None and named != options.gpu:
            notes.append(f"--gpu {options.gpu} replaces the GPU of cluster {cluster.name}, {named}.")
        return options.gpu
    return str(named) if named is not None else DEFAULT_GPU


def _shape(options: RunOptions, cluster: profile_store.Profile, notes: list[str]) -> tuple[int, int]:
    """Returns GPUs per node as the ranks see it, and the number of nodes."""
    named = cluster.get_int("gpus_per_node")
    per_node = options.gpus_per_node if options.gpus_per_node is not None else named or DEFAULT_GPUS_PER_NODE
    if not 1 <= per_node <= _MAX_GPUS_PER_NODE:
        raise UsageError(f"1 to {_MAX_GPUS_PER_NODE} GPUs per node", str(per_node), "Correct --gpus-per-node.")
    if named is not None and per_node != named:
        notes.append(f"--gpus-per-node {per_node} replaces the {named} of cluster {cluster.name}.")
    if options.gpus <= per_node:
        return options.gpus, 1
    if options.gpus % per_node:
        raise UsageError(
            f"--gpus a multiple of {per_node} GPUs per node", str(options.gpus), "Change --gpus or --gpus-per-node."
        )
    return per_node, options.gpus // per_node


def _limits(options: RunOptions) -> tuple[int, int | None]:
    what = "a --fail-if condition"
    try:
        for text in options.fail_if:
            parse_condition(text)
        what = "a --timeout"
        timeout_ns = parse_duration_ns(options.timeout)
    except QuantityError as error:
        raise UsageError(what, str(error).rstrip("."), "Correct it.") from None
    if timeout_ns == 0:
        raise UsageError("a --timeout above 0", f"'{options.timeout}'", "Write for example 90s, 30m or 2h.")
    if options.steps == "all":
        return timeout_ns, None
    steps = int(options.steps) if re.fullmatch("[0-9]{1,10}", options.steps) else 0
    if not 1 <= steps <= _MAX_STEPS:
        raise UsageError(f"--steps from 1 to {_MAX_STEPS}, or all", f"'{options.steps}'", "Correct it.")
    return timeout_ns, steps


def _substitute(options: RunOptions) -> list[str]:
    """Puts the parallel sizes into script arguments; other braces stay as they are."""
    arguments = []
    for argument in options.arguments:
        for short, size in options.parallel.items():
            argument = argument.replace("{" + short + "}", str(size))
        arguments.append(argument)
    return arguments


def _environment(options: RunOptions) -> dict[str, str]:
    pairs = {}
    for text in options.environment:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise UsageError("--env K=V", f"'{text}'", "Write for example --env NCCL_DEBUG=INFO.")
        pairs[name] = value
    return pairs


def _core(
    options: RunOptions,
    gpu: profile_store.Profile,
    cluster: profile_store.Profile,
    host: profile_store.Profile,
    gpus_per_node: int,
    nodes: int,
    steps: int | None,
) -> dict[str, profile_store.Scalar]:
    core: dict[str, profile_store.Scalar] = {
        "world_size": options.gpus,
        "gpus_per_node": gpus_per_node,
        "nodes": nodes,
        "seed": options.seed,
        "epoch_ns": EPOCH_NS,
        "clock": options.clock,
        "cpu_count": host.get_int("cpu_count") or DEFAULT_CPU_COUNT,
        "steps": "all" if steps is None else steps,
        "warmup": options.warmup,
    }
    for profile in (gpu, cluster, host):
        core.update(profile.core_lines())
    return core


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {item.name: _plain(getattr(value, item.name)) for item in dataclasses.fields(value)}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return str(value) if isinstance(value, Path) else value
