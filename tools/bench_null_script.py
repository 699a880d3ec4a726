"""examples/llama_fsdp.py, leaving a file $BENCH_MARKS/RANK-STEP at the end of each step: the CPU time used so far.

CPU-time clocks are real in a rank, and so is the date that the kernel gives a file.
"""

import os
import sys
import time
from pathlib import Path

# Named here, so that they are imported once for all ranks.
from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "examples"))
import llama_fsdp

_marks = Path(os.environ["BENCH_MARKS"])
_rank = os.environ["RANK"]
_step = 0


def _mark(_optimizer: Optimizer, _arguments: object, _named: object) -> None:
    global _step
    part = _marks / f".{_rank}-{_step}"
    part.write_text(str(time.process_time_ns()))
    part.rename(_marks / f"{_rank}-{_step}")  # whoever waits for it finds it whole
    _step += 1


register_optimizer_step_post_hook(_mark)
llama_fsdp.main()
