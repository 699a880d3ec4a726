"""The lines above the tables: where the run stands."""

from __future__ import annotations

from rich.style import Style
from rich.text import Text
from textual.widgets import Static

from phantora_runtime.quantities import format_bytes, format_duration
from phantora_tui.keys import KEYS
from phantora_tui.paint import BAD, DIM, GOOD, NARROW, bar, put, verdict_text
from phantora_tui.snapshot import Snapshot


def tabs(view: str, about: str) -> Text:
    """The line above a view: all views by key, then what is to be said about this one."""
    text = Text(no_wrap=True, overflow="ellipsis")
    for key in KEYS:
        if key.view:
            style = Style(reverse=True, bold=True) if key.view == view else DIM
            text.append(f" {key.shown} {key.label} ", style + Style.from_meta({"@click": f"app.{key.action}"}))
    return text.append(f"  {about}")


class Header(Static):
    """Three lines: what runs, how fast, how much memory is left."""

    def update_from(self, name: str, snapshot: Snapshot, tokens_per_s: float | None, live: bool) -> None:
        """Shows a snapshot."""
        narrow = self.app.size.width < NARROW
        nodes = -(-snapshot.world_size // snapshot.gpus_per_node) if snapshot.world_size else 0
        what = f"{snapshot.world_size} × {snapshot.gpu}" if snapshot.world_size else "waiting for the run"
        if nodes > 1 and not narrow:
            what += f", {nodes} nodes"
        first = Text.assemble((f" {name} ", "reverse"), " ", verdict_text(snapshot), "  ", what)
        if not narrow:
            first.append(f"  {snapshot.clock} clock", DIM)
            first.append("" if live or snapshot.ended else "  (not live)", DIM)
        put(self, Text("\n").join([first, self._speed(snapshot, tokens_per_s), self._memory(snapshot)]))

    def _speed(self, snapshot: Snapshot, tokens_per_s: float | None) -> Text:
        parts = [snapshot.step_text]
        if snapshot.step_ns is not None:
            parts.append(f"{format_duration(snapshot.step_ns)} a step")
        if tokens_per_s is not None:
            parts.append(f"{tokens_per_s:,.0f} tokens/s")
        clocks = [format_duration(snapshot.at_ns), format_duration(snapshot.real_ms * 1e6)]
        if self.app.size.width < NARROW:
            parts.append(f"{clocks[0]} in {clocks[1]}")
        else:
            parts += [f"virtual {clocks[0]}", f"real {clocks[1]}", f"speed ×{snapshot.speed:.2g}"]
        text = Text("  ".join(parts), no_wrap=True)
        text.truncate(max(10, self.app.size.width - 2), overflow="ellipsis")
        return text

    def _memory(self, snapshot: Snapshot) -> Text:
        if not snapshot.capacity_bytes:
            return Text("")
        share = snapshot.peak_bytes / snapshot.capacity_bytes
        left = snapshot.capacity_bytes - snapshot.peak_bytes
        style = BAD if share > 0.95 else GOOD
        text = f" peak {format_bytes(snapshot.peak_bytes)} of {format_bytes(snapshot.capacity_bytes)}"
        return Text.assemble("memory ", bar(share, 16, style), text, f", {format_bytes(left)} left")
