"""PyTorch's own distributed layers, which steer by values that travel through NCCL: `phantora run`, two ranks."""

import os
import sys
import tempfile

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B

torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl")
rank, world = dist.get_rank(), dist.get_world_size()
WIDTH = 64


class Net(nn.Module):
    """Three layers, one of which can be left out."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = (nn.Linear(WIDTH, WIDTH) for _ in range(3))

    def forward(self, x: torch.Tensor, skip: bool = False) -> torch.Tensor:
        """A step."""
        y = self.a(x).relu()
        return self.c(y if skip else self.b(y))


def train(model: nn.Module, *arguments: bool) -> None:
    """Two steps."""
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(2):
        model(torch.randn(8, WIDTH, device="cuda"), *arguments).sum().backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()


def ddp() -> None:
    """The constructor compares parameter shapes between ranks."""
    train(nn.parallel.DistributedDataParallel(Net().cuda()))


def unused_parameters() -> None:
    """Each rank leaves another layer out; the ranks tell each other which were used."""
    train(nn.parallel.DistributedDataParallel(Net().cuda(), find_unused_parameters=True), rank % 2 == 0)


def fsdp_and_checkpoint() -> None:
    """Sharded steps, the full state dict, and a checkpoint whose plan is made through object collectives."""
    model = Net().cuda()
    for layer in (model.a, model.b, model.c):
        fully_shard(layer)
    fully_shard(model)
    train(model)
    full = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
    assert rank != 0 or full["a.weight"].shape == (WIDTH, WIDTH)
    folder = [tempfile.mkdtemp() if rank == 0 else None]
    dist.broadcast_object_list(folder, 0)
    state = {"model": model.state_dict()}
    dcp.save(state, checkpoint_id=folder[0])
    dcp.load(state, checkpoint_id=folder[0])


def pipeline() -> None:
    """Stages send each other the shapes of what they will send."""
    stage = PipelineStage(
        nn.Linear(WIDTH, WIDTH).cuda(), rank, world, torch.device("cuda", torch.cuda.current_device())
    )
    schedule = Schedule1F1B(stage, 4, loss_fn=lambda out, wanted: (out - wanted).pow(2).mean())
    data = torch.randn(16, WIDTH, device="cuda")
    if rank == 0:
        schedule.step(data)
    else:
        schedule.step(target=data)


for case in (ddp, unused_parameters, fsdp_and_checkpoint, pipeline):
    case()
    print("done", case.__name__, flush=True)
dist.barrier()
dist.destroy_process_group()
sys.exit(0)
