"""Printing a tensor counts its elements with a kernel and allocates that many indices: what the count's memory held
before must not be taken for it. Run by test_reused_blocks.py.
"""

import torch

ones = torch.ones(1, device="cuda")
print(ones)
print("PEAK", torch.cuda.max_memory_allocated())
