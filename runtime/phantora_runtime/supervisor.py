"""Runs one run: starts core and zygote, watches them, ends everything, writes the report.

The order at the end is fixed: ranks first (a failing rank's traceback is printed before anything else), then the core,
which writes what it knows, then the report. Whatever happens, no process of the run outlives this one.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import resource
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from phantora_runtime import cgroup, control, files, processes, report, settings, stacks, zygote
from phantora_runtime.core_process import Core, CoreFault
from phantora_runtime.disk import DiskWatch
from phantora_runtime.ending import ENDED_WITH_RUN, Ending, Reason
from phantora_runtime.exit_codes import ExitCode
from phantora_runtime.finish import ACK_FD_VARIABLE
from phantora_runtime.memory import MemorySampler
from phantora_runtime.oplog_file import OplogWriter
from phantora_runtime.output import RankOutput
from phantora_runtime.quantities import format_bytes
from phantora_runtime.viewers import EventServer

ENDING_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_TICK_S = 0.2
_TICK_BYTES = 4096  # of stdin, which carries nothing
_CORE_END_S = 120.0  # a long op log still has to be written
_REASON_WAIT_S = 3.0
_SETTLE_S = 0.3  # a rank's exception message may arrive after its exit status
_FAILURES = (Reason.RANK_FAILED, Reason.PARENT_LOST, Reason.CORE_FAULT)  # what a killed process looks like
_MACHINE_ERRORS = (
    *(errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG, errno.EIO, errno.EACCES, errno.EPERM),
    *(errno.ENOMEM, errno.EAGAIN, errno.EMFILE, errno.ENFILE),
)
_DROPPED = ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "PYTHONPATH", "PHANTORA_USER_PYTHONPATH")


def supervise(folder: Path) -> ExitCode:
    """Runs what folder/run.json describes and returns the exit code."""
    try:
        run = settings.read(folder)
        return _Supervisor(run).run()
    except settings.EnvironmentFault as fault:
        print(f"phantora: {fault}", file=sys.stderr)
        return ExitCode.ENVIRONMENT
    except OSError as error:
        if error.errno not in _MACHINE_ERRORS:
            raise
        where = f" ({error.filename})" if error.filename else ""
        print(
            f"phantora: Wanted to run and to write {folder}; found {error.strerror}{where}. "
            "Make room, or choose another place with --out.",
            file=sys.stderr,
        )
        return ExitCode.ENVIRONMENT


class _Supervisor:
    def __init__(self, run: settings.Run) -> None:
        self._run = run
        self._native = settings.native_folder()
        self._started = time.monotonic()
        self._ending: Ending | None = None
        self._partial = Ending()
        self._control, self._control_far = control.pair()
        self._memory = MemorySampler()
        self._viewers = EventServer(run.folder)
        self._pids: dict[int, int] = {}
        self._left = set(range(run.launch.world_size))
        self._exceptions: dict[int, dict[str, Any]] = {}
        self._pending: list[dict[str, Any]] = []
        self._leaving: dict[int, int] = {}
        self._importing = ""
        self._left_out: list[str] = []
        self._core: Core | None = None
        self._oplog: OplogWriter | None = None
        self._output: RankOutput | None = None
        self._zygote: subprocess.Popen[bytes] | None = None
        self._seen: set[int] = set()
        self._looked = False
        self._ended_by_core = 0.0
        self._stopping = False
        self._cgroup = cgroup.read() if run.sandboxed else None
        self._disk = DiskWatch(run.folder, run.cache)

    # -- the run, from start to report --------------------------------------------------------------------------------

    def run(self) -> ExitCode:
        try:
            return self._run_to_end()
        finally:
            self._viewers.finish()

    def _run_to_end(self) -> ExitCode:
        processes.become_subreaper()
        processes.end_with_parent()
        for number in ENDING_SIGNALS:
            signal.signal(number, self._on_signal)
        try:
            if not self._run.null_mode:
                self._oplog = OplogWriter(self._run.folder / "oplog")
                self._oplog.start()
                self._core = self._start_core(self._oplog)
            self._output = self._start_zygote()
            self._memory.start()
            self._viewers.start()
            self._watch()
        finally:
            self._end_ranks()
        if self._output is not None:
            self._output.finish()
        ending = self._ending or self._partial
        core_report = self._finish_core(ending)
        self._memory.stop()
        self._seen |= processes.kill_descendants(alone=self._run.sandboxed)
        processes.remove_shared_files(self._seen | set(self._pids.values()))
        digest = self._oplog.finish() if self._oplog is not None else None
        self._print_failure(ending)
        if not self._filled_the_disk(ending) and (fault := self._write_fault()) is not None:
            raise fault
        return self._report(ending, core_report, digest)

    def _write_fault(self) -> OSError | None:
        """What went wrong with the files that we write while the run goes on: the disk is full."""
        writers = (self._output, self._oplog)
        return next((writer.fault for writer in writers if writer is not None and writer.fault is not None), None)

    def _filled_the_disk(self, ending: Ending) -> bool:
        """Did the run fail because it wrote too much? What a sandboxed script wrote goes then: the disk is needed."""
        found = self._disk.too_much(now=True)
        if not found or ending.reason not in (*_FAILURES, Reason.DISK_FILLED):
            return False
        ending.reason, ending.fault = Reason.DISK_FILLED, found
        if self._run.sandboxed:
            shutil.rmtree(self._run.folder / settings.FILES, ignore_errors=True)
        return True

    def _on_signal(self, _number: int, _frame: Any) -> None:
        self._stopping = True

    def _start_core(self, oplog: OplogWriter) -> Core | None:
        try:
            return Core(self._run, self._native, oplog.write_fd)
        except CoreFault as fault:
            self._end(Reason.CORE_FAULT, fault=str(fault))
            return None
        finally:
            oplog.close_write_end()

    def _start_zygote(self) -> RankOutput:
        quiet_stdout = 2 if self._run.launch.json else 1
        output = RankOutput(self._run.log_path(0), quiet_stdout, 2)
        acknowledge, self._acknowledge = os.pipe()
        self._inherited = [*output.write_fds, self._control_far.fileno(), acknowledge]
        self._zygote_environment = self._environment(output, acknowledge)
        if self._ending is None:
            self._zygote = self._spawn()
        output.start()
        if not processes.addresses_can_be_fixed():
            self._partial.notes.append(
                "address randomisation could not be switched off (seccomp?): set orders may differ from run to run."
            )
        return output

    def _spawn(self) -> subprocess.Popen[bytes]:
        with open(self._run.folder / "zygote.log", "ab") as log:
            return subprocess.Popen(
                zygote.command(self._run.launch.python, self._run.folder),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._zygote_environment | {zygote.LEFT_OUT_VARIABLE: ",".join(self._left_out)},
                pass_fds=self._inherited,
                preexec_fn=processes.fix_addresses,
                start_new_session=True,
            )

    def _environment(self, output: RankOutput, acknowledge: int) -> dict[str, str]:
        """What the zygote sees, and ranks after it; torchrun's variables are added per rank."""
        environment = {name: value for name, value in os.environ.items() if name not in _DROPPED}
        user_path = os.environ.get("PHANTORA_USER_PYTHONPATH", "")
        site = str(Path(__file__).resolve().parent / "site")
        libraries = [str(self._native / "stubs"), environment.get("LD_LIBRARY_PATH", "")]
        preload = [str(self._native / "libphantora_shim.so"), environment.get("LD_PRELOAD", "")]
        environment.update(
            {
                "PYTHONPATH": os.pathsep.join(entry for entry in (site, user_path) if entry),
                "PYTHONHASHSEED": "0",
                "LD_PRELOAD": ":".join(entry for entry in preload if entry),
                "LD_LIBRARY_PATH": ":".join(entry for entry in libraries if entry),
                "OMP_NUM_THREADS": "1",
                # The same CPU kernels on every machine: small ops are executed, and their values steer control flow.
                "ATEN_CPU_CAPABILITY": "default",
                "MKL_CBWR": "COMPATIBLE",
                "PHANTORA_RUN_DIR": str(self._run.folder),
                control.FD_VARIABLE: str(self._control_far.fileno()),
                ACK_FD_VARIABLE: str(acknowledge),
                "PHANTORA_RANK0_FDS": ",".join(str(fd) for fd in output.write_fds),
            }
        )
        if self._core is not None:
            environment["PHANTORA_SEGMENT"] = self._core.segment
        elif self._run.null_mode:
            environment["PHANTORA_GPU_CONF"] = _write_null_config(self._run)
            environment["PHANTORA_MASTER_ADDR"] = "127.0.0.1"
            environment["PHANTORA_MASTER_PORT"] = str(_free_port())
        return environment

    # -- watching -----------------------------------------------------------------------------------------------------

    def _watch(self) -> None:
        deadline = self._started + self._run.launch.timeout_ns / 1e9
        selector = selectors.DefaultSelector()
        selector.register(self._control, selectors.EVENT_READ)
        if self._run.sandboxed:
            selector.register(sys.stdin, selectors.EVENT_READ)
        while self._ending is None:
            for key, _ in selector.select(_TICK_S):
                if key.fileobj is sys.stdin and not os.read(key.fd, _TICK_BYTES):
                    self._stopping = True  # the launcher was killed, or lost the Engine
                    selector.unregister(sys.stdin)
            self._handle_all()
            if self._ending is not None:
                break
            if self._stopping or self._write_fault() is not None:
                self._end(Reason.INTERRUPTED)
            elif not self._left or self._waited_for_reason():
                self._end(Reason.COMPLETED if self._ended_by_core == 0.0 else Reason.CORE_VERDICT)
            elif self._core is not None and not self._ended_by_core and self._core.process.poll() is not None:
                self._core_ended(self._core)
            elif self._zygote is not None and self._zygote.poll() is not None:
                self._zygote_ended(self._zygote)
            elif time.monotonic() > deadline:
                self._time_out()
            elif found := self._disk.too_much():
                self._end(Reason.DISK_FILLED, fault=found)
        selector.close()

    def _handle_all(self) -> None:
        self._pending += control.receive(self._control)
        while self._pending:
            self._handle(self._pending.pop(0))

    def _handle(self, message: dict[str, Any]) -> None:
        event = message["event"]
        if event == "importing":
            self._importing = message["name"]
        elif event == "torch":
            self._partial.torch_version = message["version"].partition("+")[0]
        elif event == "no_torch" and "PHANTORA_ALLOW_NO_TORCH" not in os.environ:
            raise settings.EnvironmentFault(
                f"Wanted torch; found none in {message['python']}. "
                "Install it there (pip install 'phantora-sim[local]'), or name another interpreter with --python."
            )
        elif event == "imported":
            self._importing = ""
        elif event == "note":
            self._partial.notes.append(message["text"])
        elif event == "started":
            self._pids[message["rank"]] = message["pid"]
        elif event == "exception":
            self._exceptions[message["rank"]] = message
        elif event == "leaving":
            self._leaving[message["rank"]] = message["status"]
        elif event == "finishing":
            self._look(message)
        elif event == "exited":
            self._rank_exited(message["rank"], message["status"])

    def _look(self, message: dict[str, Any]) -> None:
        """A rank is about to end: the last good moment to measure memory."""
        if message["oom_errors"]:
            self._partial.oom_errors[message["rank"]] = message["oom_errors"]
        if not self._looked:
            self._looked = True
            self._memory.sample()
        if message["rank"] == 0:
            with contextlib.suppress(OSError):
                os.write(self._acknowledge, b"1")

    def _rank_exited(self, rank: int, status: int) -> None:
        self._left.discard(rank)
        if status == 0 or self._ending is not None:
            return
        # Its helper threads may end a failing rank with the run's status just before its own.
        if status == ENDED_WITH_RUN:
            status = self._leaving.get(rank, 1 if rank in self._exceptions else status)
        if status == ENDED_WITH_RUN:
            # The core ended the run; its reason, often another rank's failure, may still be on its way.
            self._ended_by_core = self._ended_by_core or time.monotonic()
            return
        self._settle()
        first = next(iter(self._exceptions), rank)
        self._end(Reason.RANK_FAILED, rank=first, status=1 if first != rank else status)

    def _waited_for_reason(self) -> bool:
        return self._ended_by_core != 0.0 and time.monotonic() - self._ended_by_core > _REASON_WAIT_S

    def _settle(self) -> None:
        """Takes in what is already on its way, so that the first exception is named and not its consequence."""
        time.sleep(_SETTLE_S)
        self._pending += control.receive(self._control)
        for message in self._pending:
            if message["event"] == "exception":
                self._exceptions.setdefault(message["rank"], message)

    def _core_ended(self, core: Core) -> None:
        found = core.report()
        if found is not None and core.process.returncode == 0:
            self._ended_by_core = self._ended_by_core or time.monotonic()
            return
        status = core.process.returncode
        self._end(Reason.CORE_FAULT, fault=f"the core ended with status {status}. {core.log_tail()}")

    def _zygote_ended(self, process: subprocess.Popen[bytes]) -> None:
        """All ranks have been reported when a zygote ends well; else an import took it down: leave that library out."""
        self._settle()
        self._handle_all()
        if not self._left or self._ending is not None:
            return
        if not self._pids and self._importing not in ("", "torch") and self._importing not in self._left_out:
            self._left_out.append(self._importing)
            self._partial.notes.append(
                f"importing {self._importing} ahead of the ranks failed; they import it themselves."
            )
            self._zygote = self._spawn()
            return
        how = f"status {process.returncode}" if process.returncode >= 0 else f"signal {-process.returncode}"
        if self._pids:
            self._end(Reason.PARENT_LOST, fault=f"The ranks' parent process ended with {how}. Did the script do that?")
            return
        log = self._run.folder / "zygote.log"
        last = _tail(log, lines=1)
        said = f"Its output is in {log}: {last}" if last else "It said nothing."
        memory = " Is there enough memory?" if process.returncode == -signal.SIGKILL else ""
        raise settings.EnvironmentFault(
            f"Wanted to import torch and start the ranks; found that {self._run.launch.python} ended with {how}."
            f"{memory} {said}"
        )

    def _time_out(self) -> None:
        texts = self._ask_stacks()
        for rank, text in texts.items():
            with files.open_own(self._run.log_path(rank), append=True) as log:
                log.write(f"\nphantora: --timeout passed; this rank was here:\n{text}\n")
        self._end(Reason.TIMEOUT, stacks=texts)

    def _ask_stacks(self) -> dict[int, str]:
        living = {rank: pid for rank, pid in self._pids.items() if rank in self._left}
        return stacks.collect(living, {rank: self._run.stack_path(rank) for rank in living})

    def _end(self, reason: Reason, **fields: Any) -> None:
        ending = self._partial
        ending.reason = reason
        for name, value in fields.items():
            setattr(ending, name, value)
        if reason is Reason.RANK_FAILED:
            ending.exception = self._exceptions.get(ending.rank, {})
            if not ending.exception:
                ending.log_tail = _tail(self._run.log_path(ending.rank))
        self._ending = ending

    # -- ending -------------------------------------------------------------------------------------------------------

    def _end_ranks(self) -> None:
        keep = [self._core.process.pid] if self._core is not None else []
        completed = self._ending is not None and self._ending.reason is Reason.COMPLETED
        grace_s = 2.0 if completed else 0.5
        self._seen |= processes.kill_descendants(keep, grace_s, alone=self._run.sandboxed)
        if self._zygote is not None:
            with contextlib.suppress(ChildProcessError):
                self._zygote.wait()
        self._control_far.close()

    def _finish_core(self, ending: Ending) -> dict[str, Any] | None:
        if self._core is None:
            return None
        completed = ending.reason in (Reason.COMPLETED, Reason.CORE_VERDICT)
        status = self._core.finish(ask=not completed, wait_s=_CORE_END_S)
        found = self._core.report()
        if ending.reason is not Reason.CORE_FAULT and (status != 0 or found is None):
            ending.reason = Reason.CORE_FAULT
            ending.fault = f"the core ended with status {status}. {self._core.log_tail()}".strip()
        if found is not None and found.get("verdict") in ("hang", "mismatch") and not ending.stacks:
            ending.stacks = self._written_stacks()
        return found

    def _written_stacks(self) -> dict[int, str]:
        """Stacks that ranks wrote when the core asked them."""
        texts = {}
        for rank in range(self._run.launch.world_size):
            with contextlib.suppress(OSError):
                if text := files.read_plain(self._run.stack_path(rank)):
                    texts[rank] = text
        return texts

    def _report(self, ending: Ending, core_report: dict[str, Any] | None, digest: str | None) -> ExitCode:
        real = self._real(ending)
        self._remove_empty_stack_files()
        content = report.build(self._run, core_report, ending, real, digest)
        report.write(content, self._run.folder)
        if not self._run.null_mode:
            report.append_event(content, self._run.folder)
        self._record_torch(ending)
        code = report.exit_code(content, ending)
        folder = os.path.relpath(self._run.folder)
        if not self._run.launch.quiet:
            for note in content["notes"]:
                print(f"phantora: note: {note}", file=sys.stderr)
            if not self._run.null_mode:
                for line in report.overview(content):
                    print(f"phantora: {line}", file=sys.stderr)
        print(f"phantora: {report.summary(content, folder)}", file=sys.stderr, flush=True)
        if self._run.launch.json:
            print(json.dumps(content, indent=1), flush=True)
        return code

    def _real(self, ending: Ending) -> dict[str, Any]:
        """The section `real`: in a container as its control group counts, else from the processes themselves."""
        own, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
        real: dict[str, Any] = {
            "wall_s": round(time.monotonic() - self._started, 3),
            "cpu_s": round(own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime, 3),
            "peak_host_bytes": self._memory.peak_bytes,
            "cpus": len(os.sched_getaffinity(0)),
        }
        used = cgroup.read() if self._cgroup is not None else None
        if self._cgroup is None or used is None:
            return real
        if used.oom_kills > self._cgroup.oom_kills and ending.reason in _FAILURES:
            ending.reason = Reason.MEMORY_LIMIT
            ending.fault = (
                "The kernel ended a process of the run: the memory limit was reached "
                f"({format_bytes(used.limit_bytes or 0)}). Raise it with --memory, or use fewer ranks."
            )
        real["cpu_s"] = round(used.cpu_s - self._cgroup.cpu_s, 3)
        real["cgroup"] = {
            "version": used.version,
            "peak_bytes": used.peak_bytes,
            "limit_bytes": used.limit_bytes,
            "oom_kills": used.oom_kills - self._cgroup.oom_kills,
        }
        return real

    def _print_failure(self, ending: Ending) -> None:
        if ending.reason is not Reason.RANK_FAILED:
            return
        text = ending.exception.get("traceback") or ending.log_tail
        if ending.rank == 0 and ending.exception:
            return  # its own output has already shown it
        said = f":\n{text.rstrip()}" if text.strip() else " without a word."
        print(f"phantora: rank {ending.rank} failed ({ending.how()}){said}", file=sys.stderr)

    def _record_torch(self, ending: Ending) -> None:
        self._run.content["versions"]["torch"] = ending.torch_version
        files.write_own(self._run.folder / "run.json", json.dumps(self._run.content, indent=1) + "\n")

    def _remove_empty_stack_files(self) -> None:
        for path in (self._run.folder / "ranks").glob("*.stacks"):
            with contextlib.suppress(OSError):
                if path.lstat().st_size == 0:
                    path.unlink()


def _write_null_config(run: settings.Run) -> str:
    path = run.folder / "core.conf"
    files.write_own(path, "".join(f"{key} = {value}\n" for key, value in run.core.items()))
    return str(path)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _tail(path: Path, lines: int = 20) -> str:
    try:
        text = files.read_plain(path)
    except OSError:
        return ""
    return "\n".join(text.rstrip().splitlines()[-lines:])
