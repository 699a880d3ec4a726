"""Runs one container to its end: output passed through, signals passed on, nothing left behind."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib import resources
from typing import Any

from phantora.errors import PhantoraError
from phantora.sandbox.mounts import Mount
from phantora.terminal import Terminal
from phantora_runtime.quantities import parse_bytes

LABEL = "org.phantora.run"
HOME = "/home/phantora"
# Who the script is when root calls: an id that is nobody on common systems.
ID_FOR_ROOT = 10_001
_FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_SIGNALLED = 128  # an exit code above says which signal ended the program
_PIDS_BASE = 1_024
_PIDS_PER_RANK = 128


@dataclass(frozen=True)
class ContainerSpec:
    """One container.

    Attributes:
        image: Image name.
        command: What runs in it.
        environment: Its environment, complete.
        mounts: What it sees of this machine.
        working_directory: Where the command starts.
        ranks: Number of ranks; the limit of processes and threads follows from it.
        writable_directory: The working directory is no mount: give it an empty one of its own in memory.
        cpus, memory, shm_size: As Docker takes them; None: all CPUs, nine tenths of the memory, 2 GiB.
        network: `none` or `bridge`.
        run: The run directory; the label of the container says whose it is.
    """

    image: str
    command: list[str]
    environment: dict[str, str]
    mounts: list[Mount]
    working_directory: str
    ranks: int
    writable_directory: bool = False
    cpus: str | None = None
    memory: str | None = None
    shm_size: str | None = None
    network: str = "none"
    run: str = ""
    user: tuple[int, int] = field(default_factory=lambda: user())


def user() -> tuple[int, int]:
    """Returns user and group id of the script in the container: the caller's, never root's."""
    uid, gid = os.getuid(), os.getgid()
    return (uid, gid) if uid else (ID_FOR_ROOT, ID_FOR_ROOT)


def run(client: Any, spec: ContainerSpec, terminal: Terminal) -> int:
    """Runs the container and returns its exit code; its output goes to the terminal.

    Raises:
        PhantoraError: The Engine refused it (exit code 3).
    """
    from docker.errors import APIError, DockerException

    try:
        container = client.api.create_container_from_config(_config(client, spec))["Id"]
    except APIError as error:
        raise _refused(spec, str(error.explanation or error)) from None
    try:
        output = client.api.attach(container, stdout=True, stderr=True, stream=True, demux=True)
        pump = threading.Thread(target=_pass_through, args=(output, terminal), name="container output", daemon=True)
        with _signals(client, container, terminal):
            client.api.start(container)
            pump.start()

            def wait() -> int:
                code = int(client.api.wait(container, timeout=None)["StatusCode"])
                pump.join(timeout=10)
                return code

            code = terminal.run(wait, lambda number: _kill(client, container, signal.Signals(number).name))
        if client.api.inspect_container(container)["State"].get("OOMKilled"):
            limit = spec.memory or "nine tenths of this machine's"
            print(
                f"phantora: the kernel ended a process: the memory limit was reached ({limit}). "
                "Raise it with --memory, or use fewer ranks.",
                file=sys.stderr,
            )
            return 1
        if code > _SIGNALLED and signal.Signals(code - _SIGNALLED) not in _FORWARDED:
            raise PhantoraError(
                "the run's supervisor to end by itself",
                f"it killed by {signal.Signals(code - _SIGNALLED).name}",
                "Did the script kill it, or somebody the container?",
            )
        return code
    except APIError as error:
        raise _refused(spec, str(error.explanation or error)) from None
    except (DockerException, OSError) as error:
        raise _refused(spec, f"the Engine went away ({error})") from None
    finally:
        _remove(client, container)


def _refused(spec: ContainerSpec, found: str) -> PhantoraError:
    return PhantoraError(f"a container from {spec.image}", found, "Check the Docker Engine with `docker info`.")


def _remove(client: Any, container: str) -> None:
    from docker.errors import DockerException

    try:
        client.api.remove_container(container, force=True, v=True)
    except (DockerException, OSError) as error:
        print(f"phantora: container {container[:12]} could not be removed: {error}", file=sys.stderr)


def _config(client: Any, spec: ContainerSpec) -> dict[str, Any]:
    from docker.types import Mount as DockerMount

    uid, gid = spec.user
    seccomp = resources.files("phantora.sandbox").joinpath("seccomp.json").read_text(encoding="utf-8")
    memory = parse_bytes(spec.memory) if spec.memory else int(client.info()["MemTotal"] * 9 // 10)
    # What lies there is memory too: a script that fills one of them gets "no space left", not the kernel's OOM killer.
    size = f"size={memory // 4}"
    tmpfs = {
        "/tmp": f"rw,exec,nosuid,nodev,mode=1777,{size}",
        HOME: f"rw,exec,nosuid,nodev,mode=0700,uid={uid},gid={gid},{size}",
    }
    if spec.writable_directory:
        tmpfs[spec.working_directory] = f"rw,exec,nosuid,nodev,mode=0755,uid={uid},gid={gid},{size}"
    host = client.api.create_host_config(
        network_mode=spec.network,
        cap_drop=["ALL"],
        security_opt=["no-new-privileges:true", f"seccomp={seccomp}"],
        read_only=True,
        tmpfs=tmpfs,
        mounts=[DockerMount(m.target, str(m.source), type="bind", read_only=m.read_only) for m in spec.mounts],
        mem_limit=memory,
        memswap_limit=memory,
        cpuset_cpus=spec.cpus,
        shm_size=spec.shm_size or "2g",
        pids_limit=_PIDS_BASE + _PIDS_PER_RANK * spec.ranks,
        init=True,
        ipc_mode="private",
        log_config={"Type": "none"},
    )
    return dict(
        client.api.create_container_config(
            spec.image,
            spec.command,
            user=f"{uid}:{gid}",
            environment=spec.environment,
            working_dir=spec.working_directory,
            host_config=host,
            labels={LABEL: spec.run},
            stdin_open=False,
        )
    )


def _pass_through(output: Iterator[tuple[bytes | None, bytes | None]], terminal: Terminal) -> None:
    for chunks in output:
        for descriptor, chunk in enumerate(chunks, start=1):
            if chunk:
                terminal.write(descriptor, chunk)


@contextmanager
def _signals(client: Any, container: str, terminal: Terminal) -> Iterator[None]:
    """Passes Ctrl-C and others on to the runtime in the container, which ends the run; a third Ctrl-C kills it."""
    counts = dict.fromkeys(_FORWARDED, 0)

    def forward(number: int, _frame: object) -> None:
        counts[signal.Signals(number)] += 1
        name = "SIGKILL" if counts[signal.Signals(number)] > 2 else signal.Signals(number).name
        threading.Thread(target=_kill, args=(client, container, name), daemon=True).start()
        terminal.leave()

    previous = {number: signal.signal(number, forward) for number in _FORWARDED}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _kill(client: Any, container: str, name: str) -> None:
    from docker.errors import DockerException

    with suppress(DockerException):  # it may have ended meanwhile
        client.api.kill(container, signal=name)
