"""cuBLAS and cuBLASLt: what torch does with them, and what reads back, in null mode."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import oplog
from shim_support import need, run_snippet

LIBRARY = """
import ctypes as c
lib = c.CDLL("libcublas.so.13")
for name in ("cublasCreate_v2", "cublasSetStream_v2", "cublasGemmEx", "cublasSetWorkspace_v2"):
    getattr(lib, name).restype = c.c_int
SUCCESS, NOT_INITIALIZED, INVALID_VALUE, NOT_SUPPORTED = 0, 1, 7, 15
R_16BF, R_32F, COMPUTE_32F = 14, 0, 68

def make():
    handle = c.c_void_p()
    assert lib.cublasCreate_v2(c.byref(handle)) == SUCCESS
    return handle

def gemm(handle, m, n, k, lda, ldb, ldc, kind=R_16BF, target=None):
    return lib.cublasGemmEx(handle, 0, 0, m, n, k, None, None, kind, lda, None, kind, ldb, None,
                            c.c_void_p(target), kind, ldc, COMPUTE_32F, -1)
"""


def test_modes_and_streams_read_back(tmp_path):
    run_snippet(
        tmp_path,
        LIBRARY
        + """
handle = make()
value, stream = c.c_int(), c.c_void_p()
for name, wanted in (("MathMode", 3), ("PointerMode_v2", 1), ("AtomicsMode", 1), ("SmCountTarget", 100)):
    assert getattr(lib, "cublasSet" + name)(handle, wanted) == SUCCESS
    assert getattr(lib, "cublasGet" + name)(handle, c.byref(value)) == SUCCESS and value.value == wanted, name
assert lib.cublasSetStream_v2(handle, c.c_void_p(2)) == SUCCESS
assert lib.cublasGetStream_v2(handle, c.byref(stream)) == SUCCESS and stream.value == 2
assert lib.cublasGetVersion_v2(handle, c.byref(value)) == SUCCESS and value.value // 10000 == 13
assert lib.cublasDestroy_v2(handle) == SUCCESS
assert lib.cublasGetMathMode(None, c.byref(value)) == NOT_INITIALIZED
""",
    )


def test_wrong_arguments_are_refused_as_cublas_does(tmp_path):
    run_snippet(
        tmp_path,
        LIBRARY
        + """
handle = make()
assert gemm(None, 4, 4, 4, 4, 4, 4) == NOT_INITIALIZED
assert gemm(handle, -1, 4, 4, 4, 4, 4) == INVALID_VALUE
assert gemm(handle, 4, 4, 4, 3, 4, 4) == INVALID_VALUE   # lda below m
assert gemm(handle, 4, 4, 4, 4, 3, 4) == INVALID_VALUE   # ldb below k
assert gemm(handle, 4, 4, 4, 4, 4, 3) == INVALID_VALUE   # ldc below m
assert gemm(handle, 4, 4, 4, 4, 4, 4, kind=99) == NOT_SUPPORTED
assert gemm(handle, 0, 4, 4, 4, 4, 4) == SUCCESS
""",
    )


def test_the_default_workspace_is_device_memory(tmp_path):
    need("torch")
    run_snippet(
        tmp_path,
        LIBRARY
        + """
import torch
torch.zeros(1, device="cuda")
before = torch.cuda.mem_get_info()[0]
handle = make()
assert before - torch.cuda.mem_get_info()[0] == 32 << 20
lib.cublasDestroy_v2(handle)
assert torch.cuda.mem_get_info()[0] == before
""",
    )


def test_a_product_makes_its_output_unknown_and_nothing_else(tmp_path):
    need("torch")
    run_snippet(
        tmp_path,
        LIBRARY
        + """
import torch
out = torch.ones(8, 6).cuda()           # real values: copied from the host
shim = c.CDLL("libcuda.so.1")
shim.phantora_is_known.argtypes = [c.c_void_p, c.c_size_t]
known = lambda row, columns: shim.phantora_is_known(out.data_ptr() + row * 6 * 4, columns * 4)
assert known(0, 48) == 1
# Columns of 4 elements, 6 apart: the gaps of 2 are not written.
assert gemm(make(), 4, 3, 5, 4, 5, 6, kind=R_32F, target=out.data_ptr()) == SUCCESS
assert [known(row, 4) for row in range(4)] == [0, 0, 0, 1]
assert out.cpu().tolist() == [[0.0] * 4 + [1.0] * 2] * 3 + [[1.0] * 6] * 5
""",
    )


def test_every_kind_of_torch_product_runs(tmp_path):
    need("torch")
    run_snippet(
        tmp_path,
        """
import torch
for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.complex64):
    a = torch.empty(6, 8, dtype=dtype, device="cuda")
    assert (a @ a.t()).shape == (6, 6)
    assert torch.mv(a, a[0]).shape == (6,)
    b = torch.empty(3, 6, 8, dtype=dtype, device="cuda")
    assert torch.bmm(b, b.transpose(1, 2)).shape == (3, 6, 6)
    assert torch.baddbmm(b[:, :, :6].contiguous(), b, b.transpose(1, 2)).shape == (3, 6, 6)
    if not dtype.is_complex:
        assert torch.addmm(a[0, :6], a, a.t()).shape == (6, 6)
    torch.dot(a[0], a[1])
a = torch.empty(32, 64, device="cuda", dtype=torch.float8_e4m3fn)
one = torch.ones((), device="cuda")
assert torch._scaled_mm(a, a.t(), one, one, out_dtype=torch.bfloat16).shape == (32, 32)
i = torch.empty(32, 64, device="cuda", dtype=torch.int8)
assert torch._int_mm(i, i.t().contiguous()).dtype == torch.int32
layer = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.GELU(), torch.nn.Linear(64, 8)).cuda().bfloat16()
layer(torch.empty(4, 64, device="cuda", dtype=torch.bfloat16)).sum().backward()
assert layer[0].weight.grad.shape == (64, 64)
s = torch.eye(5, device="cuda")
assert torch.linalg.solve_triangular(s, s, upper=True).shape == (5, 5)
""",
    )


def test_lt_attributes_read_back_and_heuristics_offer_one(tmp_path):
    run_snippet(
        tmp_path,
        """
import ctypes as c
lib = c.CDLL("libcublasLt.so.13")
layout, desc, preference = c.c_void_p(), c.c_void_p(), c.c_void_p()
u64, i64 = c.c_uint64, c.c_int64
lib.cublasLtMatrixLayoutCreate.argtypes = [c.c_void_p, c.c_int, u64, u64, i64]
assert lib.cublasLtMatrixLayoutCreate(c.byref(layout), 14, 128, 64, 128) == 0
value, written = u64(), c.c_size_t()
assert lib.cublasLtMatrixLayoutGetAttribute(layout, 2, c.byref(value), 8, c.byref(written)) == 0
assert (value.value, written.value) == (128, 8)
assert lib.cublasLtMatrixLayoutSetAttribute(layout, 5, c.byref(c.c_int(7)), 4) == 0
batch = c.c_int()
assert lib.cublasLtMatrixLayoutGetAttribute(layout, 5, c.byref(batch), 4, c.byref(written)) == 0 and batch.value == 7
assert lib.cublasLtMatrixLayoutSetAttribute(layout, 99, c.byref(batch), 4) == 7

class Result(c.Structure):
    _fields_ = [("algo", u64 * 8), ("workspace", c.c_size_t), ("state", c.c_int), ("waves", c.c_float)]
    _fields_ += [("reserved", c.c_int * 4)]

def matrix(rows, columns):
    made = c.c_void_p()
    assert lib.cublasLtMatrixLayoutCreate(c.byref(made), 14, rows, columns, rows) == 0
    return made

assert lib.cublasLtMatmulDescCreate(c.byref(desc), 68, 0) == 0
assert lib.cublasLtMatmulPreferenceCreate(c.byref(preference)) == 0
handle, result, found = c.c_void_p(), Result(), c.c_int(-1)
assert lib.cublasLtCreate(c.byref(handle)) == 0
heuristic = lib.cublasLtMatmulAlgoGetHeuristic
ask = lambda a, b, d: heuristic(handle, desc, a, b, d, d, preference, 1, c.byref(result), c.byref(found))
assert ask(matrix(16, 32), matrix(32, 8), matrix(16, 8)) == 0 and found.value == 1 and result.state == 0
assert ask(matrix(16, 32), matrix(31, 8), matrix(16, 8)) == 7 and found.value == 0   # inner sizes differ
""",
    )


def test_records_hold_the_exact_sizes(phantora_command, tmp_path):
    """Row-major torch asks column-major cuBLAS for the transposed product: m and n change places."""
    need("torch")
    folder, out = Path(__file__).parent, tmp_path / "run"
    roots = [str(folder.parents[1]), str(folder.parents[1] / "runtime"), os.environ.get("PYTHONPATH", "")]
    env = os.environ | {"PYTHONPATH": os.pathsep.join(root for root in roots if root)}
    command = [*phantora_command, "run", str(folder / "gemm_cases.py"), "--gpus", "1", "--clock", "modelled"]
    command += ["--steps", "all", "--out", str(out), "--no-tui"]
    answer = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300)
    assert answer.returncode == 0, f"{' '.join(command)}\n{answer.stderr[-3000:]}"
    log = subprocess.run([*phantora_command, "report", str(out), "--oplog"], env=env, capture_output=True, check=True)
    found = [
        (name, *(fields[key] for key in ("m", "n", "k", "batch", "type_a", "type_c", "transpose_a", "transpose_b")))
        for name, fields in oplog.Log(log.stdout).gemms()
    ]
    float32, bfloat16, fp8 = 8, 10, 11  # wire::DataType
    assert found == [
        ("cublasGemmEx", 40, 48, 24, 1, bfloat16, bfloat16, 0, 0),
        ("cublasSgemm", 40, 48, 24, 1, float32, float32, 0, 0),
        ("cublasSgemmStridedBatched", 8, 6, 7, 5, float32, float32, 0, 0),
        ("cublasGemmEx", 40, 48, 24, 1, bfloat16, bfloat16, 1, 0),
        ("cublasLtMatmul", 16, 32, 64, 1, fp8, bfloat16, 1, 0),
        ("cublasSgemv", 48, 1, 24, 1, float32, float32, 0, 0),
    ]
