"""Products of known sizes, for test_cublas.py. Run with `phantora run`, one GPU."""

import torch

a = torch.empty(48, 24, dtype=torch.bfloat16, device="cuda")
b = torch.empty(24, 40, dtype=torch.bfloat16, device="cuda")
a @ b
torch.mm(a.float(), b.float())
torch.bmm(torch.empty(5, 6, 7, device="cuda"), torch.empty(5, 7, 8, device="cuda"))
torch.mm(a, torch.empty(40, 24, dtype=torch.bfloat16, device="cuda").t())
f = torch.empty(32, 64, device="cuda", dtype=torch.float8_e4m3fn)
one = torch.ones((), device="cuda")
torch._scaled_mm(
    f, torch.empty(16, 64, device="cuda", dtype=torch.float8_e4m3fn).t(), one, one, out_dtype=torch.bfloat16
)
torch.mv(a.float(), b.float()[:, 0].contiguous())
torch.cuda.synchronize()
