"""Malformed, torn and random input ends the rank that sent it, and so the run; the core survives and writes its report."""

from __future__ import annotations

import os
import random
import socket
import struct
import subprocess
import sys
import time

import pytest
from core_client import (
    COLLECTIVE,
    COMM_INIT,
    HELLO,
    KERNEL,
    NAME,
    STORE_SET,
    WAIT,
    Ending,
    Rank,
    connect,
    find_core,
    layout,
    name_hash,
    read_reply,
    record_check,
    running,
    text,
    together,
)

pytestmark = pytest.mark.skipif(find_core() is None, reason="phantora-core is not built: make native")


def kernel(rank, **change):
    """A good kernel record for the next slot, with some fields changed before the check is made."""
    body = struct.pack("<Q3I3IIIQQQQ", name_hash("k"), 1, 1, 1, 1, 1, 1, 0, 0, 10, 0, 0, 0)
    fields = {
        "index": rank.head,
        "issue": rank.h,
        "kind": KERNEL,
        "device": 0,
        "stream": 1,
        "sequence": 1,
        "body": body,
    }
    fields.update(change)
    head = [fields[key] for key in ("index", "issue", "kind", "device", "stream", "sequence")]
    raw = bytearray(struct.pack("<QQIBBHQ", head[0], head[1], 0, *head[2:]) + fields["body"].ljust(96, b"\0"))
    struct.pack_into("<I", raw, 16, record_check(bytes(raw)))
    return bytes(raw)


def torn(rank):
    raw = bytearray(kernel(rank))
    raw[40:48] = b"\xff" * 8
    return bytes(raw)


CASES = {
    "a wrong running number": (lambda rank: kernel(rank, index=rank.head + 1), "running number"),
    "a torn record": (torn, "checksum"),
    "an unknown type": (lambda rank: kernel(rank, kind=77), "unknown record type"),
    "a device that is not there": (lambda rank: kernel(rank, device=8), "device"),
    "a time beyond all bounds": (lambda rank: kernel(rank, issue=2**63), "time"),
    "a stream op without a number": (lambda rank: kernel(rank, sequence=0), "stream sequence"),
    "an empty grid": (lambda rank: kernel(rank, body=struct.pack("<Q", 1)), "grid"),
    "a wait slot that is not there": (
        lambda rank: kernel(rank, kind=WAIT, sequence=0, body=struct.pack("<IBB", 99, 1, 0)), "wait slot"),
    "a wait slot where nobody waits": (
        lambda rank: kernel(rank, kind=WAIT, sequence=0, body=struct.pack("<IBB", 5, 1, 0)), "nobody waits"),
    "an unknown communicator": (
        lambda rank: kernel(rank, kind=COLLECTIVE, body=struct.pack("<IiBBBBIQQQ", 9, -1, 1, 8, 0, 0, 0, 1, 4, 1)),
        "communicator 9"),
    "random bytes": (lambda rank: random.Random(7).randbytes(128), "slot 2"),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_a_malformed_record_ends_the_rank_and_the_run(tmp_path, case):
    make, message = CASES[case]
    with running(tmp_path, 2) as (core, (a, b)):

        def bystander():
            with pytest.raises(Ending):
                b.store_get("never")
            b.exit(1)

        def culprit():
            a.kernel(5, stream=3)
            a.kernel(5, stream=3)
            a.push_raw(make(a))
            core.ring_doorbell()

        together(bystander, culprit)
        report = core.finish()
    assert report["verdict"] == "failed"
    assert report["message"].startswith("rank 0: ") and "slot 2" in report["message"] and message in report["message"]


def test_a_head_past_the_ring_is_malformed(tmp_path):
    with running(tmp_path) as (core, (rank,)):
        core.put_u64(rank.at("head"), 10_000)
        core.ring_doorbell()
        report = core.finish()
    assert report["verdict"] == "failed" and "slots past" in report["message"]


def test_random_rings_never_bring_the_core_down(tmp_path):
    """Whole rings of noise, and of good records with a few random bytes and a check that fits."""
    for seed in range(8):
        noise = random.Random(seed)
        with running(tmp_path / str(seed)) as (core, (rank,)):
            for _ in range(200):
                if core.process.poll() is not None:
                    break
                raw = bytearray(kernel(rank, kind=noise.randrange(1, 17), sequence=rank.head + 1))
                if noise.random() < 0.3:
                    at = noise.randrange(16, 120)
                    raw[at : at + 8] = noise.randbytes(8)
                struct.pack_into("<I", raw, 16, record_check(bytes(raw)))
                at = rank.ring + rank.head % rank.slots * 128
                core.memory[at : at + 128] = bytes(raw)
                rank.head += 1
                core.put_u64(rank.at("head"), rank.head)
            core.ring_doorbell()
            assert core.finish()["verdict"] in ("failed", "ok", "hang", "mismatch")


def frame(kind, body, size=None, driving=0, actor=2**32 - 1, h=0):
    return struct.pack("<IHBBIIQ", len(body) if size is None else size, kind, driving, 0, actor, 1, h) + body


def closed(connection):
    try:
        return connection.recv(1) == b""
    except ConnectionError:
        return True


def test_messages_before_hello_or_with_a_wrong_token_are_dropped(tmp_path):
    with running(tmp_path) as (core, (rank,)):
        for raw in (
            frame(STORE_SET, text("s") + text("k") + text("v")),
            frame(HELLO, struct.pack("<QII", 12345, os.getpid(), 1)),
            frame(HELLO, b"short"),
            frame(99, b""),
            random.Random(3).randbytes(64),
        ):
            connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            connection.settimeout(10)
            connection.connect("\0" + core.rpc_name)
            connection.sendall(raw)
            assert closed(connection)
            connection.close()
        rank.store_set("still", b"here")  # nobody else is harmed
        rank.exit()
        assert core.finish()["verdict"] == "ok"


@pytest.mark.parametrize("raw", [
    frame(STORE_SET, b"\xff\xff\xff\xff", actor=0, driving=1),
    frame(NAME, struct.pack("<Q", 1) + text("not its hash"), actor=0),
    frame(STORE_SET, b"", size=2**31, actor=0),
    frame(COMM_INIT, text("id") + struct.pack("<II", 0, 0) + text("x"), actor=0, driving=1),
    frame(STORE_SET, b"", actor=77, driving=1),
    frame(STORE_SET, b"", actor=0, h=2**63),
], ids=["length beyond the body", "name and hash", "too large", "empty communicator", "no such actor", "time"])  # fmt: skip
def test_a_malformed_message_drops_the_connection(tmp_path, raw):
    with running(tmp_path) as (core, (rank,)):
        time.sleep(0.01)
        connection = connect(core, os.getpid())
        connection.sendall(raw)
        try:
            while True:
                read_reply(connection)
        except ConnectionError:
            pass
        unknown = struct.unpack_from("<I", raw, 8)[0] == 77
        if unknown:
            rank.exit()
        report = core.finish()
    assert report["verdict"] == ("ok" if unknown else "failed")
    assert "malformed message" in (report["notes"][0] if unknown else report["message"])


def test_a_killed_rank_is_noticed(tmp_path):
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        with running(tmp_path, 1, world_size=2) as (core, (a,)):
            Rank(core, 1, pid=child.pid)
            time.sleep(0.05)
            child.kill()
            with pytest.raises(Ending):
                a.store_get("never")
            a.exit(1)
            report = core.finish()
    finally:
        child.kill()
        child.wait()
    assert report["verdict"] == "failed" and "process of rank 1 ended without a word" in report["message"]


def test_names_are_shared_through_the_segment(tmp_path):
    with running(tmp_path) as (core, (rank,)):
        value = rank.name("void at::native::kernel")
        rank.kernel(5, name="void at::native::kernel")
        at = core.u64("header.name_offset") + value % 16384 * 8
        assert core.get_u64(at) == value
        rank.exit()
        assert core.finish()["top_kernels"][0]["name"] == "void at::native::kernel"


def test_an_overwritten_header_does_not_bring_the_core_down(tmp_path):
    with running(tmp_path, 2) as (core, (a, _)):
        first, last = layout()["header.magic"], a.at("head") // 4096 * 4096
        for at in range(first, last, 8):
            core.put_u64(at, 0xA5A5A5A5_00000001 + at)
        core.put_u64(a.at("head"), 10_000)
        core.process.terminate()
        report = core.finish()
    assert report["verdict"] in ("failed", "stopped") and report["world_size"] == 2


def test_the_segment_cannot_be_made_shorter(tmp_path):
    with running(tmp_path) as (core, (rank,)):
        descriptor = os.open(core.segment_path, os.O_RDWR)
        with pytest.raises(PermissionError):
            os.ftruncate(descriptor, 0)
        os.close(descriptor)
        rank.exit(0)
        assert core.finish()["verdict"] == "ok"
