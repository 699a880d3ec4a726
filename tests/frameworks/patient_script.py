"""A rank sleeps far longer than its process group's time-out between two collectives; on GPUs its watchdog has seen
the first one end long before. Run by test_closed_forms.py."""

import os
import time
from datetime import timedelta

import torch
import torch.distributed as dist

torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl", timeout=timedelta(seconds=5))
block = torch.ones(1024, device="cuda")
for seconds in (20, 3600):
    dist.all_reduce(block)
    time.sleep(seconds)
dist.all_reduce(block)
torch.cuda.synchronize()
print("slept", time.monotonic_ns(), flush=True)
dist.destroy_process_group()
