"""Runs one container to its end: output passed through, signals passed on, nothing left behind."""

from __future__ import annotations

import os
import queue
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib import resources
from typing import Any

from phantora.errors import PhantoraError
from phantora.sandbox import stale
from phantora.sandbox.limits import Limits
from phantora.sandbox.mounts import Mount
from phantora.sandbox.workspace import Overlay
from phantora.terminal import Terminal
from phantora_runtime.exit_codes import ExitCode

HOME = "/home/phantora"
# Who the script is when root calls: an id that is nobody on common systems.
ID_FOR_ROOT = 10_001
_FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_SIGNALLED = 128  # an exit code above says which signal ended the program
_RESEND_S = 2.0
# Under load the container may take half of what others get, and the kernel takes it first when memory runs out.
_CPU_SHARES = 512
_OOM_SCORE = 500
# After --timeout the supervisor ends the run and the core writes what it knows; then nobody waits any longer.
_GRACE_S = 180.0


@dataclass(frozen=True)
class ContainerSpec:
    """One container.

    Attributes:
        image: Image name.
        command: What runs in it.
        environment: Its environment, complete.
        mounts: What it sees of this machine.
        working_directory: Where the command starts.
        limits: What it may use.
        timeout_s: Real time after which the run ends itself.
        overlays: Folders of this machine that it sees writable, without writing them.
        network: `none` or `bridge`.
        run: The run directory; the label of the container says whose it is.
    """

    image: str
    command: list[str]
    environment: dict[str, str]
    mounts: list[Mount]
    working_directory: str
    limits: Limits
    timeout_s: float
    overlays: tuple[Overlay, ...] = ()
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

    with _Signals(terminal) as signals:
        stale.remove(client)
        try:
            container = client.api.create_container_from_config(_config(client, spec))["Id"]
        except APIError as error:
            raise _refused(spec, str(error.explanation or error)) from None
        run = _Container(client, container, terminal, signals)
        try:
            code = run.to_end(spec.timeout_s)
        except APIError as error:
            found = str(error.explanation or error)
            if spec.overlays and "failed to mount local volume" in found:
                raise OverlayRefused(found.rpartition(": ")[2]) from None
            raise _refused(spec, found) from None
        except (DockerException, OSError) as error:
            raise PhantoraError(
                "the Docker Engine to stay until the run ends",
                f"that it went away ({error})",
                "The run ends by itself; look at the Engine with `docker info`.",
            ) from None
        finally:
            run.remove()
    return _exit_code(code, run.overdue)


class OverlayRefused(Exception):
    """This Engine, or the file system the run directory is on, mounts no overlay there; the message says why."""


def _exit_code(code: int | None, overdue: bool) -> int:
    if overdue:
        print(
            f"phantora: stopped: The run had not ended {_GRACE_S:.0f} s after --timeout, so its container was killed; "
            "there is no report.",
            file=sys.stderr,
        )
        return int(ExitCode.TIMEOUT)
    if code is None or code - _SIGNALLED in _FORWARDED:
        print("phantora: stopped: The run was interrupted before it began.", file=sys.stderr)
        return int(ExitCode.INTERRUPTED)
    if code > _SIGNALLED:
        raise PhantoraError(
            "the run's supervisor to end by itself",
            f"it killed by signal {code - _SIGNALLED}",
            "Did the script kill it, or somebody the container?",
        )
    return code


class ContainerRefused(PhantoraError):
    """The Engine did not make or start the container (exit code 3)."""


def _refused(spec: ContainerSpec, found: str) -> ContainerRefused:
    return ContainerRefused(f"a container from {spec.image}", found, "Check the Docker Engine with `docker info`.")


class _Container:
    """A container that exists and has not been started."""

    def __init__(self, client: Any, container: str, terminal: Terminal, signals: _Signals) -> None:
        self._client = client
        self._id = container
        self._terminal = terminal
        self._signals = signals
        self.overdue = False

    def to_end(self, timeout_s: float) -> int | None:
        """Returns the exit code; None where a signal came before the start.

        Raises:
            APIError: The Engine refuses the start.
            DockerException, OSError: It went away.
        """
        api = self._client.api
        output = api.attach(self._id, stdout=True, stderr=True, stream=True, demux=True)
        # The one connection to its stdin: the Engine closes stdin when we are gone, however that comes about.
        stdin = api.attach_socket(self._id, params={"stdin": 1, "stream": 1})
        pump = threading.Thread(target=_pass_through, args=(output, self._terminal), name="output", daemon=True)
        waiting = _Waiting(api, self._id)  # from before the start: it is gone at once when it ends
        if self._signals.arrived:
            return None
        deadline = threading.Timer(timeout_s + _GRACE_S, self._give_up)
        deadline.daemon = True
        try:
            api.start(self._id)
            self._signals.pass_on(self.kill)
            deadline.start()
            pump.start()

            def wait() -> int:
                code = waiting.result()
                pump.join(timeout=10)
                return code

            return self._terminal.run(wait, self._interrupt)
        finally:
            deadline.cancel()
            stdin.close()

    def _interrupt(self, number: int) -> None:
        self.kill(signal.Signals(number).name)

    def _give_up(self) -> None:
        self.overdue = True
        self.kill("SIGKILL")

    def kill(self, name: str) -> bool:
        """Sends a signal; False when the container has ended."""
        from docker.errors import DockerException

        try:
            self._client.api.kill(self._id, signal=name)
        except (DockerException, OSError):
            return False
        return True

    def remove(self) -> None:
        """Removes it if it is still there, running or not."""
        from docker.errors import APIError, DockerException

        try:
            self._client.api.remove_container(self._id, force=True, v=True)
        except APIError as error:
            if error.status_code not in _GONE:
                print(f"phantora: container {self._id[:12]} could not be removed: {error}", file=sys.stderr)
        except (DockerException, OSError) as error:
            print(
                f"phantora: container {self._id[:12]} could not be removed: {error}. It ends by itself; "
                "the next `phantora sandbox` removes it.",
                file=sys.stderr,
            )


_GONE = (404, 409)  # no such container; its removal is already under way


class _Waiting:
    """Waits in a thread until a container has ended and was removed."""

    def __init__(self, api: Any, container: str) -> None:
        self._outcome: queue.SimpleQueue[int | BaseException] = queue.SimpleQueue()
        threading.Thread(target=self._wait, args=(api, container), name="waits for the end", daemon=True).start()

    def _wait(self, api: Any, container: str) -> None:
        try:
            self._outcome.put(int(api.wait(container, timeout=None, condition="removed")["StatusCode"]))
        except BaseException as error:
            self._outcome.put(error)

    def result(self) -> int:
        """Returns the exit code, or raises what went wrong."""
        outcome = self._outcome.get()
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome


def _config(client: Any, spec: ContainerSpec) -> dict[str, Any]:
    from docker.types import DriverConfig
    from docker.types import Mount as DockerMount

    uid, gid = spec.user
    seccomp = resources.files("phantora.sandbox").joinpath("seccomp.json").read_text(encoding="utf-8")
    size = f"size={spec.limits.tmpfs}"
    tmpfs = {
        "/tmp": f"rw,exec,nosuid,nodev,mode=1777,{size}",
        HOME: f"rw,exec,nosuid,nodev,mode=0700,uid={uid},gid={gid},{size}",
    }
    mounts = [DockerMount(m.target, str(m.source), type="bind", read_only=m.read_only) for m in spec.mounts]
    for overlay in spec.overlays:
        driver = DriverConfig("local", overlay.options())
        mounts.append(DockerMount(str(overlay.lower), None, type="volume", no_copy=True, driver_config=driver))
        tmpfs[str(overlay.scratch)] = "ro,size=4k"  # what lies there is the kernel's
    host = client.api.create_host_config(
        network_mode=spec.network,
        cap_drop=["ALL"],
        security_opt=["no-new-privileges:true", f"seccomp={seccomp}"],
        read_only=True,
        tmpfs=tmpfs,
        mounts=mounts,
        mem_limit=spec.limits.memory,
        memswap_limit=spec.limits.memory,
        cpuset_cpus=spec.limits.cpus,
        cpu_shares=_CPU_SHARES,
        oom_score_adj=_OOM_SCORE,
        shm_size=spec.limits.shm,
        pids_limit=spec.limits.pids,
        init=True,
        auto_remove=True,
        ipc_mode="private",
        log_config={"Type": "none"},
    )
    return dict(
        client.api.create_container_config(
            spec.image,
            spec.command[1:],
            entrypoint=spec.command[:1],  # in place of the image's own
            user=f"{uid}:{gid}",
            environment=spec.environment,
            working_dir=spec.working_directory,
            host_config=host,
            labels={stale.LABEL: spec.run, stale.LAUNCHER_LABEL: stale.this_launcher()},
            stdin_open=True,
        )
    )


def _pass_through(output: Iterator[tuple[bytes | None, bytes | None]], terminal: Terminal) -> None:
    for chunks in output:
        for descriptor, chunk in enumerate(chunks, start=1):
            if chunk:
                terminal.write(descriptor, chunk)


class _Signals:
    """Passes Ctrl-C and others on to the runtime in the container, which ends the run; a third Ctrl-C kills it."""

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal
        self._queue: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._counts = dict.fromkeys(_FORWARDED, 0)
        self._previous: dict[int, Any] = {}
        self._ended = threading.Event()

    @property
    def arrived(self) -> bool:
        """Has one come?"""
        return any(self._counts.values())

    def __enter__(self) -> _Signals:
        self._previous = {number: signal.signal(number, self._note) for number in _FORWARDED}
        return self

    def __exit__(self, *_exception: object) -> None:
        self._ended.set()
        self._queue.put(None)
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def pass_on(self, kill: Callable[[str], bool]) -> None:
        """From now on what arrives, and what has arrived, goes to a started container.

        It is sent again until the container has ended: the first processes in it do not listen yet.
        """

        def send() -> None:
            for name in iter(self._queue.get, None):
                while kill(name) and not self._ended.wait(_RESEND_S) and self._queue.empty():
                    continue

        threading.Thread(target=send, name="signals", daemon=True).start()

    def _note(self, number: int, _frame: object) -> None:
        self._counts[signal.Signals(number)] += 1
        self._queue.put("SIGKILL" if self._counts[signal.Signals(number)] > 2 else signal.Signals(number).name)
        self._terminal.leave()
