"""A transformer encoder trained with DistributedDataParallel and AdamW on synthetic data.

torchrun --nproc-per-node 8 ddp_train.py --steps 10
"""

import argparse
import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Classifier(nn.Module):
    """Tokens in, one of `classes` out."""

    def __init__(self, dim: int, layers: int, vocabulary: int, classes: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, dim)
        layer = nn.TransformerEncoderLayer(dim, nhead=dim // 64, dim_feedforward=4 * dim, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(dim, classes)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.encoder(self.embedding(tokens)).mean(dim=1))


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dim", type=int, default=512)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--vocabulary", type=int, default=8192)
    parser.add_argument("--classes", type=int, default=16)
    parser.add_argument("--batch", type=int, default=16, help="sequences per GPU")
    parser.add_argument("--sequence", type=int, default=256)
    parser.add_argument("--steps", type=int, default=10)
    return parser.parse_args()


def main() -> None:
    arguments = parse_arguments()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = Classifier(arguments.dim, arguments.layers, arguments.vocabulary, arguments.classes).to(device)
    model = DistributedDataParallel(model, device_ids=[device.index], gradient_as_bucket_view=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    torch.manual_seed(1 + rank)
    for step in range(arguments.steps):
        start = time.perf_counter()
        tokens = torch.randint(arguments.vocabulary, (arguments.batch, arguments.sequence), device=device)
        labels = tokens.sum(dim=1) % arguments.classes
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = nn.functional.cross_entropy(model(tokens), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        value = loss.item()
        if rank == 0:
            print(f"step {step}: loss {value:.4f}, {time.perf_counter() - start:.4f} s")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
