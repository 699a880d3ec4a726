"""The pages that are text: one rank, notes, help."""

from __future__ import annotations

import json

from rich.text import Text

from phantora_runtime.quantities import format_bytes, format_duration
from phantora_tui.header import verdict_text
from phantora_tui.keys import KEYS
from phantora_tui.paint import BAD, COMMUNICATION, COMPUTE, DIM, HOST, IDLE, STRONG, bar
from phantora_tui.snapshot import Snapshot


def rank_page(snapshot: Snapshot, number: int, log: list[str], width: int) -> Text:
    """One rank: state, shares, memory, and the last lines it printed."""
    if number >= len(snapshot.ranks):
        return Text(f"rank {number}: nothing is known yet")
    rank = snapshot.ranks[number]
    node, local = divmod(number, snapshot.gpus_per_node)
    lines = [
        Text.assemble((f"rank {number}", STRONG), f"  node-{node}, GPU {local}  {rank.state}"),
        Text(f"clock {format_duration(rank.h_ns)}, {rank.steps} steps"),
    ]
    wide = max(10, min(40, width - 30))
    for name, share, style in (
        ("compute", rank.compute, COMPUTE), ("communication", rank.communication, COMMUNICATION),
        ("host", rank.host, HOST), ("idle", rank.idle, IDLE),
    ):  # fmt: skip
        lines.append(Text.assemble(f"{name:14}", bar(share, wide, style), f" {share:4.0%}"))
    if snapshot.capacity_bytes:
        share = rank.used_bytes / snapshot.capacity_bytes
        lines.append(Text.assemble(f"{'memory':14}", bar(share, wide, BAD if share > 0.95 else HOST),
                                   f" {format_bytes(rank.used_bytes)}"))  # fmt: skip
    if number == 0 and snapshot.steps:
        step = snapshot.steps[-1]
        parts = (("compute", step.compute_ns), ("communication", step.communication_ns), ("host", step.host_ns),
                 ("idle", step.idle_ns))  # fmt: skip
        made_of = ", ".join(f"{name} {format_duration(part)}" for name, part in parts)
        lines.append(Text(f"step {step.index}: {format_duration(step.duration_ns)} = {made_of}"))
    lines += [Text(""), Text("its output", STRONG), *(Text(line) for line in log)]
    return Text("\n").join(lines)


def notes_page(snapshot: Snapshot) -> Text:
    """Verdict, message, details, notes."""
    lines = [Text.assemble(verdict_text(snapshot), "  ", snapshot.message)]
    for name, detail in snapshot.details.items():
        lines += [Text(""), Text(name, STRONG)]
        lines += [Text(line) for line in json.dumps(detail, indent=2).splitlines()[:400]]
    if snapshot.notes:
        lines += [Text(""), Text("check before trusting this", STRONG)]
        lines += [Text(f"- {note}") for note in snapshot.notes]
    if snapshot.bad_lines:
        lines.append(Text(f"- {snapshot.bad_lines} lines of the event stream could not be read", DIM))
    return Text("\n").join(lines)


def help_page() -> Text:
    """All keys and what they do."""
    lines = [Text("keys", STRONG)]
    for key in KEYS:
        where = "" if len(key.views) > 4 else f"  ({', '.join(key.views)})"
        lines.append(Text.assemble((f"{key.shown:>7}  ", STRONG), f"{key.label:8} {key.text}", (where, DIM)))
    lines += [
        Text(""),
        Text("Shares are of a rank's own virtual time since the last look: compute and communication on its GPU"),
        Text("(they may overlap), host while it worked, idle when none of them did."),
        Text("Mouse: click on a line, on a column's name, on a key below; the wheel scrolls."),
    ]
    return Text("\n").join(lines)
