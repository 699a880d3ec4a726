"""NCCL: what null mode leaves on one rank, and real values between ranks under `phantora run`."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from shim_support import need, run_snippet

FOLDER = Path(__file__).parent

INIT = """
import ctypes as c
import torch
lib = c.CDLL("libnccl.so.2")
class Id(c.Structure):
    _fields_ = [("internal", c.c_char * 128)]
SUCCESS, INVALID_ARGUMENT, INVALID_USAGE = 0, 4, 5
SUM, FLOAT = 0, 7
lib.ncclCommInitRank.argtypes = [c.c_void_p, c.c_int, Id, c.c_int]
torch.zeros(1, device="cuda")

def make(ranks, rank):
    unique, comm = Id(), c.c_void_p()
    assert lib.ncclGetUniqueId(c.byref(unique)) == SUCCESS
    assert lib.ncclCommInitRank(c.byref(comm), ranks, unique, rank) == SUCCESS
    return comm

def address(tensor, offset=0):
    return c.c_void_p(tensor.data_ptr() + offset)
"""


def test_ids_are_unique_and_communicators_know_themselves(tmp_path):
    need("torch")
    run_snippet(
        tmp_path,
        INIT
        + """
ids = [Id() for _ in range(3)]
for one in ids:
    assert lib.ncclGetUniqueId(c.byref(one)) == SUCCESS
assert len({bytes(one) for one in ids}) == 3
comm, value = make(4, 2), c.c_int()
for name, wanted in (("Count", 4), ("UserRank", 2), ("CuDevice", 0), ("GetAsyncError", SUCCESS)):
    value.value = -1
    assert getattr(lib, "ncclComm" + name)(comm, c.byref(value)) == SUCCESS and value.value == wanted, name
assert lib.ncclCommInitRank(c.byref(comm), 4, ids[0], 4) == INVALID_ARGUMENT
assert lib.ncclGetVersion(c.byref(value)) == SUCCESS and value.value == 23007
""",
    )


def test_errors_are_nccls_own(tmp_path):
    need("torch")
    run_snippet(
        tmp_path,
        INIT
        + """
comm, x = make(1, 0), torch.ones(4).cuda()
assert lib.ncclAllReduce(address(x), address(x), c.c_size_t(4), 99, SUM, comm, None) == INVALID_ARGUMENT
assert lib.ncclAllReduce(address(x), address(x), c.c_size_t(4), FLOAT, 77, comm, None) == INVALID_ARGUMENT
assert lib.ncclBroadcast(address(x), address(x), c.c_size_t(4), FLOAT, 1, comm, None) == INVALID_ARGUMENT
assert lib.ncclAllReduce(address(x), address(x), c.c_size_t(4), FLOAT, SUM, None, None) == INVALID_ARGUMENT
assert lib.ncclGroupEnd() == INVALID_USAGE
# The first failure inside a group comes out of its end, and nothing of the group happens.
lib.ncclGroupStart()
lib.ncclAllReduce(address(x), address(x), c.c_size_t(4), 99, SUM, comm, None)
assert lib.ncclGroupEnd() == INVALID_ARGUMENT
assert lib.ncclGroupStart() == SUCCESS and lib.ncclGroupEnd() == SUCCESS
lib.ncclGetErrorString.restype = c.c_char_p
assert b"invalid usage" in lib.ncclGetErrorString(INVALID_USAGE)
assert lib.ncclCommDestroy(comm) == SUCCESS
assert lib.ncclAllReduce(address(x), address(x), c.c_size_t(4), FLOAT, SUM, comm, None) == INVALID_ARGUMENT
""",
    )


def test_one_rank_copies_and_scales(tmp_path):
    need("torch")
    run_snippet(
        tmp_path,
        INIT
        + """
comm, x, y = make(1, 0), torch.tensor([1.0, 2.0, 3.0, 4.0]).cuda(), torch.empty(4, device="cuda")
four = c.c_size_t(4)
lib.ncclAllReduce(address(x), address(y), four, FLOAT, SUM, comm, None)
assert y.tolist() == x.tolist()
for call in ("ncclAllGather", "ncclAlltoAll"):
    y.fill_(0)
    assert getattr(lib, call)(address(x), address(y), four, FLOAT, comm, None) == SUCCESS
    assert y.tolist() == x.tolist(), call
op, factor = c.c_int(), c.c_float(0.5)
assert lib.ncclRedOpCreatePreMulSum(c.byref(op), c.byref(factor), FLOAT, 1, comm) == SUCCESS
lib.ncclAllReduce(address(x), address(y), four, FLOAT, op, comm, None)
assert y.tolist() == [0.5, 1.0, 1.5, 2.0]
assert lib.ncclRedOpDestroy(op, comm) == SUCCESS
assert lib.ncclAllReduce(address(x), address(y), four, FLOAT, op, comm, None) == INVALID_ARGUMENT
""",
    )


def test_null_mode_leaves_own_parts_and_forgets_others(tmp_path):
    need("torch")
    run_snippet(
        tmp_path,
        INIT
        + """
comm, x, y = make(3, 1), torch.tensor([1.0, 2.0]).cuda(), torch.full((6,), 9.0).cuda()
lib.ncclAllGather(address(x), address(y), c.c_size_t(2), FLOAT, comm, None)
assert y.tolist() == [0.0, 0.0, 1.0, 2.0, 0.0, 0.0]
z = torch.full((2,), 9.0).cuda()
lib.ncclRecv(address(z), c.c_size_t(2), FLOAT, 0, comm, None)
assert z.tolist() == [0.0, 0.0]
whole = torch.arange(6.0).cuda()
lib.ncclReduceScatter(address(whole), address(z), c.c_size_t(2), FLOAT, SUM, comm, None)
assert z.tolist() == [2.0, 3.0]
""",
    )


def run_ranks(phantora_command, tmp_path, script: str, gpus: int, name: str) -> dict:
    out = tmp_path / name
    command = [
        *phantora_command,
        "run",
        str(FOLDER / script),
        "--gpus",
        str(gpus),
        "--gpus-per-node",
        str(gpus),
        "--clock",
        "modelled",
        "--steps",
        "all",
    ]
    command += ["--out", str(out), "--no-tui"]
    roots = [str(FOLDER.parents[1]), str(FOLDER.parents[1] / "runtime"), os.environ.get("PYTHONPATH", "")]
    env = os.environ | {"PYTHONPATH": os.pathsep.join(root for root in roots if root)}
    answer = subprocess.run(command, env=env, capture_output=True, text=True, timeout=600)
    logs = "\n".join(path.read_text()[-2000:] for path in sorted((out / "ranks").glob("*.log"))) if out.exists() else ""
    assert answer.returncode == 0, f"{' '.join(command)}\n{answer.stderr[-3000:]}\n{logs}"
    return json.loads((out / "report.json").read_text())


@pytest.mark.parametrize("gpus", [2, 3])
def test_values_between_ranks(phantora_command, tmp_path, gpus):
    """All collectives, in place and not, groups, objects, splits, and two ways in which ranks could wait for ever."""
    need("torch")
    report = run_ranks(phantora_command, tmp_path, "nccl_cases.py", gpus, "run")
    assert report["verdict"] == "ok" and report["late_ops"] == 0


def test_frameworks_steer_by_values(phantora_command, tmp_path):
    need("torch")
    report = run_ranks(phantora_command, tmp_path, "nccl_frameworks.py", 2, "run")
    assert report["verdict"] == "ok" and report["late_ops"] == 0


def test_values_do_not_disturb_the_clock(phantora_command, tmp_path):
    """When payloads arrive is a matter of real time; nothing of that may be seen in virtual time."""
    need("torch")
    digests = {run_ranks(phantora_command, tmp_path, "nccl_cases.py", 2, f"run{i}")["digest"] for i in range(2)}
    assert len(digests) == 1


GATHERED = """
import os, torch
import torch.distributed as dist
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl")
rank, world = dist.get_rank(), dist.get_world_size()
for elements, dtype, known in ((7_000, torch.int64, True), (15_000, torch.float32, False), (10_000, torch.float32, True)):
    mine = torch.full((elements,), rank + 1, dtype=dtype).cuda()
    every = torch.empty(world * elements, dtype=dtype, device="cuda")
    dist.all_gather_into_tensor(every, mine)
    got = every.cpu()[::elements].tolist()
    wanted = [r + 1 if known or r == rank else 0 for r in range(world)]
    assert got == wanted, (elements, dtype, got)
    other = torch.full((elements,), 7, dtype=dtype).cuda()
    dist.broadcast(other, 0)
    assert other.cpu().tolist() == [7] * elements
dist.destroy_process_group()
"""


@pytest.mark.slow
def test_what_many_ranks_gather_is_bounded(phantora_command, tmp_path):
    """18 ranks: 18 x 60 kB of floats are over 1 MiB and become unknown but for the own part; integers stay known."""
    need("torch")
    script = tmp_path / "gathered.py"
    script.write_text(GATHERED)
    report = run_ranks(phantora_command, tmp_path, str(script), 18, "run")
    assert report["verdict"] == "ok" and report["late_ops"] == 0
