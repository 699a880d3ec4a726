"""Where training steps begin and end, seen from torch's own hooks; no script needs a marker.

A step is a group of optimizer steps with no backward between them. Step 0 starts with the first forward. With
`--steps K` the rank ends where step K+1 would begin: at the first forward or backward after K such groups.
"""

from __future__ import annotations

import sys
from typing import Any

from phantora_runtime import bridge, finish
from phantora_runtime.bridge import Mark


class StepCounter:
    """The rule alone, without torch: which marks to set, and when to stop."""

    def __init__(self, limit: int | None) -> None:
        self.limit = limit
        self.finished = 0
        self.in_backward = False
        self.backward_since_step = False
        self.forward_seen = False
        self.after_step = False

    def forward(self) -> bool:
        """A module is called. Returns True when the rank must stop here."""
        self.forward_seen = True
        self.after_step = False
        return self._reached()

    def backward(self) -> bool:
        """A backward pass begins. Returns True when the rank must stop here."""
        self.backward_since_step = True
        self.after_step = False
        return self._reached()

    def optimizer_step(self) -> int:
        """An optimizer step has returned. Returns the index of the step it belongs to."""
        if self.backward_since_step or self.finished == 0:
            self.finished += 1
        self.backward_since_step = False
        self.after_step = True
        return self.finished - 1

    def _reached(self) -> bool:
        return self.limit is not None and self.finished >= self.limit

    def position(self) -> tuple[int, str]:
        """Returns the step in progress and its phase: `setup`, `forward`, `backward` or `optimizer`."""
        if not self.forward_seen and not self.backward_since_step and self.finished == 0:
            return 0, "setup"
        if self.in_backward:
            return self.finished, "backward"
        if self.after_step:
            return self.finished, "between steps"
        return self.finished, "optimizer" if self.backward_since_step else "forward"


_counter = StepCounter(None)
_forward_hook: Any = None


def install(limit: int | None) -> None:
    """Hooks torch, which must be imported. Called once in the zygote; ranks inherit it."""
    global _counter
    _counter = StepCounter(limit)
    torch = sys.modules["torch"]
    sys.modules["torch.optim.optimizer"].register_optimizer_step_post_hook(_after_optimizer_step)
    _watch_forward()
    engine = torch.autograd.Variable._execution_engine
    watched = type("ImperativeEngine", (type(engine),), {"run_backward": _run_backward})
    torch.autograd.Variable._execution_engine = watched()


def position() -> tuple[int, str]:
    """Returns the step in progress and its phase."""
    return _counter.position()


def _watch_forward() -> None:
    """The global hook is only there while it is needed: it slows every module call and disturbs torch.compile."""
    global _forward_hook
    if _forward_hook is None:
        module = sys.modules["torch.nn.modules.module"]
        _forward_hook = module.register_module_forward_pre_hook(_before_forward)


def _before_forward(module: Any, _inputs: Any) -> None:
    global _forward_hook
    first = not _counter.forward_seen
    # After the last step an evaluation may follow before the script ends: it still belongs to that step.
    if _counter.finished and not (module.training and sys.modules["torch"].is_grad_enabled()):
        return
    if _forward_hook is not None:
        _forward_hook.remove()
        _forward_hook = None
    if _counter.forward():
        finish.stop_at_step()
    if first:
        bridge.mark(Mark.FIRST_FORWARD)


def _run_backward(self: Any, *arguments: Any, **named: Any) -> Any:
    fresh = not _counter.backward_since_step
    if _counter.backward():
        finish.stop_at_step()
    if fresh:
        bridge.mark(Mark.BACKWARD, _counter.finished)
    nested, _counter.in_backward = _counter.in_backward, True
    try:
        return super(type(self), self).run_backward(*arguments, **named)
    finally:
        if sys.exc_info()[0] is None:
            _counter.in_backward = nested


def _after_optimizer_step(_optimizer: Any, _arguments: Any, _named: Any) -> None:
    index = _counter.optimizer_step()
    bridge.mark(Mark.OPTIMIZER_STEP, index)
    _watch_forward()
