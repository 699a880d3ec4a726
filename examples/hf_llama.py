"""A Hugging Face Transformers Llama, made from its configuration, trained with DDP and AdamW on synthetic tokens.

torchrun --nproc-per-node 8 hf_llama.py --steps 10
"""

import argparse
import os
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from transformers import LlamaConfig, LlamaForCausalLM


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hidden", type=int, default=512)
    parser.add_argument("--intermediate", type=int, default=1376)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--vocabulary", type=int, default=8192)
    parser.add_argument("--batch", type=int, default=2, help="sequences per GPU")
    parser.add_argument("--sequence", type=int, default=512)
    parser.add_argument("--steps", type=int, default=10)
    return parser.parse_args()


def main() -> None:
    arguments = parse_arguments()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    torch.manual_seed(0)
    config = LlamaConfig(
        hidden_size=arguments.hidden,
        intermediate_size=arguments.intermediate,
        num_hidden_layers=arguments.layers,
        num_attention_heads=arguments.heads,
        vocab_size=arguments.vocabulary,
        max_position_embeddings=arguments.sequence,
        use_cache=False,
    )
    model = LlamaForCausalLM(config).to(device=device, dtype=torch.bfloat16)
    model = DistributedDataParallel(model, device_ids=[device.index], gradient_as_bucket_view=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    torch.manual_seed(1 + rank)
    for step in range(arguments.steps):
        start = time.perf_counter()
        tokens = torch.randint(arguments.vocabulary, (arguments.batch, arguments.sequence), device=device)
        loss = model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        value = loss.item()
        if rank == 0:
            print(f"step {step}: loss {value:.4f}, {time.perf_counter() - start:.4f} s")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
