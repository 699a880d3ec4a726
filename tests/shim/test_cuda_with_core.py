"""The CUDA half against the simulator core: times of streams and events, memory in the report."""

from __future__ import annotations

import json
import subprocess

import oplog
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


# Kernels as two builds of one torch name them, and as the op log does: hashes of the build and nvcc's process are left out.
NAMES = {
    "_ZN2at6native51_GLOBAL__N__b1108092_12_PowKernel_cu_a429abd7_213613powEi": "_ZN2at6native24_GLOBAL__N__PowKernel_cu3powEi",
    "_ZN2at6native51_GLOBAL__N__b1108092_12_PowKernel_cu_40edaaaa_213163powEi": "_ZN2at6native24_GLOBAL__N__PowKernel_cu3powEi",
    "_ZN3c1044_GLOBAL__N__b23ef953_11_Indexing_cu_89862edb4fillEv": "_ZN3c1023_GLOBAL__N__Indexing_cu4fillEv",
    "_ZN2at4callIZN47_INTERNAL_f15e58fd_16_Distributions_cu_bfe2d17d49_GLOBAL__N__f15e58fd_16_Distributions_cu_bfe2d17d4drawEvE":
        "_ZN2at4callIZN26_INTERNAL_Distributions_cu28_GLOBAL__N__Distributions_cu4drawEvE",
    "_ZN1a12_GLOBAL__N_11bEv": "_ZN1a12_GLOBAL__N_11bEv",
    "_ZN1a14_GLOBAL__N__ab1bEv": "_ZN1a14_GLOBAL__N__ab1bEv",
}  # fmt: skip

LAUNCHES = """
class Dim3(ctypes.Structure): _fields_ = [(n, c_uint) for n in "xyz"]
ok(cuda.cudaFree(None))
cuda.__cudaRegisterFatBinary.restype = c_void_p
binary = c_void_p(getattr(cuda, "__cudaRegisterFatBinary")(None))
register = getattr(cuda, "__cudaRegisterFunction")
stubs = [(c_char * 1)() for _ in names]
for stub, name in zip(stubs, names):
    register(binary, stub, None, name, -1, None, None, None, None, None)
    ok(cuda.cudaLaunchKernel(stub, Dim3(1, 1, 1), Dim3(32, 1, 1), (c_void_p * 1)(ctypes.addressof(c_int(1))), c_size_t(0), None))
ok(cuda.cudaDeviceSynchronize())
"""


def test_a_kernel_has_one_name_whichever_build_it_is_of(tmp_path, phantora_command):
    need("torch")
    script, out = tmp_path / "script.py", tmp_path / "run"
    script.write_text(f"{PRELUDE}\nnames = {[name.encode() for name in NAMES]}\n{LAUNCHES}")
    command = [*phantora_command, "run", "--gpus", "1", "--clock", "modelled", "--out", str(out), str(script)]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert answer.returncode == 0, f"{' '.join(command)}\n{answer.stdout}\n{answer.stderr}"
    log = oplog.read(out / "oplog")
    kernels = [log.names[op.words[0]] for op in log.ops if op.kind == oplog.KERNEL]
    assert kernels == list(NAMES.values())
