"""Every collective with real values: each rank checks what it got. Run with `phantora run`, two ranks or more."""

import os
import sys

import torch
import torch.distributed as dist

torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl")
rank, world = dist.get_rank(), dist.get_world_size()
failures = []


def check(name, got, wanted):
    got = got.cpu() if isinstance(got, torch.Tensor) else got
    same = torch.equal(got, wanted) if isinstance(wanted, torch.Tensor) else got == wanted
    if not same:
        failures.append(f"{name}: {got} instead of {wanted}")


def mine(r, n=4, dtype=torch.float32):
    return torch.tensor([r + 1 + 2 * i for i in range(n)]).to(dtype)


def on_gpu(t):
    return t.cuda()


every = [mine(r) for r in range(world)]
for dtype in (
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.int8,
    torch.uint8,
    torch.int32,
    torch.int64,
):
    columns = torch.stack([mine(r, dtype=dtype) for r in range(world)]).double()
    for op, wanted in (
        (dist.ReduceOp.SUM, columns.sum(0)),
        (dist.ReduceOp.MAX, columns.amax(0)),
        (dist.ReduceOp.MIN, columns.amin(0)),
        (dist.ReduceOp.PRODUCT, columns.prod(0)),
    ):
        if op == dist.ReduceOp.PRODUCT and dtype in (torch.int8, torch.uint8, torch.bfloat16):
            continue
        x = on_gpu(mine(rank, dtype=dtype))
        dist.all_reduce(x, op)
        check(f"all_reduce {dtype} {op}", x, wanted.to(dtype))
x = on_gpu(mine(rank))
dist.all_reduce(x, dist.ReduceOp.AVG)
check("avg", x, torch.stack(every).mean(0))
x = on_gpu(torch.tensor([rank == 1, False, True]))
dist.all_reduce(x, dist.ReduceOp.MAX)
check("bool", x, torch.tensor([world > 1, False, True]))
x = on_gpu(mine(rank))
dist.all_reduce(x, dist._make_nccl_premul_sum(0.5))
check("premul", x, torch.stack(every).sum(0) * 0.5)
factor = on_gpu(torch.tensor([0.25]))
x = on_gpu(mine(rank))
dist.all_reduce(x, dist._make_nccl_premul_sum(factor))
check("premul device", x, torch.stack(every).sum(0) * 0.25)

out = torch.empty(4 * world, device="cuda")
dist.all_gather_into_tensor(out, on_gpu(mine(rank)))
check("all_gather", out, torch.cat(every))
out = torch.zeros(4 * world).cuda()
part = out[4 * rank : 4 * rank + 4]
part.copy_(mine(rank))
dist.all_gather_into_tensor(out, part)
check("all_gather in place", out, torch.cat(every))
parts = [torch.empty(4, device="cuda") for _ in range(world)]
dist.all_gather(parts, on_gpu(mine(rank)))
for r in range(world):
    check("all_gather list", parts[r], every[r])
big = torch.cat([mine(rank) + 10 * r for r in range(world)])
wanted = torch.stack([mine(r) + 10 * rank for r in range(world)]).sum(0)
out = torch.empty(4, device="cuda")
dist.reduce_scatter_tensor(out, on_gpu(big))
check("reduce_scatter", out, wanted)
x = on_gpu(big)
dist.reduce_scatter_tensor(x[4 * rank : 4 * rank + 4], x)
check("reduce_scatter in place", x[4 * rank : 4 * rank + 4], wanted)
for root in range(world):
    x = on_gpu(mine(rank))
    dist.broadcast(x, root)
    check("broadcast", x, mine(root))
    x = on_gpu(mine(rank))
    dist.reduce(x, root)
    if rank == root:
        check("reduce", x, torch.stack(every).sum(0))
    parts = [torch.empty(4, device="cuda") for _ in range(world)] if rank == root else None
    dist.gather(on_gpu(mine(rank)), parts, root)
    if rank == root:
        for r in range(world):
            check("gather", parts[r], every[r])
    out = torch.empty(4, device="cuda")
    dist.scatter(out, [on_gpu(mine(r) * 3) for r in range(world)] if rank == root else None, root)
    check("scatter", out, mine(rank) * 3)
out = torch.empty(4 * world, device="cuda")
dist.all_to_all_single(out, on_gpu(torch.cat([mine(rank) * 10 + r for r in range(world)])))
check("all_to_all", out, torch.cat([mine(r) * 10 + rank for r in range(world)]))
sizes = [r + 1 for r in range(world)]
out = torch.empty(world * (rank + 1), device="cuda")
dist.all_to_all_single(
    out, on_gpu(torch.cat([torch.full((s,), float(rank * 100 + s)) for s in sizes])), [rank + 1] * world, sizes
)
check("all_to_all uneven", out, torch.cat([torch.full((rank + 1,), float(r * 100 + rank + 1)) for r in range(world)]))
# ring of sends and receives, grouped and not
left, right = (rank - 1) % world, (rank + 1) % world
got = torch.empty(4, device="cuda")
sent = on_gpu(mine(rank))
for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, sent, right), dist.P2POp(dist.irecv, got, left)]):
    work.wait()
check("ring", got, mine(left))
got = torch.empty(4, device="cuda")
if rank % 2 == 0 and right != rank:
    if rank + 1 < world:
        dist.send(sent, rank + 1)
else:
    dist.recv(got, rank - 1)
    check("recv", got, mine(rank - 1))
# a chain: results feed the next collective without the host waiting
x = on_gpu(mine(rank))
y = torch.empty(4 * world, device="cuda")
dist.all_reduce(x)
dist.all_gather_into_tensor(y, x)
dist.all_reduce(y)
check("chain", y, torch.cat([torch.stack(every).sum(0)] * world) * world)
# known and unknown parts
x = torch.empty(8, device="cuda")
x[:4].copy_(mine(rank))
out = torch.empty(8 * world, device="cuda")
dist.all_gather_into_tensor(out, x)
check("partly known", out.view(world, 8)[:, :4].contiguous(), torch.stack(every))
# objects
objs = [None] * world
dist.all_gather_object(objs, {"rank": rank, "text": "x" * (100 * rank)})
check(
    "all_gather_object",
    [o["rank"] for o in objs] + [len(o["text"]) for o in objs],
    list(range(world)) + [100 * r for r in range(world)],
)
objs = [{"a": 1}, "zz", [1, 2]] if rank == 0 else [None] * 3
dist.broadcast_object_list(objs, 0)
check("broadcast_object_list", objs, [{"a": 1}, "zz", [1, 2]])
got = [None]
dist.scatter_object_list(got, [f"to {r}" for r in range(world)] if rank == 0 else None, 0)
check("scatter_object_list", got, [f"to {rank}"])
objs = [None] * world if rank == 0 else None
dist.gather_object(rank * 7, objs, 0)
if rank == 0:
    check("gather_object", objs, [7 * r for r in range(world)])
# sub-groups: split and new
group = dist.new_group(list(range(0, world, 2)))
if rank % 2 == 0:
    x = on_gpu(mine(rank))
    dist.all_reduce(x, group=group)
    check("sub-group", x, torch.stack(every[::2]).sum(0))
# large payloads are unknown and read as zeros
x = on_gpu(torch.ones(1 << 16))
dist.all_reduce(x)
check("large", x, torch.zeros(1 << 16))
# A receive whose sender waits for a later message of ours: reading something else must not wait for it.
first, second = dist.new_group([0, 1]), dist.new_group([0, 1])
for group in (first, second):  # communicators are made, together, at first use
    if rank == 0:
        dist.send(on_gpu(mine(0)), 1, group=group)
    elif rank == 1:
        dist.recv(torch.empty(4, device="cuda"), 0, group=group)
if rank == 0:
    got = torch.empty(4, device="cuda")
    work = dist.irecv(got, 1, group=first)
    check("read past a pending receive", torch.ones(1).cuda().item(), 1.0)
    dist.send(on_gpu(mine(5)), 1, group=second)
    work.wait()
    check("answer", got, mine(5))
elif rank == 1:
    got = torch.empty(4, device="cuda")
    dist.recv(got, 0, group=second)
    dist.send(got, 0, group=first)
# A contribution that depends on an earlier result must leave although its rank waits in a store.
store = dist.distributed_c10d._get_default_store()
x = on_gpu(mine(rank))
dist.all_reduce(x)
out = torch.empty(4 * world, device="cuda")
dist.all_gather_into_tensor(out, x)
if rank == 0:
    check("store", store.get("gathered"), b"yes")
if rank == 1:
    check("gathered", out, torch.cat([torch.stack(every).sum(0)] * world))
    store.set("gathered", "yes")
dist.barrier()
print("\n".join(failures) if failures else "PASS", flush=True)
dist.destroy_process_group()
sys.exit(1 if failures else 0)
