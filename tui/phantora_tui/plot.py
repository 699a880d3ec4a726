"""Step times: a column a step, and in it what the step is made of."""

from __future__ import annotations

from rich.style import Style
from rich.text import Text
from textual.widgets import Static

from phantora_runtime.quantities import format_duration
from phantora_tui.paint import DIM, NARROW, PARTS
from phantora_tui.snapshot import Snapshot, Step

HEIGHT = 6
_AXIS = 10


class StepPlot(Static):
    """The last steps that fit."""

    _shown: tuple[object, ...] = ()

    def update_from(self, snapshot: Snapshot) -> None:
        """Shows a snapshot."""
        shown = (snapshot.steps, snapshot.warmup, self.app.size.width)
        if shown != self._shown:
            self._shown = shown
            self.update(draw(snapshot, self.app.size.width), layout=False)


def draw(snapshot: Snapshot, width: int) -> Text:
    """The plot as text of HEIGHT + 1 lines."""
    per_step = 3 if width >= NARROW else 2
    steps = snapshot.steps[-max(1, (width - _AXIS - 1) // per_step) :]
    if not steps:
        return Text("\n" * (HEIGHT // 2) + "no step has ended yet", DIM)
    # Warm-up steps may stick out.
    top = max(step.duration_ns for step in snapshot.steady) or 1
    columns = [_column(step, top) for step in steps]
    lines = []
    for row in reversed(range(HEIGHT)):
        label = format_duration(top) if row == HEIGHT - 1 else ("0" if row == 0 else "")
        line = Text(f"{label:>{_AXIS - 2}} │", DIM)
        for column in columns:
            sign, style = column[row]
            line.append(sign * (per_step - 1) + " ", style)
        lines.append(line)
    legend = Text(" " * _AXIS)
    for name, sign, style in PARTS:
        legend.append(f"{sign} {name}  ", style)
    return Text("\n").join([*lines, legend])


def _column(step: Step, top: int) -> list[tuple[str, Style]]:
    """Cells from the bottom up; a cell shows the part that its middle lies in."""
    parts = (step.compute_ns, step.communication_ns, step.host_ns, step.idle_ns)
    cells = []
    for row in range(HEIGHT):
        middle, edge, cell = (row + 0.5) * top / HEIGHT, 0, (" ", DIM)
        for (_, sign, style), part in zip(PARTS, parts, strict=True):
            if edge <= middle < edge + part:
                cell = (sign, style)
            edge += part
        cells.append(cell)
    return cells
