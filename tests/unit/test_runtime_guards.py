"""The runtime's guards: control groups, planted files, the disk, and processes that do not want to end."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from phantora import run_directory
from phantora.errors import UsageError
from phantora.options import RunOptions
from phantora_runtime import cgroup, disk, files
from phantora_runtime.settings import EnvironmentFault
from phantora_runtime.viewers import EventServer

VERSION_1 = {
    "cpuacct/cpuacct.usage": "2500000000\n",
    "memory/memory.max_usage_in_bytes": "1048576\n",
    "memory/memory.limit_in_bytes": "2147483648\n",
    "memory/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n",
}
VERSION_2 = {
    "cgroup.controllers": "cpu memory\n",
    "cpu.stat": "usage_usec 2500000\nuser_usec 1\n",
    "memory.peak": "1048576\n",
    "memory.max": "2147483648\n",
    "memory.events": "low 0\noom 3\noom_kill 2\n",
}


def tree(root, content):
    for name, text in content.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


@pytest.mark.parametrize(("version", "content"), [(1, VERSION_1), (2, VERSION_2)])
def test_both_versions_of_control_groups_say_the_same(tmp_path, version, content):
    found = cgroup.read(tree(tmp_path, content))
    assert found == cgroup.Usage(version, 2.5, 1 << 20, 2 << 30, 2)


@pytest.mark.parametrize(
    ("content", "name", "text"),
    [(VERSION_1, "memory/memory.limit_in_bytes", "9223372036854771712\n"), (VERSION_2, "memory.max", "max\n")],
)
def test_no_limit(tmp_path, content, name, text):
    found = cgroup.read(tree(tmp_path, content | {name: text}))
    assert found is not None
    assert found.limit_bytes is None


def test_files_that_are_missing_or_strange(tmp_path):
    assert cgroup.read(tmp_path) is None
    found = cgroup.read(
        tree(tmp_path, {"cgroup.controllers": "cpu\n", "cpu.stat": "usage_usec 7\n", "memory.max": "?"})
    )
    assert found == cgroup.Usage(2, 7e-6, None, None, 0)


@pytest.mark.parametrize("plant", ["link", "fifo", "folder", "file", "nothing"])
def test_our_files_are_written_whatever_stands_there(tmp_path, plant):
    outside = tmp_path / "outside"
    outside.write_text("untouched")
    path = tmp_path / "report.json"
    if plant == "link":
        path.symlink_to(outside)
    elif plant == "fifo":
        os.mkfifo(path)
    elif plant == "folder":
        (path / "deep").mkdir(parents=True)
        (path / "deep" / "link").symlink_to(outside)
    elif plant == "file":
        path.write_text("old")
    files.write_own(path, "new")
    with files.open_own(path, append=True) as file:
        file.write("er")
    assert (files.read_plain(path), outside.read_text()) == ("newer", "untouched")
    assert path.is_file()
    assert not path.is_symlink()


@pytest.mark.parametrize("plant", ["link", "fifo", "folder"])
def test_what_is_no_plain_file_is_not_read(tmp_path, plant):
    path = tmp_path / "core_report.json"
    if plant == "link":
        path.symlink_to("/etc/passwd")
    elif plant == "fifo":
        os.mkfifo(path)  # reading it would wait for ever
    else:
        path.mkdir()
    with pytest.raises(OSError):
        files.read_plain(path)


def test_disk_watch_tells_the_run_from_others(tmp_path, monkeypatch):
    free = [1000 << 20]
    monkeypatch.setattr(disk, "_free", lambda _folder: free[0])
    monkeypatch.setattr(disk, "_EVERY_S", 0.0)
    watch = disk.DiskWatch(tmp_path)
    assert watch.too_much() == ""
    free[0] = 400 << 20  # somebody else
    assert watch.too_much() == ""
    sizes = {tmp_path.name: 600 << 20}
    monkeypatch.setattr(files, "size", lambda folder: sizes.get(folder.name, 0))
    assert "The run wrote 600.0 MiB of files" in watch.too_much()
    sizes["oplog"] = 400 << 20  # ours: not the script's fault
    with pytest.raises(EnvironmentFault, match=r"400\.0 MiB"):
        watch.too_much()
    free[0] = 600 << 20
    assert watch.too_much() == ""


def test_size_counts_files_and_not_what_links_name(tmp_path):
    (tmp_path / "a").write_bytes(b"x" * 100_000)
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "b").write_bytes(b"x" * 100_000)
    (tmp_path / "link").symlink_to("/usr")
    assert 200_000 <= files.size(tmp_path) < 300_000


# A tree in which every process starts new ones for as long as it lives, at most 60 at a time.
BREEDER = """
import os, time
os.setsid()
print("ready", flush=True)
end = time.monotonic() + 120
while time.monotonic() < end:
    if len(os.listdir("/proc")) < {most} and os.fork() == 0:
        os.setsid()
    time.sleep(0.001)
"""


def test_processes_that_breed_are_ended():
    breeder = BREEDER.format(most=len(os.listdir("/proc")) + 60)
    code = (
        "import subprocess, sys, time\nfrom phantora_runtime import processes\nprocesses.become_subreaper()\n"
        f"child = subprocess.Popen([sys.executable, '-c', {breeder!r}], stdout=subprocess.PIPE)\n"
        "child.stdout.readline()\ntime.sleep(0.3)\n"
        "seen = processes.kill_descendants(grace_s=0.1)\n"
        "assert processes.descendants() == []\nprint(len(seen))"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=100)
    assert int(answer.stdout) > 5


def test_kept_processes_live_on():
    code = (
        "import subprocess, time\nfrom phantora_runtime import processes\nprocesses.become_subreaper()\n"
        "kept, other = (subprocess.Popen(['sleep', '100']) for _ in range(2))\n"
        "processes.kill_descendants([kept.pid], grace_s=0.0)\n"
        "assert kept.poll() is None and processes.descendants() == [kept.pid]\n"
        "kept.kill()"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=100)


def test_ranks_are_taken_first_when_memory_runs_out():
    code = "from phantora_runtime import processes\nprocesses.be_killed_first()\nprint(open('/proc/self/oom_score_adj').read())"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(answer.stdout) == 900


def test_a_run_that_goes_on_is_never_cleared(tmp_path):
    (tmp_path / "run.json").write_text("{}")
    (tmp_path / "events.jsonl").write_text("")
    options = RunOptions(script="train.py", out=tmp_path, force=True)
    server = EventServer(tmp_path)
    server.start()
    try:
        with pytest.raises(UsageError, match="one that goes on"):
            run_directory.check(options)
    finally:
        server.finish()
    run_directory.check(options)
