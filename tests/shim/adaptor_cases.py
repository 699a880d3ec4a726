"""Small-tensor snippets for test_adaptor.py. Run as a program under the shim, it prints what each gives on both devices.

Each case gets `d`, the device; what it returns on "cuda" must equal what it returns on "cpu". `random` cases are compared
in their own way: their values are not the CPU's.
"""

import inspect
import json
import sys

import torch
from torch import tensor


class Cases:
    def add(d):
        return tensor([1, 2, 3], device=d) + tensor([4, 5, 6], device=d)

    def add_in_place(d):
        return tensor([1, 2, 3], device=d).add_(1)

    def add_out(d):
        return torch.add(tensor([3.0, 1, 2], device=d), 1, out=torch.empty(3, device=d))

    def out_resized(d):
        return torch.arange(4, out=torch.empty(0, dtype=torch.long, device=d))

    def python_number_promotes(d):
        return tensor([1, 2], dtype=torch.bfloat16, device=d) * 2.5

    def cpu_scalar_tensor(d):
        return tensor([1.0, 2.0], device=d) * torch.tensor(3.0)

    def arange(d):
        return torch.arange(10, device=d) * 2

    def factories(d):
        full, ones = torch.full((3,), 7, device=d), torch.ones(3, device=d)
        return [torch.zeros(3, 4, device=d), full, ones, torch.linspace(0, 1, 5, device=d), torch.eye(3, device=d)]

    def cast(d):
        return torch.arange(5, device=d).to(torch.bfloat16).float()

    def compare(d):
        return (torch.arange(5, device=d) > 2).tolist()

    def reductions(d):
        x = torch.arange(6, device=d).view(2, 3)
        return [x.sum().item(), x.max().item(), x.max(dim=1).indices, x.float().mean(dim=0), x.argmin().item()]

    def cat(d):
        return torch.cat([torch.arange(5, device=d), torch.zeros(3, device=d)])

    def all_finite(d):
        return torch.isfinite(torch.ones(4, device=d)).all().item()

    def not_finite(d):
        return torch.isfinite(tensor([1.0, float("inf")], device=d)).all().item()

    def any_of(d):
        return [(torch.ones(4, device=d) > 2).any().item(), (torch.ones(4, device=d) > 0).any().item()]

    def where(d):
        return torch.where(torch.arange(4, device=d) > 1, torch.ones(4, device=d), tensor(0.0, device=d))

    def index_select(d):
        return torch.arange(12, device=d).view(4, 3).index_select(0, tensor([2, 0], device=d))

    def index_by_tensor(d):
        return torch.arange(12, device=d).view(4, 3)[tensor([2, 0], device=d)]

    def index_by_mask(d):
        x = torch.arange(12, device=d)
        return x[x % 3 == 0]

    def nonzero(d):
        return torch.nonzero(torch.arange(12, device=d) % 5 == 0)

    def set_items(d):
        x = torch.zeros(4, 4, device=d)
        x[1:3, ::2] = 5
        x[0] += 1
        x[tensor([3], device=d)] = 9
        return x

    def bincount(d):
        return torch.bincount(tensor([1, 1, 3], device=d))

    def repeat_interleave(d):
        return torch.repeat_interleave(tensor([3, 1, 2], device=d))

    def sort_and_topk(d):
        x = tensor([3.0, 1.0, 2.0], device=d)
        return [torch.sort(x).values, torch.topk(x, 2).indices, torch.cumsum(x, 0)]

    def equal(d):
        x = torch.arange(5, device=d)
        return [torch.equal(x, torch.arange(5, device=d)), torch.equal(x, torch.zeros_like(x))]

    def allclose(d):
        return torch.allclose(torch.ones(5, device=d), torch.ones(5, device=d))

    def views(d):
        x = (torch.arange(6, device=d).view(2, 3).t() + 1).t()
        return [x, x.expand(2, 2, 3).contiguous(), x[:, 1:].clone(), x.unfold(1, 2, 1) * 2]

    def strided_host_copy(d):
        x = torch.zeros(4, 4, device=d)
        x[:, ::2].copy_(torch.arange(8.0).view(4, 2))
        return x

    def casting_host_copy(d):
        return torch.zeros(4, device=d, dtype=torch.float64).copy_(torch.arange(4))

    def foreach(d):
        xs = [torch.ones(3, device=d), torch.zeros(4, device=d)]
        torch._foreach_add_(xs, 1.5)
        torch._foreach_mul_(xs, [2.0, 3.0])
        torch._foreach_lerp_(xs, [torch.ones(3, device=d), torch.zeros(4, device=d)], 0.5)
        return [*torch._foreach_add(xs, 2), *torch._foreach_norm(xs)]

    def foreach_slow_path(d):
        xs = [torch.ones(3, device=d), torch.zeros(4, dtype=torch.float64, device=d)]
        torch._foreach_add_(xs, 1.5)
        return xs

    def matmul(d):
        return torch.arange(6.0, device=d).view(2, 3) @ torch.arange(6.0, device=d).view(3, 2)

    def gradient(d):
        x = tensor([1.0, 2.0], device=d, requires_grad=True)
        (x * x).sum().backward()
        return x.grad

    def cross_entropy(d):
        torch.manual_seed(0)
        layer = torch.nn.Linear(4, 3).to(d)
        loss = torch.nn.functional.cross_entropy(layer(torch.ones(2, 4, device=d)), tensor([0, 1], device=d))
        loss.backward()
        return [loss.detach(), layer.weight.grad]

    def adamw(d):
        results = []
        for options in ({"foreach": True}, {"fused": True}, {"foreach": False}):
            x = torch.nn.Parameter(tensor([1.0, 2.0], device=d))
            optimizer = torch.optim.AdamW([x], lr=0.1, **options)
            for _ in range(2):
                optimizer.zero_grad()
                (x * x).sum().backward()
                optimizer.step()
            results.append(x.detach())
        return results

    def inside_a_dispatch_mode(d):
        from torch.utils._python_dispatch import TorchDispatchMode

        class Twice(TorchDispatchMode):
            def __torch_dispatch__(self, function, types, args=(), kwargs=None):
                return function(*args, **(kwargs or {}))

        with Twice():
            return torch.ones(3, device=d).add_(2).mul_(3)

    def grad_scaler(d):
        grads = [tensor([2.0, 4.0], device=d), tensor([float("inf")], device=d)]
        found = torch.zeros(1, device=d)
        torch._amp_foreach_non_finite_check_and_unscale_(grads, found, tensor(0.5, device=d))
        return [grads[0], found.item()]

    def freed_memory_is_not_remembered(d):
        torch.full((4096,), 7.0, device=d)
        x = torch.empty(4096, device=d)
        return x.sum().item() if d == "cuda" else 0.0

    def big_tensors_read_zero(d):
        return torch.ones(1 << 20, device=d).sum().item() if d == "cuda" else 0.0

    def known_becomes_unknown(d):
        x = torch.ones(16, device=d)
        big = torch.ones(1 << 20, device=d)
        x.copy_(big.view(16, -1).sum(dim=1))
        return x.tolist() if d == "cuda" else [0.0] * 16

    def random_follows_the_seed(d):
        torch.manual_seed(5)
        first, second = torch.rand(4, device=d), torch.rand(4, device=d)
        torch.manual_seed(5)
        return [torch.equal(first, torch.rand(4, device=d)), torch.equal(first, second), bool((first < 1).all())]

    def random_leaves_the_cpu_alone(d):
        torch.manual_seed(5)
        torch.nn.functional.dropout(torch.ones(4, device="cuda"))
        return torch.rand(3)

    def random_generator(d):
        generator = torch.Generator(device=d).manual_seed(3)
        first = torch.randint(0, 100, (8,), device=d, generator=generator)
        generator.manual_seed(3)
        again = torch.randint(0, 100, (8,), device=d, generator=generator)
        return [torch.equal(first, again), sorted(torch.randperm(6, device=d).tolist()), bool((first != 0).any())]


def names():
    return [name for name, value in vars(Cases).items() if inspect.isfunction(value)]


def plain(value):
    if isinstance(value, torch.Tensor):
        return {"dtype": str(value.dtype), "values": value.cpu().double().tolist()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value


def main():
    from phantora_runtime import adaptor

    assert adaptor.load(), "the adaptor did not load"
    for name in names():
        line = {"name": name}
        for device in ("cpu", "cuda"):
            try:
                line[device] = plain(getattr(Cases, name)(device))
            except Exception as error:
                line[device] = repr(error)
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    sys.exit(main())
