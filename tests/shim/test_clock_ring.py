"""The ring: records in order and intact when it runs full, op scopes that fill in late, and the end of a run."""

from __future__ import annotations

import json
import struct
import subprocess
import time
from pathlib import Path

import pytest
from clock_support import HOST_SOURCES, ROOT, clock_library, run_of, run_on  # noqa: F401

MARK, KERNEL, SLEEP = 12, 1, 11


def test_a_small_ring_loses_nothing(run_of) -> None:  # noqa: F811
    run = run_of(1, slots=64, costs={0: 0})
    run.one(
        """
        for value in range(20_000): shim.phantora_mark(4, ctypes.c_uint64(value), None); shim.phantora_advance_ns(3)
        time.sleep(1)
        """
    )
    records = run.core.actors[0].records
    marks = [record for record in records if record.kind == MARK]
    assert [struct.unpack_from("<Q", record.raw, 40)[0] for record in marks] == list(range(20_000))
    assert [record.issue_ns for record in marks] == [3 * value for value in range(20_000)]
    assert [record.kind for record in records[-2:]] == [SLEEP, 15]


PROGRAM = r"""
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include "client.hpp"
using namespace phantora;
namespace phantora::client { void drain_values() {} }
static void kernel(std::uint16_t stream, std::uint8_t device = 0) {
  wire::Record record = {};
  record.device = device;
  record.type = wire::RecordType::kKernel;
  record.stream = stream;
  record.kernel.name = client::intern("kernel");
  client::submit(wire::CallKind::kLaunch, record);
}
static int peek_inside_an_op() {
  kernel(0, 1);  // default streams of two devices: what they have done, only the core can say
  client::op_begin("watched", 1);
  kernel(1);
  std::atomic<bool> looked = false;
  std::thread helper([&looked] { client::query_stream(1, 0); looked = true; });
  while (!looked) {}  // a join would publish: this thread would wait
  client::op_end(7);
  helper.join();
  return 0;
}
static int drive_inside_an_op() {
  client::op_begin("watched", 1);
  kernel(1);
  std::atomic<bool> issued = false;
  std::thread other([&issued] { kernel(2); issued = true; client::wait_stream(0, 2); });
  while (!issued) {}
  client::op_end(7);
  other.join();
  return 0;
}
int main(int count, char** arguments) {
  client::attach(std::atoi(std::getenv("RANK")));
  if (count > 1) return arguments[1][0] == 'p' ? peek_inside_an_op() : drive_inside_an_op();
  client::op_begin("outer", 100);
  kernel(1);
  client::op_begin("inner", 8); kernel(2); kernel(2); client::op_end(16);
  kernel(1);
  client::op_end(50);
  const bool early = client::query_stream(0, 2);
  client::wait_stream(0, 2);
  const bool late = client::query_stream(0, 2);
  client::op_begin("waits", 1); kernel(1); client::wait_stream(0, 1); client::op_end(7);
  std::printf("{\"early\": %d, \"late\": %d, \"h\": %llu}\n", early, late, (unsigned long long)client::now_ns());
}
"""


@pytest.fixture(scope="session")
def ring_program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The host half of the shim as a program that submits kernels, which no exported function of that half does."""
    folder = tmp_path_factory.mktemp("ring")
    (folder / "main.cpp").write_text(PROGRAM)
    sources = [path for pattern in HOST_SOURCES for path in sorted((ROOT / "shim/src").glob(pattern))]
    command = ["g++", "-std=c++20", "-O0", "-ftls-model=initial-exec", f"-I{ROOT}/shim/include", f"-I{ROOT}/shim/src"]
    subprocess.run([*command, *sources, folder / "main.cpp", "-o", folder / "ring", "-ldl", "-pthread"], check=True)
    return folder / "ring"


def test_op_scopes_fill_in_name_count_and_bytes(run_of, ring_program) -> None:  # noqa: F811
    """Bytes come when an op ends; a wait inside an op publishes its kernels before they are known."""
    run = run_of(1, costs={1: 5, 15: 10}, build_id="development")
    environment = {"PHANTORA_SEGMENT": run.core.segment, "RANK": "0"}
    out = subprocess.run([ring_program], env=environment, check=True, capture_output=True, text=True, timeout=30).stdout
    time.sleep(0.05)
    assert run.core.errors == []
    kernels = [record for record in run.core.actors[0].records if record.kind == KERNEL]
    seen = []
    for record in kernels:
        fields = struct.unpack_from("<Q8IQQQQ", record.raw, 32)
        name, launch, op, read, written = fields[0], fields[8], fields[-3], fields[-2], fields[-1]
        seen.append((run.core.names[op], launch, read, written, record.stream, record.sequence))
        assert run.core.names[name] == "kernel"
    assert seen == [
        ("outer", 0, 100, 50, 1, 1), ("inner", 0, 8, 16, 2, 1), ("inner", 1, 8, 16, 2, 2), ("outer", 1, 100, 50, 1, 2),
        ("waits", 0, 1, 0, 1, 3),
    ]  # fmt: skip
    assert [record.issue_ns for record in kernels[:4]] == [10, 25, 30, 35]
    # Stream 2 ends at 25 + 1000, then 1000 more; a wait goes there, so that its query is true and costs nothing.
    got = json.loads(out)
    assert (got["early"], got["late"]) == (0, 1)
    assert got["h"] == 2_025 + 10 + 1_000  # the last kernel starts when its op begins


def output_bytes(run_of, ring_program, part: str) -> list[int]:  # noqa: F811
    """Runs a part of the program; what the op of each kernel wrote, in the order of the ring."""
    run = run_of(1, build_id="development")
    environment = {"PHANTORA_SEGMENT": run.core.segment, "RANK": "0"}
    subprocess.run([ring_program, part], env=environment, check=True, timeout=30)
    time.sleep(0.05)
    kernels = [record for record in run.core.actors[0].records if record.kind == KERNEL]
    return [struct.unpack_from("<Q8IQQQQ", record.raw, 32)[-1] for record in kernels]


def test_a_helper_that_looks_at_gpu_work_does_not_cut_an_open_op(run_of, ring_program) -> None:  # noqa: F811
    assert output_bytes(run_of, ring_program, "peek") == [0, 7]


def test_another_driving_thread_does_not_cut_an_open_op(run_of, ring_program) -> None:  # noqa: F811
    """Autograd's thread goes to rest while the main thread is on: before or after an op ends is real time's matter."""
    assert output_bytes(run_of, ring_program, "drive") == [7, 0]


def test_the_end_of_the_run_ends_a_rank_that_waits(run_on) -> None:  # noqa: F811
    """Status 97, nothing printed: the run is over, and that is no failure of the rank."""
    run = run_on(2)
    waiting = run.start(0, "time.sleep(100); result(never=1)")
    other = run.start(1, "os.write(1, b'{}\\n'); exec('while True: pass')")
    assert other.stdout.readline() == "{}\n"
    time.sleep(0.5)
    run.core.end()
    out, errors = waiting.communicate(timeout=20)
    assert (waiting.returncode, out, errors) == (97, "", "")
