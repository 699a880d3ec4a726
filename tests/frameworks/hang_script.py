"""Rank 1 forgets a collective and ends. Run by test_closed_forms.py."""

import os
import time
from datetime import timedelta

import torch
import torch.distributed as dist

torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl", timeout=timedelta(seconds=5))
block = torch.ones(1024, device="cuda")
dist.all_reduce(block)
torch.cuda.synchronize()


def forgets() -> None:
    if dist.get_rank() == 0:
        dist.all_reduce(block)
    torch.cuda.synchronize()


print("waits from", time.time_ns(), flush=True)
forgets()
print("through", flush=True)
