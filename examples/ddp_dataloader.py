"""DistributedDataParallel fed by a DataLoader with worker processes and pinned memory.

torchrun --nproc-per-node 8 ddp_dataloader.py --steps 10
"""

import argparse
import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Images(Dataset[tuple[torch.Tensor, int]]):
    """Random images whose label is a function of the index; `delay` stands for decoding."""

    def __init__(self, count: int, features: int, classes: int, delay: float) -> None:
        self.count, self.features, self.classes, self.delay = count, features, classes, delay

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        if self.delay > 0:
            time.sleep(self.delay)
        generator = torch.Generator().manual_seed(index)
        return torch.randn(self.features, generator=generator), index % self.classes


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=32, help="images per GPU")
    parser.add_argument("--features", type=int, default=3072)
    parser.add_argument("--hidden", type=int, default=4096)
    parser.add_argument("--classes", type=int, default=10)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--delay", type=float, default=0.0, help="seconds an image takes to load")
    parser.add_argument("--steps", type=int, default=10)
    return parser.parse_args()


def main() -> None:
    arguments = parse_arguments()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    data = Images(
        arguments.steps * arguments.batch * world_size, arguments.features, arguments.classes, arguments.delay
    )
    sampler = DistributedSampler(data, shuffle=True, drop_last=True)
    loader = DataLoader(
        data,
        batch_size=arguments.batch,
        sampler=sampler,
        num_workers=arguments.workers,
        pin_memory=True,
        drop_last=True,
    )
    model = nn.Sequential(
        nn.Linear(arguments.features, arguments.hidden), nn.ReLU(), nn.Linear(arguments.hidden, arguments.classes)
    )
    model = DistributedDataParallel(model.to(device), device_ids=[device.index])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    start = time.perf_counter()
    for step, (images, labels) in enumerate(loader):
        images, labels = images.to(device, non_blocking=True), labels.to(device, non_blocking=True)
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        value = loss.item()
        if rank == 0:
            print(f"step {step}: loss {value:.4f}, {time.perf_counter() - start:.4f} s, labels {labels.sum().item()}")
        start = time.perf_counter()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
