"""Runs a training script as it is and says, on rank 0, how many bytes of device memory parameters, gradients and optimizer take.

phantora run tests/frameworks/memory_probe.py -- examples/SCRIPT [its arguments]
"""

import runpy
import sys

import torch
from torch.nn.parallel import DistributedDataParallel

_said = set()


def say(name, value):
    rank = torch.distributed.get_rank() if torch.distributed.is_initialized() else 0
    if rank == 0 and name not in _said:
        _said.add(name)
        print(f"PROBE {name} {value}", flush=True)


def before(owner, name, function):
    original = getattr(owner, name)

    def wrapped(*arguments, **options):
        function(*arguments)
        return original(*arguments, **options)

    setattr(owner, name, wrapped)


def around(owner, name, report):
    original = getattr(owner, name)

    def wrapped(self, *arguments, **options):
        start = torch.cuda.memory_allocated()
        has_gradients = any(p.grad is not None for group in self.param_groups for p in group["params"])
        result = original(self, *arguments, **options)
        if has_gradients:
            say(report, abs(torch.cuda.memory_allocated() - start))
        return result

    setattr(owner, name, wrapped)


def main():
    before(DistributedDataParallel, "__init__", lambda *_: say("parameters", torch.cuda.memory_allocated()))
    before(torch.optim.AdamW, "__init__", lambda *_: say("parameters", torch.cuda.memory_allocated()))
    around(torch.optim.AdamW, "step", "optimizer")
    around(torch.optim.AdamW, "zero_grad", "gradients")
    del sys.argv[0]
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
