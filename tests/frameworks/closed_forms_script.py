"""Two ranks meet in every way a script can; each meeting says when it ended, in virtual nanoseconds.

Run by test_closed_forms.py, which knows the closed forms. Every part starts at one instant on both ranks.
"""

import fcntl
import json
import os
import sys
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset

MS = 1_000_000
folder = Path(sys.argv[1])
rank = int(os.environ["RANK"])
other = 1 - rank
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("cpu:gloo,cuda:nccl", device_id=torch.device("cuda", int(os.environ["LOCAL_RANK"])))
host = dist.new_group(backend="gloo")
store = dist.TCPStore("node-0", 29_999, 2, rank == 0, timedelta(seconds=30))


def now() -> int:
    """All clocks are one: the others agree to the nanosecond."""
    wall, steady = time.time_ns(), time.perf_counter_ns()
    assert wall == steady == time.monotonic_ns() == time.clock_gettime_ns(time.CLOCK_REALTIME)
    return wall


def align() -> int:
    """The members of a gloo barrier leave it at one instant."""
    dist.barrier(host)
    return now()


def report(part: str, **values: object) -> None:
    print("FORM " + json.dumps({"part": part, **values}), flush=True)


def store_parts() -> None:
    start = align()
    if rank == 1:
        time.sleep(0.5)
        store.set("late", "v")
        report("store set after a sleep", ns=now() - start)
    else:
        assert store.get("late") == b"v"
        report("store get waits", ns=now() - start)

    start = align()
    if rank == 1:
        store.set("early", "v")
    else:
        time.sleep(0.25)
        assert store.get("early") == b"v"
        report("store get of what is there", ns=now() - start)

    start = align()
    if rank == 1:
        time.sleep(0.125)
        store.set("one", "1")
        time.sleep(0.125)
        store.set("two", "2")
    else:
        store.wait(["one", "two"])
        report("store wait for two keys", ns=now() - start)

    start = align()
    if rank == 0:
        short = store.clone()
        short.set_timeout(timedelta(seconds=3))
        try:
            short.get("never")
        except dist.DistStoreError:
            report("store get times out", ns=now() - start)
        start = now()
        try:
            store.wait(["never"], timedelta(milliseconds=1234))
        except dist.DistStoreError:
            report("store wait times out", ns=now() - start)

    start = align()  # without a sleep: only the price of a look moves this clock
    if rank == 1:
        time.sleep(0.01)
        store.set("polled", "v")
    else:
        looks = 1
        while not store.check(["polled"]):
            looks += 1
        report("store polled", ns=now() - start, looks=looks)


def gloo_parts() -> None:
    block = torch.ones(1024)
    start = align()
    if rank == 1:
        time.sleep(0.3)
    dist.all_reduce(block)
    report("gloo all_reduce", ns=now() - start)
    assert block.tolist() == [2.0] * 1024

    start = align()
    if rank == 1:
        time.sleep(0.25)
        dist.send(block, 0)
        report("gloo send", ns=now() - start)
    else:
        dist.recv(block, 1)
        report("gloo recv waits", ns=now() - start)

    start = align()
    if rank == 1:
        dist.send(block, 0)
    else:
        time.sleep(0.25)
        dist.recv(block, 1)
        report("gloo recv of what is there", ns=now() - start)

    start = align()
    if rank == 1:
        time.sleep(0.2)
        dist.send(block, 0, tag=7)
    else:
        assert dist.recv(block, tag=7) == 1
        report("gloo recv from anybody", ns=now() - start)

    hasty = dist.new_group([0, 1], timedelta(seconds=2), backend="gloo")
    start = align()
    if rank == 0:
        try:
            dist.recv(block, 1, group=hasty)
        except dist.DistBackendError:
            report("gloo recv times out", ns=now() - start)


def file_parts() -> None:
    path = folder / "lock"
    for name, lock, unlock in (
        ("flock", lambda f: fcntl.flock(f, fcntl.LOCK_EX), lambda f: fcntl.flock(f, fcntl.LOCK_UN)),
        ("lockf", lambda f: fcntl.lockf(f, fcntl.LOCK_EX), lambda f: fcntl.lockf(f, fcntl.LOCK_UN)),
    ):
        with open(path, "a+") as file:
            start = align()
            if rank == 0:
                lock(file)
                time.sleep(0.4)
                file.write(name)
                file.flush()
                unlock(file)
                report(f"{name} given back", ns=now() - start)
            else:
                time.sleep(0.1)
                lock(file)
                report(f"{name} granted", ns=now() - start, read=path.read_text())
                unlock(file)

    mark = folder / "mark"
    start = align()
    if rank == 1:
        time.sleep(0.123)
        mark.touch()
    else:
        looks = 1
        while not mark.exists():
            time.sleep(0.01)
            looks += 1
        report("file polled", ns=now() - start, looks=looks)

    # Both want to create it; the earlier one does, whichever process is faster.
    start = align()
    time.sleep(0.002 if rank == 0 else 0.001)
    try:
        os.close(os.open(folder / "once", os.O_CREAT | os.O_EXCL))
        made = True
    except FileExistsError:
        made = False
    report("exclusive creation", made=made)


class Slow(Dataset):
    def __len__(self) -> int:
        return 24

    def __getitem__(self, index: int) -> int:
        time.sleep(0.01)
        return index


def loader_parts() -> None:
    loader = DataLoader(Slow(), batch_size=4, num_workers=2, collate_fn=list)
    for part, work in (("loader alone", 0.0), ("loader and work", 0.03)):
        start = align()
        first = 0
        for index, batch in enumerate(loader):
            assert batch == list(range(4 * index, 4 * index + 4))
            first = first or now() - start
            time.sleep(work)
        report(part, ns=now() - start, first=first)


def gpu_parts() -> None:
    """On both ranks alike: they do not meet here."""
    big = torch.empty(64 << 20, dtype=torch.uint8, device="cuda")
    host = torch.empty(64 << 20, dtype=torch.uint8, pin_memory=True)
    left, right = torch.cuda.Stream(), torch.cuda.Stream()
    a, b, c = (torch.cuda.Event(enable_timing=True) for _ in range(3))
    matrix = torch.empty(4096, 4096, device="cuda", dtype=torch.bfloat16)
    torch.cuda.synchronize()

    with torch.cuda.stream(left):
        torch.mm(matrix, matrix)  # keeps the stream busy: what follows is back to back
        a.record()
        big.copy_(host, non_blocking=True)
        b.record()
        torch.mm(matrix, matrix)
        c.record()
    torch.cuda.synchronize()
    synchronized = now()  # asking for times costs something
    report("events", copy_ms=a.elapsed_time(b), gemm_ms=b.elapsed_time(c), synchronized=synchronized)

    with torch.cuda.stream(left):
        big.copy_(host, non_blocking=True)
    with torch.cuda.stream(right):
        torch.mm(matrix, matrix)
    issued = now()
    torch.cuda.synchronize()
    report("overlap", issued=issued, synchronized=now())

    end = torch.cuda.Event()
    with torch.cuda.stream(left):
        big.copy_(host, non_blocking=True)
        end.record()
    start = now()
    queries = 1
    while not end.query():
        queries += 1
    report("spin", start=start, end=now(), queries=queries)
    report("clock", now=now())


def pipeline() -> None:
    """Rank 0 computes and sends, rank 1 receives and computes."""
    matrix = torch.empty(2048, 2048, device="cuda", dtype=torch.bfloat16)
    block = torch.empty(8 << 20, device="cuda")
    dist.all_reduce(block[:1])  # makes the communicator
    torch.cuda.synchronize()
    align()
    for _ in range(4):
        if rank == 0:
            torch.mm(matrix, matrix)
            dist.isend(block, 1).wait()
        else:
            dist.irecv(block, 0).wait()
            torch.mm(matrix, matrix)
    torch.cuda.synchronize()
    report("pipeline", end=now())


parts = sys.argv[2].split(",") if len(sys.argv) > 2 else []
for part in (store_parts, gloo_parts, file_parts, loader_parts, gpu_parts, pipeline):
    if not parts or part.__name__ in parts:
        part()
dist.destroy_process_group()
