"""What a container may use, and where a script in it may write: computed without an Engine."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from phantora.errors import PhantoraError, UsageError
from phantora.options import SandboxOptions
from phantora.sandbox import container, limits, stale, workspace
from phantora_runtime import files

GIB = 1 << 30


class Engine:
    """An Engine on a machine of 24 GiB and 4 CPUs."""

    def info(self):
        return {"MemTotal": 24 * GIB, "NCPU": 4}


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """Sets what this machine has; returns the function that does."""

    def says(available: int, total: int = 24 * GIB, pids: int = 4_000_000) -> None:
        kernel = tmp_path / "sys" / "kernel"
        kernel.mkdir(parents=True, exist_ok=True)
        memory = SimpleNamespace(total=total, available=available)
        monkeypatch.setattr(limits.psutil, "virtual_memory", lambda: memory)
        for name in ("pid_max", "threads-max"):
            (kernel / name).write_text(f"{pids}\n")

    monkeypatch.setattr(limits, "_PROC", tmp_path)
    says(20 * GIB)
    return says


def unneeded(scratch: Path) -> None:
    raise AssertionError(f"{scratch} could have been removed by its owner")


def compute(ranks=8, **options) -> limits.Limits:
    return limits.compute(Engine(), SandboxOptions(**options), ranks)


def test_limits_follow_from_ranks_and_free_memory(machine):
    few, many = compute(8), compute(256)
    assert few.memory == many.memory == 18 * GIB
    assert few.pids < many.pids
    assert few.shm < many.shm <= many.memory // 2
    assert few.tmpfs == 18 * GIB // 4


def test_an_engine_elsewhere_is_taken_at_its_word(machine):
    """The Engine's machine has another size than this one: what is free here says nothing about it."""
    machine(1 * GIB, total=8 * GIB)
    assert compute().memory == 24 * GIB * 9 // 10


def test_a_machine_too_small_is_refused_before_the_start(machine):
    machine(4 * GIB)
    assert compute(8).memory == 4 * GIB * 9 // 10
    with pytest.raises(PhantoraError, match=r"about 13\.00 GiB of memory for 256 ranks; found 3\.60 GiB") as error:
        compute(256)
    assert error.value.code == 3
    assert compute(256, memory="4g").memory == 4 * GIB  # the user knows better
    with pytest.raises(PhantoraError, match=r"a machine that has 24\.00 GiB"):
        compute(memory="25g")


def test_too_few_processes_are_refused(machine):
    machine(20 * GIB, pids=8192)
    assert compute(64).pids == 4096
    with pytest.raises(PhantoraError, match="a machine that allows 4096"):
        compute(256)


@pytest.mark.parametrize(
    "options",
    [
        {"shm_size": "30g"},
        *({"cpus": text} for text in ("4", "1-0", "0,4", "2-4")),
    ],
)
def test_options_that_cannot_be(machine, options):
    with pytest.raises(UsageError):
        compute(**options)


def test_cpus_that_can_be(machine):
    assert compute(cpus="0,2-3").cpus == "0,2-3"


def test_a_launcher_is_known_by_more_than_its_pid():
    me = stale.this_launcher()
    boot, namespace, pid, start = me.split(" ")
    assert int(pid) == os.getpid()
    assert stale._is_alive(me)
    assert not stale._is_alive(f"{boot} {namespace} {pid} {int(start) + 1}")  # the pid came round again
    assert not stale._is_alive(f"{boot} {namespace} {1 << 30} {start}")
    assert stale._is_alive(f"another {namespace} {pid} {start}")  # another machine: nobody knows
    assert stale._is_alive(f"{boot} pid:[1] {1 << 30} {start}")
    assert stale._is_alive("")


def test_only_containers_of_dead_launchers_are_removed():
    class Api:
        def __init__(self):
            dead = stale.this_launcher().rsplit(" ", 1)[0] + " 0"
            self.here = {"mine": stale.this_launcher(), "left": dead}

        def containers(self, **_filters):
            return [{"Id": name, "Labels": {stale.LAUNCHER_LABEL: label}} for name, label in self.here.items()]

        def remove_container(self, name, **_options):
            del self.here[name]

    class Client:
        api = Api()

    assert stale.remove(Client) == ["left"]
    assert list(Client.api.here) == ["mine"]


def test_overlay_layers_mirror_the_paths_inside(tmp_path):
    run, code = tmp_path / "code" / "runs" / "one", tmp_path / "code"
    run.mkdir(parents=True)
    (code / "src" / "deep").mkdir(parents=True)
    owner = (os.getuid(), os.getgid())
    made = workspace.overlay(run, code, owner)
    assert made is not None
    assert made.upper == run / "files" / code.relative_to("/")
    assert f"lowerdir={code},upperdir={made.upper}" in made.options()["o"]
    (made.scratch / "work").mkdir(mode=0)  # as the kernel leaves it
    (made.upper / "out.txt").write_text("kept")
    workspace.clear(run, as_root=unneeded)
    assert sorted(path.name for path in run.iterdir()) == ["files"]
    assert (made.upper / "out.txt").read_text() == "kept"


@pytest.mark.skipif(os.getuid() == 0, reason="root removes it itself")
def test_what_only_root_can_remove_is_removed_as_root(tmp_path):
    """Stands for the kernel's own files, which a user cannot delete."""
    (tmp_path / "run").mkdir()
    made = workspace.overlay(tmp_path / "run", tmp_path, (os.getuid(), os.getgid()))
    assert made is not None
    (made.scratch / "work" / "whiteout").mkdir(parents=True)
    asked: list[Path] = []

    def as_root(scratch: Path) -> None:
        asked.append(scratch)
        shutil.rmtree(scratch / "work")

    workspace.clear(tmp_path / "run", as_root)
    assert asked == [made.scratch]
    assert list((tmp_path / "run").iterdir()) == []


def test_nothing_written_leaves_nothing(tmp_path):
    run, code = tmp_path / "run", tmp_path / "code"
    run.mkdir()
    code.mkdir()
    workspace.overlay(run, code, (os.getuid(), os.getgid()))
    workspace.clear(run, as_root=unneeded)
    assert list(run.iterdir()) == []


@pytest.mark.skipif(os.getuid() != 0, reason="only root runs scripts as somebody else")
def test_folders_of_the_script_are_writable_for_the_user_who_runs_it(tmp_path):
    run, code = tmp_path / "code" / "runs" / "one", tmp_path / "code"
    run.mkdir(parents=True)
    (code / "src" / "deep").mkdir(parents=True)
    (code / "link").symlink_to("/etc")
    made = workspace.overlay(run, code, (10001, 10001))
    assert made is not None
    below = sorted(path.relative_to(made.upper).as_posix() for path in made.upper.rglob("*"))
    assert below == ["runs", "src", "src/deep"]  # not the link, not the run itself
    assert {(made.upper / path).stat().st_uid for path in below} == {10001}


@pytest.mark.parametrize("name", ["a,b", "a:b", "a\\b", 'a"b'])
def test_paths_that_cannot_be_named_in_mount_options(tmp_path, name):
    code = tmp_path / name
    code.mkdir()
    assert workspace.overlay(tmp_path, code, (0, 0)) is None


def test_sweep_keeps_files_and_the_links_a_script_made_among_its_own(tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("x")
    run = tmp_path / "run"
    (run / "files" / "sub").mkdir(parents=True)
    (run / "report.json").symlink_to(outside / "secret")
    (run / "ranks").symlink_to(outside)
    (run / "oplog").write_text("log")
    os.mkfifo(run / "files" / "fifo")
    (run / "files" / "latest").symlink_to("sub")
    files.sweep(run, with_links="files")
    assert sorted(path.relative_to(run).as_posix() for path in run.rglob("*")) == [
        "files",
        "files/latest",
        "files/sub",
        "oplog",
    ]
    assert (outside / "secret").read_text() == "x"


def test_a_planted_files_folder_is_removed(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "files").symlink_to("/etc")
    files.sweep(tmp_path / "run", with_links="files")
    workspace.clear(tmp_path / "run", as_root=unneeded)
    assert list((tmp_path / "run").iterdir()) == []
    assert Path("/etc").is_dir()


@pytest.mark.parametrize(
    ("code", "overdue", "becomes"),
    [(0, False, 0), (5, False, 5), (130, False, 130), (143, False, 130), (None, False, 130), (137, True, 124)],
)
def test_exit_codes_of_a_container(code, overdue, becomes):
    assert container._exit_code(code, overdue) == becomes


@pytest.mark.parametrize("code", [137, 139, 255])
def test_a_supervisor_that_was_killed(code):
    with pytest.raises(PhantoraError, match=f"killed by signal {code - 128}") as error:
        container._exit_code(code, overdue=False)
    assert error.value.code == 3
