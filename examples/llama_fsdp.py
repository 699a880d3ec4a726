"""Llama in plain PyTorch, sharded with FSDP2, trained on synthetic tokens.

torchrun --nproc-per-node 8 llama_fsdp.py --size 7b --steps 10
"""

import argparse
import math
import os
import time
from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard


@dataclass(frozen=True)
class Config:
    """Sizes of a Llama model."""

    dim: int
    layers: int
    heads: int
    kv_heads: int
    hidden: int
    vocabulary: int
    rope_base: float = 10000.0
    norm_eps: float = 1e-5


SIZES = {
    "tiny": Config(dim=256, layers=2, heads=4, kv_heads=4, hidden=688, vocabulary=1024),
    "160m": Config(dim=768, layers=12, heads=12, kv_heads=12, hidden=2048, vocabulary=32000),
    "1b": Config(dim=2048, layers=16, heads=32, kv_heads=8, hidden=8192, vocabulary=128256, rope_base=500000.0),
    "7b": Config(dim=4096, layers=32, heads=32, kv_heads=32, hidden=11008, vocabulary=32000),  # Llama-2-7B
    "8b": Config(dim=4096, layers=32, heads=32, kv_heads=8, hidden=14336, vocabulary=128256, rope_base=500000.0),
    "13b": Config(dim=5120, layers=40, heads=40, kv_heads=40, hidden=13824, vocabulary=32000),  # Llama-2-13B
}


def rope_table(config: Config, length: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosines and sines of the rotary embedding, each of shape (length, head_dim)."""
    head_dim = config.dim // config.heads
    inverse = 1.0 / config.rope_base ** (torch.arange(0, head_dim, 2, device=device).float() / head_dim)
    angles = torch.outer(torch.arange(length, device=device).float(), inverse)
    angles = torch.cat((angles, angles), dim=-1)
    return angles.cos(), angles.sin()


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Applies the rotary embedding to x of shape (batch, heads, length, head_dim)."""
    left, right = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-right, left), dim=-1) * sin


class Attention(nn.Module):
    """Causal self-attention with grouped keys and values."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.heads, self.kv_heads = config.heads, config.kv_heads
        self.head_dim = config.dim // config.heads
        self.wq = nn.Linear(config.dim, self.heads * self.head_dim, bias=False)
        self.wk = nn.Linear(config.dim, self.kv_heads * self.head_dim, bias=False)
        self.wv = nn.Linear(config.dim, self.kv_heads * self.head_dim, bias=False)
        self.wo = nn.Linear(self.heads * self.head_dim, config.dim, bias=False)

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        batch, length, _ = x.shape
        q = self.wq(x).view(batch, length, self.heads, self.head_dim).transpose(1, 2)
        k = self.wk(x).view(batch, length, self.kv_heads, self.head_dim).transpose(1, 2)
        v = self.wv(x).view(batch, length, self.kv_heads, self.head_dim).transpose(1, 2)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        if self.kv_heads != self.heads:
            k = k.repeat_interleave(self.heads // self.kv_heads, dim=1)
            v = v.repeat_interleave(self.heads // self.kv_heads, dim=1)
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.wo(out.transpose(1, 2).reshape(batch, length, -1))


class Block(nn.Module):
    """One transformer layer."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.attention_norm = nn.RMSNorm(config.dim, eps=config.norm_eps)
        self.attention = Attention(config)
        self.mlp_norm = nn.RMSNorm(config.dim, eps=config.norm_eps)
        self.gate = nn.Linear(config.dim, config.hidden, bias=False)
        self.up = nn.Linear(config.dim, config.hidden, bias=False)
        self.down = nn.Linear(config.hidden, config.dim, bias=False)

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.attention_norm(x), cos, sin)
        h = self.mlp_norm(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class Llama(nn.Module):
    """Embedding, blocks, norm and output projection."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocabulary, config.dim)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.norm = nn.RMSNorm(config.dim, eps=config.norm_eps)
        self.output = nn.Linear(config.dim, config.vocabulary, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens)
        cos, sin = rope_table(self.config, tokens.shape[1], tokens.device)
        cos, sin = cos.to(x.dtype), sin.to(x.dtype)
        for block in self.blocks:
            x = block(x, cos, sin)
        return self.output(self.norm(x))

    @torch.no_grad()
    def initialise(self) -> None:
        """GPT-2 style initialisation; called once the parameters have memory."""
        depth = 1 / math.sqrt(2 * self.config.layers)
        for name, parameter in self.named_parameters():
            if parameter.dim() == 1:
                parameter.fill_(1.0)
            else:
                parameter.normal_(std=0.02 * (depth if name.endswith(("wo.weight", "down.weight")) else 1.0))


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=SIZES, default="160m")
    parser.add_argument("--layers", type=int, help="layers, if not the size's own")
    parser.add_argument("--dim", type=int, help="model dimension, if not the size's own")
    parser.add_argument("--batch", type=int, default=1, help="sequences per GPU")
    parser.add_argument("--sequence", type=int, default=2048, help="tokens per sequence")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--lr", type=float, default=3e-4)
    parser.add_argument("--reshard", action=argparse.BooleanOptionalAction, default=True, help="reshard after forward")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def configuration(arguments: argparse.Namespace) -> Config:
    values = dict(vars(SIZES[arguments.size]))
    if arguments.layers is not None:
        values["layers"] = arguments.layers
    if arguments.dim is not None:
        values["dim"] = arguments.dim
    return Config(**values)


def main() -> None:
    arguments = parse_arguments()
    config = configuration(arguments)
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device)
    rank, world_size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(arguments.seed)

    with torch.device("meta"):
        model = Llama(config)
    mesh = init_device_mesh("cuda", (world_size,))
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for block in model.blocks:
        fully_shard(block, mesh=mesh, mp_policy=policy, reshard_after_forward=arguments.reshard)
    fully_shard(model, mesh=mesh, mp_policy=policy, reshard_after_forward=arguments.reshard)
    model.to_empty(device=device)
    model.initialise()
    optimizer = torch.optim.AdamW(model.parameters(), lr=arguments.lr, betas=(0.9, 0.95), weight_decay=0.1, fused=True)

    if rank == 0:
        parameters = sum(p.numel() for p in model.parameters())
        print(f"{parameters / 1e9:.3f} B parameters on {world_size} GPUs")
    generator = torch.Generator(device=device).manual_seed(arguments.seed + rank)
    shape = (arguments.batch, arguments.sequence + 1)
    torch.cuda.synchronize()
    start = time.perf_counter()
    for step in range(arguments.steps):
        tokens = torch.randint(config.vocabulary, shape, device=device, generator=generator)
        logits = model(tokens[:, :-1])
        loss = F.cross_entropy(logits.float().flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        dist.all_reduce(loss, op=dist.ReduceOp.AVG)
        value = loss.item()
        now = time.perf_counter()
        if rank == 0:
            seconds = now - start
            tokens_per_second = arguments.batch * arguments.sequence / seconds
            peak = torch.cuda.max_memory_reserved() / 2**30
            print(
                f"step {step}: loss {value:.4f}, {seconds:.4f} s, {tokens_per_second:,.0f} tokens/s/GPU, {peak:.2f} GiB"
            )
        start = now
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
