"""The CUDA half against the simulator core: times of streams and events, memory in the report."""

from __future__ import annotations

import json
import subprocess

from cuda_support import PRELUDE
from shim_support import need

SCRIPT = (
    PRELUDE
    + """
import json, torch
torch.cuda.init()
block = malloc(1 << 30)
def fill(where): ok(cuda.cudaMemsetAsync(c_void_p(block), 0, c_size_t(1 << 30), c_void_p(where)))
def pair(first, second):
    start, between, end, one, both = event(), event(), event(), c_float(), c_float()
    ok(cuda.cudaDeviceSynchronize())
    ok(cuda.cudaEventRecord(start, c_void_p(first)))
    fill(first)
    ok(cuda.cudaEventRecord(between, c_void_p(first)))
    fill(second)
    ok(cuda.cudaEventRecord(end, c_void_p(second)))
    assert cuda.cudaEventQuery(end) == 600 and cuda.cudaGetLastError() == 600     # not ready
    assert cuda.cudaEventElapsedTime(byref(both), start, end) == 600
    ok(cuda.cudaEventSynchronize(end))
    ok(cuda.cudaEventSynchronize(between))
    ok(cuda.cudaEventElapsedTime(byref(one), start, between))
    ok(cuda.cudaEventElapsedTime(byref(both), start, end))
    return both.value / one.value
spins = 0
waiting = event()
fill(0)
ok(cuda.cudaEventRecord(waiting, None))
while cuda.cudaEventQuery(waiting) == 600: spins += 1
left, total = c_size_t(), c_size_t()
ok(cuda.cudaMemGetInfo(byref(left), byref(total)))
free(block)
block = malloc(1 << 30)
assert cuda.cudaMalloc(byref(c_void_p()), c_size_t(100 << 30)) == 2                 # leaves no trace in the peak
blocking = [stream(0) for _ in range(4)]
print(json.dumps({
    "legacy, non-blocking": pair(0, stream(1)),
    "legacy, blocking": pair(0, blocking[0]),
    "blocking, legacy": pair(blocking[1], 0),
    "blocking, blocking": pair(blocking[2], blocking[3]),
    "per thread, legacy": pair(2, 0),
    "spins": spins, "used": total.value - left.value, "total": total.value,
}))
"""
)


def test_streams_are_ordered_as_cuda_orders_them(tmp_path, phantora_command):
    need("torch")
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    out = tmp_path / "run"
    command = [*phantora_command, "run", "--gpus", "1", "--clock", "modelled", "--out", str(out), str(script)]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert answer.returncode == 0, f"{' '.join(command)}\n{answer.stdout}\n{answer.stderr}"
    got = json.loads(next(line for line in answer.stdout.splitlines() if line.startswith("{")))
    for pair, fills in {
        "legacy, non-blocking": 1,
        "legacy, blocking": 2,
        "blocking, legacy": 2,
        "blocking, blocking": 1,
        "per thread, legacy": 2,
    }.items():
        assert abs(got[pair] - fills) < 0.1, (pair, got)
    assert got["spins"] > 10
    memory = json.loads((out / "report.json").read_text())["memory"]
    assert memory["capacity_bytes"] == got["total"]
    assert memory["peak_device_bytes"] == got["used"]
