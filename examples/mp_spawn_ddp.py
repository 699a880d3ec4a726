"""A DDP script that starts its own ranks, one per GPU of this machine.

python mp_spawn_ddp.py --steps 10
"""

import argparse
import os
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def train(local_rank: int, arguments: argparse.Namespace) -> None:
    """One rank; `local_rank` is also its GPU."""
    gpus = torch.cuda.device_count()
    node = int(os.environ.get("GROUP_RANK", "0"))
    nodes = int(os.environ.get("GROUP_WORLD_SIZE", "1"))
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "29500")
    torch.cuda.set_device(local_rank)
    dist.init_process_group("nccl", rank=node * gpus + local_rank, world_size=nodes * gpus)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(1024, arguments.hidden), nn.GELU(), nn.Linear(arguments.hidden, 1024))
    model = DistributedDataParallel(model.to(local_rank), device_ids=[local_rank])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(arguments.steps):
        start = time.perf_counter()
        inputs = torch.randn(arguments.batch, 1024, device=local_rank)
        loss = nn.functional.mse_loss(model(inputs), inputs)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        value = loss.item()
        if dist.get_rank() == 0:
            print(f"step {step}: loss {value:.4f}, {time.perf_counter() - start:.4f} s")
    dist.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=256, help="rows per GPU")
    parser.add_argument("--hidden", type=int, default=4096)
    parser.add_argument("--steps", type=int, default=10)
    arguments = parser.parse_args()
    mp.spawn(train, args=(arguments,), nprocs=torch.cuda.device_count())


if __name__ == "__main__":
    main()
