"""Becomes one rank: its environment, its output, its hooks; then runs the script exactly as `python SCRIPT` would."""

from __future__ import annotations

import builtins
import contextlib
import importlib.machinery
import os
import random
import runpy
import sys
import traceback
import types
from typing import Any, NoReturn

from phantora_runtime import bridge, control, finish, handoff, settings, stacks, steps, torch_hooks
from phantora_runtime.virtual_node import node_name

MASTER_PORT = 29500
_OUTPUT_VARIABLE = "PHANTORA_RANK0_FDS"
_PRIVATE_VARIABLES = ("PHANTORA_LEFT_OUT", "PHANTORA_START_ORDER")


def prepare_torch(run: settings.Run) -> None:
    """In the zygote, once torch is there: everything that is the same for all ranks."""
    torch_hooks.install(run.null_mode)
    steps.install(run.launch.steps)


def run(run: settings.Run, rank: int) -> NoReturn:
    """In a freshly forked process: runs the script and ends the process."""
    _redirect_output(run, rank)
    stacks.answer_with(run.stack_path(rank))
    os.environ.update(environment(run, rank))
    for name in _PRIVATE_VARIABLES:
        os.environ.pop(name, None)
    bridge.attach(rank)
    handoff.install(main=True)
    _reseed()
    finish.install(rank)
    finish.leave(_status_of(run, rank))


def _status_of(run: settings.Run, rank: int) -> int:
    """Runs the script and returns the exit status that Python would end with."""
    try:
        _run_target(run)
    except SystemExit as leaving:
        if leaving.code is None or isinstance(leaving.code, int):
            status = _as_exit_status(leaving.code or 0)
        else:
            print(leaving.code, file=sys.stderr)
            status = 1
        if status != 0 and finish.is_rank():
            control.send("leaving", rank=rank, status=status)
        return status
    except BaseException as error:
        _fail(rank, error)
        return 1
    return 0


def _as_exit_status(code: int) -> int:
    """As Python: what does not fit a C long is -1."""
    return code & 0xFF if -(2**63) <= code < 2**63 else 0xFF


def environment(run: settings.Run, rank: int) -> dict[str, str]:
    """Returns what torchrun would set for this rank, and then the user's `--env`."""
    launch = run.launch
    per_node = launch.gpus_per_node
    pairs = {
        "RANK": rank,
        "PHANTORA_RANK": rank,  # the shim sets it too, but Python copies the environment once
        "LOCAL_RANK": rank % per_node,
        "GROUP_RANK": rank // per_node,
        "ROLE_RANK": rank,
        "ROLE_NAME": "default",
        "WORLD_SIZE": launch.world_size,
        "LOCAL_WORLD_SIZE": per_node,
        "GROUP_WORLD_SIZE": launch.nodes,
        "ROLE_WORLD_SIZE": launch.world_size,
        "MASTER_ADDR": os.environ.get("PHANTORA_MASTER_ADDR", node_name(0)),
        "MASTER_PORT": os.environ.get("PHANTORA_MASTER_PORT", str(MASTER_PORT)),
        "TORCHELASTIC_RESTART_COUNT": 0,
        "TORCHELASTIC_MAX_RESTARTS": 0,
        "TORCHELASTIC_RUN_ID": "phantora",
        "TORCHELASTIC_USE_AGENT_STORE": False,
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": 1,
    }
    return {name: str(value) for name, value in pairs.items()} | launch.environment


def _redirect_output(run: settings.Run, rank: int) -> None:
    """Rank 0 writes to the supervisor's pipes (log and terminal), the others straight to their logs."""
    out, err = (int(fd) for fd in os.environ.pop(_OUTPUT_VARIABLE).split(","))
    if rank != 0:
        os.close(out)
        os.close(err)
        out = err = os.open(run.log_path(rank), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(out, 1)
    os.dup2(err, 2)
    for fd in {out, err}:
        os.close(fd)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]


def _reseed() -> None:
    """What drew entropy in the zygote draws again, as in processes that start alone. The shim seeds it by rank."""
    random.seed()
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None:
        numpy_random.seed(int.from_bytes(os.urandom(4), "little"))


def set_arguments(run: settings.Run) -> None:
    """Sets sys.argv and sys.orig_argv as the script finds them."""
    launch = run.launch
    if launch.module is not None:
        sys.argv = ["-m", *launch.arguments]
        sys.orig_argv = [sys.executable, "-m", launch.module, *launch.arguments]
    else:
        sys.argv = [launch.script_argument or str(launch.script), *launch.arguments]
        sys.orig_argv = [sys.executable, *sys.argv]


def _run_target(run: settings.Run) -> None:
    launch = run.launch
    set_arguments(run)
    main = types.ModuleType("__main__")
    main.__dict__["__builtins__"] = builtins
    sys.modules["__main__"] = main
    if launch.module is not None:
        sys.path.insert(0, launch.directory)
        runpy._run_module_as_main(launch.module)  # type: ignore[attr-defined]
        return
    script = str(launch.script)
    if os.path.isdir(script) or script.endswith((".zip", ".pyz")):
        sys.path.insert(0, script)
        runpy._run_module_as_main("__main__", alter_argv=False)  # type: ignore[attr-defined]
        return
    sys.path.insert(0, os.path.dirname(script))
    main.__file__ = script
    main.__dict__["__cached__"] = None
    main.__loader__ = importlib.machinery.SourceFileLoader("__main__", script)
    with open(script, "rb") as file:
        code = compile(file.read(), script, "exec", dont_inherit=True)
    exec(code, main.__dict__)


def _fail(rank: int, error: BaseException) -> None:
    """As Python does: the traceback on stderr. Our own frames are left out. A fork tells only its parent."""
    trace = _user_frames(error)
    error.__traceback__ = trace
    if finish.is_rank():
        text = "".join(traceback.format_exception(type(error), error, trace))
        fields: dict[str, Any] = {"rank": rank, "type": type(error).__name__, "message": "", "traceback": text}
        with contextlib.suppress(Exception):  # an exception of the script's whose __str__ raises
            fields["message"] = str(error)
        fields["step"], fields["phase"] = steps.position()
        if out_of_memory := finish.out_of_memory(error):
            fields["oom"] = out_of_memory
        control.send("exception", **fields)
    with contextlib.suppress(Exception):  # the script may have closed stderr, or replaced the hook
        sys.excepthook(type(error), error, trace)


def _user_frames(error: BaseException) -> types.TracebackType | None:
    """Returns the frames from the script's first on; None where it did not get that far: it cannot be parsed."""
    trace = error.__traceback__
    here = os.path.dirname(__file__)
    while trace is not None:
        name = trace.tb_frame.f_code.co_filename
        if not (name.startswith(here) or name == "<frozen runpy>" or name == runpy.__file__):
            break
        trace = trace.tb_next
    return trace
