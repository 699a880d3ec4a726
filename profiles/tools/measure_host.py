#!/usr/bin/env python3
"""Measures the CPU time of torch's host code on this machine, for a host profile.

    PHANTORA_NULL=1 LD_PRELOAD=libphantora_shim.so LD_LIBRARY_PATH=stubs python measure_host.py [--repeat 7]
        [--alone] [--json FILE]

The shim in null mode answers every GPU call at once and keeps no record, so that what is left is torch's own work: the
dispatcher, autograd, the caching allocator, the optimizer's Python. Process CPU time is taken, the lowest of several
repeats of a warm loop. On a busy machine that still rises (cold caches): --alone keeps one CPU for this process while
it measures (real-time scheduling; needs the right to), so use it wherever other work cannot be stopped.

* `op`: CPU time of whole training steps of a Llama-like model (forward, backward, AdamW) over the number of ops that
  torch's RecordFunction reports, nested ones included: that is what the adaptor charges. The shim's own share, about
  0.1 us a launch, is in it.
* Other classes: a loop over the shortest Python call that makes one such call, less the same loop's own cost. What the
  CUDA driver itself would add cannot be measured without a GPU: it stands in DRIVER_NS, with its source, and is added.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

# CPU time inside the real driver a call, not measured here; see hosts/reference.toml for what each rests on.
DRIVER_NS = {
    "launch": 2000,
    "gemm": 3000,
    "library": 3000,
    "memcpy": 2500,
    "memset": 2000,
    "eventrecord": 500,
    "streamwait": 400,
    "sync": 2000,
    "query": 300,
    "collective": 8000,
}


def cpu_model() -> str:
    """Returns the processor's name, family and model."""
    fields = {}
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        name, _, value = line.partition(":")
        fields.setdefault(name.strip(), value.strip())
    return (
        f"{fields.get('model name', platform.machine())} (family {fields.get('cpu family', '?')}, model "
        f"{fields.get('model', '?')}), {os.cpu_count()} CPUs"
    )


def per_call_ns(body: Callable[[int], Any], count: int, repeat: int, settle: Callable[[], Any]) -> float:
    """Returns the lowest process CPU time a call of `repeat` runs of `body(count)`."""
    body(max(count // 10, 1))
    settle()
    best = float("inf")
    for _ in range(repeat):
        begin = time.process_time_ns()
        body(count)
        best = min(best, (time.process_time_ns() - begin) / count)
        settle()
    return best


def llama(torch: Any, width: int, heads: int, layers: int) -> Any:
    """Returns a plain Llama-like model in bf16 on the device."""
    nn, functional = torch.nn, torch.nn.functional

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention_norm, self.mlp_norm = nn.RMSNorm(width), nn.RMSNorm(width)
            self.q, self.k, self.v, self.o = (nn.Linear(width, width, bias=False) for _ in range(4))
            self.gate, self.up = (nn.Linear(width, 3 * width, bias=False) for _ in range(2))
            self.down = nn.Linear(3 * width, width, bias=False)

        def forward(self, x: Any, cos: Any, sin: Any) -> Any:
            y = self.attention_norm(x)
            shape = (*x.shape[:2], heads, width // heads)
            q, k, v = (linear(y).view(shape).transpose(1, 2) for linear in (self.q, self.k, self.v))
            q, k = (t * cos + torch.roll(t, 1, -1) * sin for t in (q, k))
            y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.o(y.transpose(1, 2).reshape(x.shape))
            y = self.mlp_norm(x)
            return x + self.down(functional.silu(self.gate(y)) * self.up(y))

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(32000, width)
            self.blocks = nn.ModuleList(Block() for _ in range(layers))
            self.norm, self.head = nn.RMSNorm(width), nn.Linear(width, 32000, bias=False)

        def forward(self, tokens: Any, cos: Any, sin: Any) -> Any:
            x = self.embedding(tokens)
            for block in self.blocks:
                x = block(x, cos, sin)
            return self.head(self.norm(x))

    with torch.device("meta"):
        model = Model().to(torch.bfloat16)
    return model.to_empty(device="cuda")


def measure_op(torch: Any, repeat: int) -> dict[str, Any]:
    """Returns the CPU time of a training step, its ops, and the time an op."""
    from torch.profiler import ProfilerActivity, profile

    width, heads, layers, length = 4096, 32, 32, 2048
    model = llama(torch, width, heads, layers)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    tokens = torch.empty(1, length, dtype=torch.int64, device="cuda")
    cos = torch.empty(1, 1, length, width // heads, dtype=torch.bfloat16, device="cuda")
    sin = torch.empty_like(cos)

    def forward() -> Any:
        logits = model(tokens, cos, sin)
        return torch.nn.functional.cross_entropy(logits.view(-1, 32000), tokens.view(-1))

    def step() -> None:
        forward().backward()
        optimizer.step()
        optimizer.zero_grad()

    for _ in range(3):
        step()
    torch.cuda.synchronize()
    gc.collect()
    gc.freeze()
    # Phase by phase, the lowest of each: on a busy machine short spans are more often undisturbed than long ones.
    phases = {"forward": float("inf"), "backward": float("inf"), "optimizer": float("inf")}
    for _ in range(4 * repeat):
        marks = [time.process_time_ns()]
        loss = forward()
        marks.append(time.process_time_ns())
        loss.backward()
        marks.append(time.process_time_ns())
        optimizer.step()
        optimizer.zero_grad()
        marks.append(time.process_time_ns())
        del loss
        for name, begin, end in zip(tuple(phases), marks[:-1], marks[1:], strict=True):
            phases[name] = min(phases[name], end - begin)
    best = sum(phases.values())
    with profile(activities=[ProfilerActivity.CPU], acc_events=True) as recorded:
        step()
    names: dict[str, int] = {}
    for event in recorded.events():
        if event.scope == 0:  # FUNCTION: what the adaptor observes
            names[event.name] = names.get(event.name, 0) + 1
    ops = sum(names.values())
    return {
        "step_ns": best,
        "phases_ns": phases,
        "ops": ops,
        "op_ns": best / ops,
        "most_frequent": dict(sorted(names.items(), key=lambda item: -item[1])[:12]),
    }


def measure(repeat: int, alone: bool) -> dict[str, Any]:
    """Returns the measured classes in nanoseconds a call, and how the op's was found."""
    import torch

    torch.manual_seed(0)
    settle = torch.cuda.synchronize
    if alone:
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(50))
    a = torch.empty(256, 256, device="cuda")
    b = torch.empty_like(a)
    out = torch.empty_like(a)
    on_host = torch.empty(1 << 21, pin_memory=True)
    on_device = torch.empty(1 << 21, device="cuda")
    stream, event = torch.cuda.Stream(), torch.cuda.Event()
    event.record()

    def loop(call: Callable[[], Any]) -> Callable[[int], None]:
        def body(count: int) -> None:
            for _ in range(count):
                call()

        return body

    def call(function: Callable[[], Any], count: int = 2000) -> float:
        return per_call_ns(loop(function), count, repeat, settle)

    nothing = call(lambda: None)
    raw = {
        "view (one op, no launch)": call(lambda: a.view(-1)) - nothing,
        "add_ (one op, one launch)": call(lambda: a.add_(b)) - nothing,
        "zero_ (one op and a memset or fill)": call(lambda: a.zero_()) - nothing,
        "mm into out (one op, one product)": call(lambda: torch.mm(a, b, out=out)) - nothing,
        "empty and free (allocator hit)": call(lambda: torch.empty(1024, device="cuda")) - nothing,
        "copy_ to the device, pinned": call(lambda: on_device.copy_(on_host, non_blocking=True), 200) - nothing,
        "event record": call(lambda: event.record(stream)) - nothing,
        "stream wait": call(lambda: stream.wait_event(event)) - nothing,
        "event query": call(event.query) - nothing,
        "stream synchronize": call(stream.synchronize) - nothing,
        "pinned 1 MiB": call(lambda: torch.empty(1 << 18, pin_memory=True), 100) - nothing,
    }
    foreach = [torch.empty(65536 * 4, device="cuda") for _ in range(512)]
    launches_foreach = 512 * 4 / 320
    with torch.no_grad():
        raw["_foreach_add_ (one op, about 6.4 launches)"] = (
            call(lambda: torch._foreach_add_(foreach, 1.0), 50) - nothing
        )
    op = measure_op(torch, repeat)
    return {
        "cpu_model": cpu_model(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "raw_ns": {name: round(value) for name, value in raw.items()},
        "launches_of_foreach": launches_foreach,
        "training_step": {name: round(value) if isinstance(value, float) else value for name, value in op.items()},
        "driver_ns": DRIVER_NS,
    }


def main() -> int:
    """Measures and prints JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--repeat", type=int, default=7)
    parser.add_argument("--alone", action="store_true")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if os.environ.get("PHANTORA_NULL") != "1":
        print("measure_host: run it under the shim with PHANTORA_NULL=1 (see the top of the file)", file=sys.stderr)
        return 2
    text = json.dumps(measure(options.repeat, options.alone), indent=2)
    print(text)
    if options.json:
        options.json.write_text(text + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
