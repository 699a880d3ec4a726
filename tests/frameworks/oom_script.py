"""Runs out of device memory: once caught, then not. Run by test_closed_forms.py."""

import torch

try:
    torch.empty(200 * 2**30, dtype=torch.uint8, device="cuda")
except torch.OutOfMemoryError as error:
    print("caught", error, flush=True)
model = torch.nn.Linear(1024, 1024).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=1)
model(torch.ones(4, 1024, device="cuda")).sum().backward()
optimizer.step()
kept = []
while True:
    model(torch.ones(4, 1024, device="cuda"))
    kept.append(torch.empty(2**30, dtype=torch.uint8, device="cuda"))
    print("holds", len(kept), flush=True)
