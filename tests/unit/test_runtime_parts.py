"""The runtime's parts, each alone: no torch, no shim, no processes."""

import ast
import errno
import hashlib
import os
import re
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from phantora_runtime import (
    core_process,
    memory,
    messages,
    oplog_file,
    output,
    processes,
    script_imports,
    settings,
    stacks,
    zygote,
)
from phantora_runtime.messages import Body, Message, Reply
from phantora_runtime.steps import StepCounter

ROOT = Path(__file__).parents[2]


# ---- the contract with the shim -----------------------------------------------------------------------------------


def header_enum(name):
    text = (ROOT / "shim/include/phantora/wire.hpp").read_text()
    body = re.search(rf"enum class {name} : [^{{]*{{(.*?)}};", text, re.DOTALL)[1]
    body = re.sub(r"//.*", "", body)
    values, number = {}, 0
    for item in (part.strip() for part in body.split(",")):
        if not item:
            continue
        key, _, given = item.partition("=")
        number = int(given, 0) if given else number
        values[key.strip().removeprefix("k")] = number
        number += 1
    return values


def camel(name):
    return "".join(part.capitalize() for part in name.split("_"))


def test_message_numbers_are_those_of_the_header():
    header = header_enum("MessageType")
    assert {camel(item.name): int(item) for item in Message} == {
        camel(item.name): header[camel(item.name)] for item in Message
    }


def test_marks_and_statuses_are_those_of_the_header():
    from phantora_runtime.bridge import Mark, Status

    for ours, name in ((Mark, "MarkKind"), (Status, "Status")):
        header = header_enum(name)
        assert {camel(item.name): int(item) for item in ours} == {
            camel(item.name): header[camel(item.name)] for item in ours
        }


def test_bodies_and_replies():
    data = Body().blob("key").u8(7).u32(1).u64(2**63).i64(-5).blobs([b"a", b""]).bytes()
    assert data[:7] == b"\x03\0\0\0key"
    reply = Reply(data)
    assert (reply.blob(), reply.u8(), reply.u32(), reply.u64(), reply.i64(), reply.blobs()) == (
        b"key", 7, 1, 2**63, -5, [b"a", b""],
    )  # fmt: skip


def test_a_reply_that_is_too_short_is_refused():
    with pytest.raises(messages.CoreRefused):
        Reply(b"\x05\0\0\0ab").blob()


# ---- steps --------------------------------------------------------------------------------------------------------


def play(counter, text):
    """Plays F(orward), B(ackward), O(ptimizer step); returns how many were played before the stop."""
    for count, letter in enumerate(text):
        stop = {"F": counter.forward, "B": counter.backward}.get(letter, lambda: False)()
        if letter == "O":
            counter.optimizer_step()
        if stop:
            return count
    return len(text)


@pytest.mark.parametrize(
    ("text", "steps"),
    [("FBOFBO", 2), ("FBFBFBO", 1), ("FBOO", 1), ("FBOOFBOO", 2), ("FBOFBOOFB", 2), ("FBOBO", 2), ("O", 1), ("FB", 0)],
)
def test_a_step_is_a_group_of_optimizer_steps_with_no_backward_between(text, steps):
    counter = StepCounter(None)
    play(counter, text)
    assert counter.finished == steps


@pytest.mark.parametrize(("text", "played"), [("FBOFBOFBO", 6), ("FBOOFBOOFB", 8), ("FBOFBOBO", 6), ("FBOFBO", 6)])
def test_the_stop_is_where_step_k_plus_1_begins(text, played):
    assert play(StepCounter(2), text) == played


def test_positions():
    counter = StepCounter(None)
    assert counter.position() == (0, "setup")
    play(counter, "F")
    assert counter.position() == (0, "forward")
    play(counter, "B")
    assert counter.position() == (0, "optimizer")
    counter.in_backward = True
    assert counter.position() == (0, "backward")
    counter.in_backward = False
    play(counter, "O")
    assert counter.position() == (1, "between steps")


# ---- imports ------------------------------------------------------------------------------------------------------


@pytest.fixture
def libraries(tmp_path, monkeypatch):
    """Two libraries in a site-packages of their own."""
    folder = tmp_path / "lib" / "site-packages"
    for name in ("liba", "libb"):
        (folder / name).mkdir(parents=True)
        (folder / name / "__init__.py").write_text("raise SystemExit('imported')")
    (folder / "liba" / "part.py").write_text("")
    monkeypatch.syspath_prepend(str(folder))
    return folder


def test_libraries_are_found_through_the_users_modules_and_nothing_is_imported(tmp_path, libraries):
    (tmp_path / "train.py").write_text(
        "import os, liba.part\nfrom mine import x\nimport nowhere\n"
        "def later():\n    import libc\n"
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import libd\n"
    )
    (tmp_path / "mine.py").write_text("try:\n    import libb\nexcept ImportError:\n    libb = None\n")
    assert script_imports.find(str(tmp_path / "train.py"), None, str(tmp_path)) == ["liba.part", "libb"]


def test_modules_of_the_users_package_are_parsed(tmp_path, libraries, monkeypatch):
    (tmp_path / "pack").mkdir()
    (tmp_path / "pack" / "__init__.py").write_text("import libb\n")
    (tmp_path / "pack" / "go.py").write_text("import liba\n")
    monkeypatch.chdir(tmp_path)
    assert sorted(script_imports.find(None, "pack.go", str(tmp_path))) == ["liba", "libb"]


def test_a_script_that_does_not_parse_is_left_to_the_rank(tmp_path):
    (tmp_path / "train.py").write_text("import (")
    assert script_imports.find(str(tmp_path / "train.py"), None, str(tmp_path)) == []


def test_module_level_only():
    tree = ast.parse("class A:\n    import x\nwith open('f'):\n    import y\nif 1:\n    import z\n")
    assert script_imports._module_level_imports(tree) == ["y", "z"]


# ---- the rest -----------------------------------------------------------------------------------------------------


def test_start_order():
    assert zygote.start_order(4, "") == [0, 1, 2, 3]
    shuffled = zygote.start_order(64, "shuffle:1")
    assert sorted(shuffled) == list(range(64)) and shuffled != list(range(64))
    assert zygote.start_order(64, "shuffle:1") == shuffled


def test_core_conf_has_absolute_tables_and_integers(tmp_path, monkeypatch):
    monkeypatch.setenv("PHANTORA_PROFILES", str(tmp_path))
    launch = settings.Launch("python", "/", 1, 1, 1, None, 1, 1)
    run = settings.Run(
        tmp_path, launch, {"world_size": 1, "table.gemm": "tables/g.txt", "gpu.x": 4.5e11, "gpu.y": 0.85}, [], {}
    )
    assert core_process.config_text(run, 9).splitlines() == [
        "world_size = 1",
        f"table.gemm = {tmp_path}/tables/g.txt",
        "gpu.x = 450000000000",
        "gpu.y = 0.85",
        f"out_dir = {tmp_path}",
        "oplog_fd = 9",
        f"core.stack_signal = {stacks.STACK_SIGNAL}",
        "core.stack_wait_ms = 300",
    ]


def test_the_op_log_file_holds_what_the_digest_is_of(tmp_path):
    import gzip
    import hashlib
    import os

    writer = oplog_file.OplogWriter(tmp_path / "oplog")
    writer.start()
    data = os.urandom(3_000_000)

    def send():
        view = memoryview(data)
        while view:
            view = view[os.write(writer.write_fd, view[:65536]) :]
        writer.close_write_end()

    thread = threading.Thread(target=send)
    thread.start()
    thread.join()
    assert writer.finish() == hashlib.sha256(data).hexdigest()
    assert gzip.decompress((tmp_path / "oplog").read_bytes()) == data


def test_memory_of_this_process_is_plausible():
    import os

    assert 2**20 < memory.proportional_bytes(os.getpid()) < 2**33
    assert memory.proportional_bytes(2**30) == 0


def test_stacks_keep_the_scripts_own_frames():
    text = (
        'Thread 0x1 (most recent call first):\n  File "/lib/threading.py", line 3 in run\n\n'
        'Current thread 0x2 (most recent call first):\n  File "/home/me/train.py", line 7 in step\n'
        '  File "/x/phantora_runtime/rank.py", line 9 in run\n  File "<string>", line 1 in <module>\n'
    )
    assert stacks.main_thread(text) == ["/home/me/train.py:7 in step"]


# ---- when the machine fails -----------------------------------------------------------------------------------------


def test_a_full_disk_blocks_nobody():
    """Both readers go on: who writes must never wait, and the digest and the terminal's copy stay right."""
    read, write = os.pipe()
    ranks = output.RankOutput(Path("/dev/full"), write, write)
    fd = os.dup(ranks.write_fds[0])
    ranks.start()
    os.write(fd, b"to the terminal")
    os.close(fd)
    ranks.finish()
    assert os.read(read, 100) == b"to the terminal"
    assert ranks.fault is not None and ranks.fault.errno == errno.ENOSPC

    log = oplog_file.OplogWriter(Path("/dev/full"))
    log.start()
    content = os.urandom(3 << 20)
    with os.fdopen(os.dup(log.write_fd), "wb") as core:
        log.close_write_end()
        core.write(content)
    assert log.finish() == hashlib.sha256(content).hexdigest()
    assert log.fault is not None and log.fault.errno == errno.ENOSPC


def test_reaping_leaves_the_status_of_those_kept():
    kept, other = (subprocess.Popen([sys.executable, "-c", f"exit({status})"]) for status in (7, 8))
    deadline = time.monotonic() + 30
    while processes.descendants() and time.monotonic() < deadline:
        time.sleep(0.05)
    processes.reap([kept.pid])
    assert kept.wait() == 7
    with pytest.raises(ChildProcessError):
        os.waitpid(other.pid, 0)
    other.wait()
