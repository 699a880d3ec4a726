"""The live view's parts without a screen: lines that make no sense, late and slow viewers, keys, progress."""

from __future__ import annotations

import json
import random
import re
import socket
import time
from pathlib import Path

import pytest

from phantora.terminal import progress_line
from phantora_runtime import viewers
from phantora_tui import feed, keys, rows
from phantora_tui.app import LiveView
from phantora_tui.feed import Feed
from phantora_tui.snapshot import Builder, Snapshot, StreamWork
from phantora_tui.stream import EventStream, log_tail, newest
from phantora_tui.throughput import tokens_per_second

ROOT = Path(__file__).resolve().parents[2]
STREAMS = ROOT / "tests" / "golden" / "streams"


def recorded(name: str) -> list[bytes]:
    return (STREAMS / f"{name}.jsonl").read_bytes().splitlines(keepends=True)


def test_what_a_stream_tells():
    snapshot = Builder().feed_all(recorded("done"))
    assert (snapshot.world_size, snapshot.verdict, snapshot.ended, snapshot.bad_lines) == (16, "ok", True, 0)
    assert len(snapshot.steps) == 10
    for step in snapshot.steps:
        assert step.duration_ns == step.compute_ns + step.communication_ns + step.host_ns + step.idle_ns
    assert snapshot.step_ns == sorted(step.duration_ns for step in snapshot.steps[1:])[4]
    assert all(rank.state == "ended" and rank.used_bytes > 1 << 30 for rank in snapshot.ranks)


def test_a_hang_says_who_waits_for_whom():
    (waiting,) = Builder().feed_all(recorded("hang")).waiting
    assert (waiting.op, waiting.ranks_in, waiting.ranks_missing) == ("all_reduce", (0,), (1,))


def test_what_a_stream_tells_of_one_rank():
    details = Builder().feed_all(recorded("done")).rank_details[3]
    kinds = (details.allocations_bytes, details.context_bytes, details.communicator_bytes, details.library_bytes)
    assert all(kinds) and sum(kinds) == details.peak_bytes
    assert details.allocated_peak_bytes <= details.reserved_peak_bytes <= details.allocations_bytes
    default = details.streams[0]
    assert isinstance(default, StreamWork) and (default.device, default.stream) == (3, 0)
    assert 0 < default.compute_ns < details.step_ns
    assert any(one.communication_ns > one.late_ns >= 0 for one in details.streams[1:])


def test_of_lines_that_replace_each_other_the_last_is_kept():
    lines = recorded("running")
    kept = newest(lines)
    kinds = [viewers.line_type(line) for line in lines]
    assert kinds.count("ranks") == 2 and len(kept) == len(lines) - 1
    assert [line for line in lines if line in kept] == kept
    assert lines[len(kinds) - 1 - kinds[::-1].index("ranks")] in kept


@pytest.mark.parametrize(("share", "many"), [(1e6, True), (1e-9, False)])
def test_a_view_that_takes_too_much_of_the_machine_draws_less_often(server, monkeypatch, share, many):
    """With all CPUs to itself each of 60 states is a frame; with none they wait for each other."""
    _, folder = server
    monkeypatch.setattr(feed, "_CPU_SHARE", share)
    monkeypatch.setattr(feed, "_FRAME_S", 0.01)
    frames = []
    reader = Feed(folder, frames.append)
    reader.start()
    states = [f'{{"type": "started", "at_ns": {number}}}\n'.encode() for number in range(1, 61)]
    for number, state in enumerate(states):
        append(folder, [state])
        until = time.monotonic() + 20
        while many and time.monotonic() < until and not (frames and frames[-1].snapshot.at_ns > number):
            time.sleep(0.01)
    until = time.monotonic() + 20
    while time.monotonic() < until and not (frames and frames[-1].snapshot.at_ns == 60):
        time.sleep(0.05)
    reader.stop()
    reader.join()
    assert frames[-1].snapshot.at_ns == 60, "the last state is always shown"
    assert (len(frames) >= 60) == many


def test_any_bytes_in_the_stream_are_survived():
    """Cut, garbled and invented lines are counted; what was known stays."""
    noise = random.Random(5)
    lines = recorded("running")
    builder = Builder()
    builder.feed_all(lines)
    good = builder.snapshot
    values = (None, True, -1, 2**70, "x", [], {}, [[]], 1.5, {"a": "b"})
    for _ in range(3_000):
        line = bytearray(noise.choice(lines))
        for _ in range(noise.randrange(1, 6)):
            line[noise.randrange(len(line))] = noise.randrange(256)
        builder.feed(bytes(line[: noise.randrange(len(line) + 1)]))
        made = json.loads(noise.choice(lines))
        made[noise.choice(list(made))] = noise.choice(values)
        builder.feed(json.dumps(made))
        builder.feed(json.dumps(noise.choice(values)))
    assert builder.snapshot.bad_lines > 1_000
    again = Builder()
    assert again.feed_all(lines) == good


@pytest.fixture
def server(tmp_path):
    folder = tmp_path / ("deep" * 20) / ("deeper" * 10)  # an address has room for 108 bytes
    folder.mkdir(parents=True)
    (folder / "events.jsonl").write_bytes(b"")
    serves = viewers.EventServer(folder)
    serves.start()
    yield serves, folder
    serves.finish()
    assert not (folder / viewers.SOCKET_NAME).exists()


def append(folder: Path, lines: list[bytes]) -> None:
    with open(folder / "events.jsonl", "ab") as events:
        events.writelines(lines)


def read_until(stream: EventStream, wanted: int) -> list[bytes]:
    found: list[bytes] = []
    until = time.monotonic() + 20
    while len(found) < wanted and time.monotonic() < until:
        found += stream.lines(0.1)
    return found


def attach(folder: Path) -> EventStream:
    """A viewer that the server has taken in."""
    stream = EventStream(folder)
    assert stream.live
    append(folder, [b'{"type": "note", "at_ns": 0, "text": "attached"}\n'])
    assert read_until(stream, 1)
    return stream


def test_viewers_see_everything_and_a_late_one_what_it_needs(server):
    _, folder = server
    lines = recorded("running")
    first = attach(folder)
    append(folder, lines)
    assert [line + b"\n" for line in read_until(first, len(lines))] == lines
    late = EventStream(folder)
    kinds = [json.loads(line)["type"] for line in read_until(late, len(lines))]
    assert kinds[0] == "run" and kinds.count("step") == sum(b'"step"' in line[:20] for line in lines)
    assert kinds.count("ranks") == 1, "only the last of these matters"
    append(folder, [b'{"type": "note", "at_ns": 5, "text": "both see this"}\n'])
    for stream in (first, late):
        assert any(b"both see this" in line for line in read_until(stream, 1))
        stream.close()


def test_a_viewer_that_does_not_read_loses_frames_and_holds_nobody_up(server):
    _, folder = server
    stuck, reads = attach(folder), attach(folder)
    ranks = next(line for line in recorded("running") if b'"ranks"' in line[:20])
    count = 2 * viewers._MAX_QUEUE_BYTES // len(ranks)
    got = 0
    for part in range(1, 21):
        append(folder, [ranks] * (count // 20))
        until = time.monotonic() + 20
        while got < part * (count // 20) and time.monotonic() < until:
            got += sum(b'"ranks"' in line[:20] for line in reads.lines(0.1))
    append(folder, [b'{"type": "note", "at_ns": 5, "text": "last"}\n'])
    assert got == count // 20 * 20
    assert any(b'"last"' in line for line in read_until(reads, 1))
    kept = 0
    while lines := stuck.lines(1.0):
        kept += sum(b'"ranks"' in line[:20] for line in lines)
    assert 0 < kept < got, "frames were left out for it"
    stuck.close()
    reads.close()


def test_what_viewers_send_is_thrown_away(server):
    _, folder = server
    rude = socket.socket(socket.AF_UNIX)
    with viewers.socket_path(folder) as path:
        rude.connect(path)
    rude.sendall(bytes(range(256)) * 400)
    other = EventStream(folder)
    append(folder, recorded("done"))
    assert len(read_until(other, 10)) >= 10
    rude.close()
    other.close()


def test_without_a_socket_the_file_is_read(tmp_path):
    (tmp_path / "events.jsonl").write_bytes(b"".join(recorded("done")) + b'{"type": "st')
    stream = EventStream(tmp_path)
    assert not stream.live
    assert len(read_until(stream, len(recorded("done")))) == len(recorded("done"))
    stream.close()


def test_a_log_is_shown_without_its_control_characters(tmp_path):
    (tmp_path / "ranks").mkdir()
    (tmp_path / "ranks" / "00003.log").write_bytes(b"one\n\x1b[31mtwo\x1b[0m\x07\nthr\xffee\rfour\n")
    assert log_tail(tmp_path, 3, 3) == ["two", "thr\ufffdee", "four"]
    assert log_tail(tmp_path, 4, 3) == []


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("step 3: loss 0.0, 0.02 s, 101,804 tokens/s/GPU, 2.3 GiB", 101_804),
        ("step: 2  loss: 1.0  tps: 6,635  tflops: 312", 6_635),
        ("tokens_per_second=1234.5", 1_234.5),
        ("throughput 88 tok/s", 88),
        ("https: 17 tips", None),
    ],
)
def test_tokens_per_second_as_scripts_print_them(line, found):
    assert tokens_per_second([line]) == found


def test_progress_in_one_line():
    snapshot = Builder().feed_all(recorded("running"))
    line = progress_line(snapshot)
    assert re.match(
        r"step \d+ of 30, 20\.\d+ ms a step, 3\.15 GiB of 79\.10 GiB, virtual .* in .* s, \d+ of 16 ranks wait", line
    )
    assert progress_line(Snapshot())


def test_keys_are_one_table():
    """Bindings, help and documentation say the same."""
    documented = (ROOT / "docs" / "tui.md").read_text()
    for key in keys.KEYS:
        assert f"| `{key.shown}` | {key.text} |" in documented, key
    assert len({key.key for key in keys.KEYS}) == len(keys.KEYS)
    assert set(keys.TABLES) == set(rows.TABLES)
    for key in keys.KEYS:
        assert hasattr(LiveView, f"action_{key.action.partition('(')[0]}"), key
