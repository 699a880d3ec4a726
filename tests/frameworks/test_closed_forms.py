"""Real scripts against closed forms, exact to the nanosecond: meetings of two ranks, workers, the GPU, hangs, memory.

One run of closed_forms_script.py serves most tests: a rank says when each part ended, and the op log says what the GPU
did. `prices` are the host costs that the core was given; an `op` is what dispatching a collective of torch costs.
"""

from __future__ import annotations

import json
import re
import struct
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import oplog
import pytest
from oplog import GEMM, RECV, SEND, Op

pytestmark = [pytest.mark.torch, pytest.mark.timeout(300)]
SCRIPTS = Path("tests/frameworks")
MS = 1_000_000
SECOND = 1000 * MS
COPY_BYTES = 64 << 20
GLOO_LATENCY_NS, GLOO_BYTES_PER_S = 50_000, 3_000_000_000  # as in phantora_runtime/gloo.py


@dataclass(frozen=True)
class Finished:
    """A run that has ended, however it ended."""

    command: str
    code: int
    out: Path
    stderr: str

    @property
    def report(self) -> dict[str, Any]:
        return json.loads((self.out / "report.json").read_text())

    def log(self, rank: int) -> str:
        return (self.out / "ranks" / f"{rank:05}.log").read_text()

    def text(self) -> str:
        return f"{self.command}\nexit {self.code}\n{self.stderr[-4000:]}"


@dataclass(frozen=True)
class Forms:
    """What the ranks of closed_forms_script.py said and did."""

    run: Finished
    parts: list[dict[str, dict[str, Any]]]  # of each rank
    ops: list[Op]
    prices: dict[str, int]  # host costs by name
    epoch: int

    def ns(self, rank: int, part: str) -> int:
        return self.parts[rank][part]["ns"]

    def select(self, rank: int, **wanted: int) -> list[Op]:
        return [op for op in self.ops if op.rank == rank and all(getattr(op, k) == v for k, v in wanted.items())]

    def copies(self, rank: int) -> list[Op]:
        return [op for op in self.ops if op.rank == rank and op.is_copy_of(COPY_BYTES)]


def simulate(
    phantora_command: list[str], repository: Path, out: Path, gpus: int, script: str, *arguments: str
) -> Finished:
    command = [*phantora_command, "run", str(SCRIPTS / script), "--gpus", str(gpus), "--clock", "modelled"]
    command += ["--steps", "all", "--no-tui", "--timeout", "200s", "--out", str(out), "--", *arguments]
    answer = subprocess.run(command, cwd=repository, capture_output=True, text=True, timeout=280)
    return Finished(f"cd {repository} && {' '.join(command)}", answer.returncode, out, answer.stderr)


@pytest.fixture(scope="module")
def forms(phantora_command, repository, tmp_path_factory) -> Forms:
    folder = tmp_path_factory.mktemp("meeting")
    run = simulate(phantora_command, repository, folder / "run", 2, "closed_forms_script.py", str(folder))
    assert run.code == 0, run.text()
    parts = []
    for rank in (0, 1):
        lines = [line for line in run.log(rank).splitlines() if line.startswith("FORM ")]
        said = [json.loads(line.removeprefix("FORM ")) for line in lines]
        parts.append({each["part"]: each for each in said})
    pairs = [line.split(" = ") for line in (run.out / "core.conf").read_text().splitlines() if " = " in line]
    settings = dict(pairs)
    prices = {name[5:]: int(value) for name, value in settings.items() if name.startswith("host.") and value.isdigit()}
    return Forms(run, parts, oplog.read(run.out).ops, prices, int(settings["epoch_ns"]))


def test_nothing_was_late(forms):
    assert forms.run.report["late_ops"] == 0, forms.run.text()
    assert forms.run.report["verdict"] == "ok", forms.run.text()


def test_ranks_meet_in_a_store(forms):
    trip = forms.prices["store"]
    assert forms.ns(1, "store set after a sleep") == 500 * MS + trip
    assert forms.ns(0, "store get waits") == 500 * MS + trip  # goes on when it was set
    assert forms.ns(0, "store get of what is there") == 250 * MS + trip
    assert forms.ns(0, "store wait for two keys") == 250 * MS + 2 * trip


def test_time_outs_of_a_store_are_exact(forms):
    trip = forms.prices["store"]
    assert forms.ns(0, "store get times out") == 3 * SECOND + trip
    assert forms.ns(0, "store wait times out") == 1234 * MS + trip


def test_a_store_is_polled_without_sleeping(forms):
    trip = forms.prices["store"]
    looks = forms.parts[0]["store polled"]["looks"]
    assert forms.ns(0, "store polled") == looks * trip
    # At equal times the lower rank is first: it just misses it.
    assert looks == (10 * MS + trip) // trip + 1


def test_ranks_meet_through_gloo(forms):
    op = forms.prices["op"]
    whole = 300 * MS + op + GLOO_LATENCY_NS + 1024 * 4 * 10**9 // GLOO_BYTES_PER_S
    assert [forms.ns(rank, "gloo all_reduce") for rank in (0, 1)] == [whole, whole]
    assert forms.ns(1, "gloo send") == 250 * MS + op
    assert forms.ns(0, "gloo recv waits") == 250 * MS + op  # the sender's time
    assert forms.ns(0, "gloo recv of what is there") == 250 * MS + op  # its own
    assert forms.ns(0, "gloo recv from anybody") == 200 * MS + op


def test_the_time_out_of_a_gloo_group_is_exact(forms):
    assert forms.ns(0, "gloo recv times out") == 2 * SECOND + forms.prices["op"]


@pytest.mark.parametrize("lock", ["flock", "lockf"])
def test_ranks_meet_at_a_file_lock(forms, lock):
    call = forms.prices["filelock"]
    assert forms.ns(0, f"{lock} given back") == 400 * MS + 2 * call
    assert forms.ns(1, f"{lock} granted") == 400 * MS + 2 * call  # at the release, not at its own 100 ms
    assert forms.parts[1][f"{lock} granted"]["read"].endswith(lock)


def test_a_file_is_polled_with_sleeps(forms):
    # It appears at 123 ms: the 13th sleep of 10 ms ends after that.
    assert forms.parts[0]["file polled"] == {"part": "file polled", "ns": 130 * MS, "looks": 14}


def test_exclusive_creation_goes_by_virtual_time(forms):
    assert [forms.parts[rank]["exclusive creation"]["made"] for rank in (0, 1)] == [False, True]


@pytest.mark.parametrize("rank", [0, 1])
def test_a_data_loader_that_sleeps(forms, rank):
    alone, both = forms.parts[rank]["loader alone"], forms.parts[rank]["loader and work"]
    # Before it starts its workers the loader draws a seed: a few operators.
    start = alone["first"] - 40 * MS
    assert start % forms.prices["op"] == 0 and start <= 8 * forms.prices["op"]
    # Six batches of four items of 10 ms from two workers.
    assert alone["ns"] == start + 3 * 40 * MS
    # With 30 ms of work a batch the loader is faster: only the first batch is waited for.
    assert both["first"] == start + 40 * MS
    assert both["ns"] == start + 40 * MS + 6 * 30 * MS


@pytest.mark.parametrize("rank", [0, 1])
def test_event_times_are_the_op_logs(forms, rank):
    events = forms.parts[rank]["events"]
    copy = forms.copies(rank)[0]
    before, after = forms.select(rank, kind=GEMM, stream=copy.stream)[:2]
    assert (before.end, copy.end) == (copy.start, after.start)  # back to back: between the events is only the op
    assert events["copy_ms"] == as_float(copy.duration / 1e6)
    assert events["gemm_ms"] == as_float(after.duration / 1e6)
    assert events["synchronized"] == forms.epoch + after.end


@pytest.mark.parametrize("rank", [0, 1])
def test_copy_and_compute_overlap(forms, rank):
    overlap = forms.parts[rank]["overlap"]
    copy = forms.copies(rank)[1]
    (gemm,) = [op for op in forms.select(rank, kind=GEMM) if copy.start < op.start < copy.end]
    assert gemm.stream != copy.stream
    latency = forms.prices["launch_latency"]
    assert (copy.start, gemm.start) == (copy.issue + latency, gemm.issue + latency)  # neither waits for the other
    assert gemm.end < copy.end
    assert overlap["issued"] < overlap["synchronized"] == forms.epoch + copy.end


@pytest.mark.parametrize("rank", [0, 1])
def test_a_spin_on_an_event_ends_with_the_first_query_after_it(forms, rank):
    spin = forms.parts[rank]["spin"]
    query, done = forms.prices["query"], forms.epoch + forms.copies(rank)[2].end
    assert spin["queries"] == -(-(done - spin["start"]) // query)
    assert spin["end"] == spin["start"] + spin["queries"] * query


def test_a_pipeline_of_two_ranks(forms):
    sends = [op for op in forms.ops if op.rank == 0 and op.is_collective(SEND)]
    receives = [op for op in forms.ops if op.rank == 1 and op.is_collective(RECV)]
    assert len(sends) == len(receives) == 4
    assert [(op.start, op.end) for op in sends] == [(op.start, op.end) for op in receives]
    producers = [op for op in forms.select(0, kind=GEMM) if op.end > sends[0].start - op.duration][-4:]
    consumers = [op for op in forms.select(1, kind=GEMM) if op.start >= receives[0].end]
    compute, transfer = producers[0].duration, sends[0].duration
    first = producers[0].start
    period = compute + transfer
    for index in range(4):
        start = first + index * period
        assert (producers[index].start, producers[index].end) == (start, start + compute)
        assert (sends[index].start, sends[index].end) == (start + compute, start + period)
        assert (consumers[index].start, consumers[index].duration) == (receives[index].end, compute)
    assert receives[0].waited > 0  # the receiver is there first, and moves no data before its peer
    ends = [forms.parts[rank]["pipeline"]["end"] - forms.epoch for rank in (0, 1)]
    assert ends == [first + 4 * period, first + 4 * period + compute]


def test_a_missing_collective_is_a_hang_at_once(phantora_command, repository, tmp_path):
    run = simulate(phantora_command, repository, tmp_path / "run", 2, "hang_script.py")
    assert run.code == 4, run.text()
    report = run.report
    assert report["verdict"] == "hang", run.text()
    assert "rank 0 in all_reduce" in report["message"] and "rank 1 missing" in report["message"], report["message"]
    (group,) = report["hang"]["communicators"]
    assert (group["op"], group["ranks_in"], group["ranks_missing"]) == ("all_reduce", [0], [1]), run.text()
    # Not when the group's time-out of 5 s has passed.
    since = max(int(line.split()[-1]) for rank in (0, 1) for line in run.log(rank).splitlines() if "waits from" in line)
    settings = (run.out / "core.conf").read_text().splitlines()
    (epoch,) = [int(line.split(" = ")[1]) for line in settings if line.startswith("epoch_ns")]
    assert 0 <= epoch + report["hang"]["at_ns"] - since < 100 * MS, run.text()
    states = {rank["rank"]: rank for rank in report["hang"]["ranks"]}
    assert "forgets" in json.dumps(states[0]["python_stack"]), run.text()
    assert "waits for device" in states[0]["state"] or "waits for stream" in states[0]["state"], states[0]
    assert "through" not in run.log(0) and "through" in run.log(1)


def test_a_sleep_longer_than_the_groups_time_out_is_no_alarm(phantora_command, repository, tmp_path):
    run = simulate(phantora_command, repository, tmp_path / "run", 2, "patient_script.py")
    assert run.code == 0, run.text()
    assert run.report["verdict"] == "ok", run.text()
    assert all("slept" in run.log(rank) for rank in (0, 1))


def test_out_of_memory_is_a_verdict(phantora_command, repository, tmp_path):
    run = simulate(phantora_command, repository, tmp_path / "run", 1, "oom_script.py")
    assert run.code == 4, run.text()
    report = run.report
    assert report["verdict"] == "oom", run.text()
    assert report["memory"]["caught_oom"] == 1, run.text()  # the first one, which the script survived
    oom = report["oom"]
    assert (oom["rank"], oom["requested_bytes"]) == (0, 1 << 30), run.text()
    held = int(re.findall(r"holds (\d+)", run.log(0))[-1])  # torch's warnings may fall into the line
    assert held << 30 <= oom["allocated_bytes"] < (held + 1) << 30, run.text()
    free = oom["capacity_bytes"] - report["memory"]["peak_device_bytes"]
    assert 0 <= free < oom["requested_bytes"], run.text()
    assert oom["capacity_bytes"] == report["memory"]["capacity_bytes"]
    assert "caught" in run.log(0) and "OutOfMemoryError" in run.log(0)
    assert oom["advice"] in run.stderr or report["message"] in run.stderr, run.text()


def as_float(value: float) -> float:
    """CUDA's event times are 32-bit floats."""
    return struct.unpack("f", struct.pack("f", value))[0]
