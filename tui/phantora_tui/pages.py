"""The pages that are text: one rank, notes, help."""

from __future__ import annotations

import textwrap
from itertools import zip_longest
from typing import Any

from rich.text import Text

from phantora_runtime.quantities import format_bytes, format_duration
from phantora_tui.keys import KEYS, TABLES, VIEWS
from phantora_tui.paint import (
    COMMUNICATION,
    COMPUTE,
    DIM,
    HOST,
    IDLE,
    STRONG,
    bar,
    counted,
    stacked_bar,
    state_cell,
    verdict_text,
)
from phantora_tui.snapshot import Rank, RankDetails, Snapshot

_HELP_INDENT = 18


def rank_page(snapshot: Snapshot, number: int, log: list[str], width: int) -> Text:
    """One rank: state, shares, memory by kind, its last step by stream, and the last lines it printed."""
    if number >= len(snapshot.ranks):
        return Text(f"rank {number}: nothing is known yet")
    rank = snapshot.ranks[number]
    details = snapshot.rank_details[number] if number < len(snapshot.rank_details) else None
    node, local = divmod(number, snapshot.gpus_per_node)
    state = state_cell(rank.state)
    head = f"  node-{node}, GPU {local}  clock {format_duration(rank.h_ns)}, {counted(rank.steps, 'step')}"
    lines = [
        Text.assemble((f"rank {number}", STRONG), head, "  ", *(state if isinstance(state, tuple) else (state,))),
        Text(""),
        *_shares_and_memory(snapshot, rank, details, max(6, min(30, width // 2 - 28))),
    ]
    if details is not None and details.reserved_peak_bytes:
        reserved, tensors = format_bytes(details.reserved_peak_bytes), format_bytes(details.allocated_peak_bytes)
        lines.append(Text(f"torch reserved {reserved} at most, and had at most {tensors} in tensors", DIM))
    if details is not None and details.step_ns:
        lines += [Text(""), *_streams(details, local, max(8, min(40, width - 62)))]
    lines += [Text(""), Text("its output", STRONG), *(Text(line) for line in log)]
    return Text("\n").join(lines)


def _shares_and_memory(snapshot: Snapshot, rank: Rank, details: RankDetails | None, bars: int) -> list[Text]:
    """Two blocks side by side: what its time went to, and what its memory held when it held most."""
    left = [Text.assemble((f"{'time':{bars + 19}}", STRONG))]
    for name, share, style in (
        ("compute", rank.compute, COMPUTE), ("communication", rank.communication, COMMUNICATION),
        ("host", rank.host, HOST), ("idle", rank.idle, IDLE),
    ):  # fmt: skip
        left.append(Text.assemble(f"{name:14}", bar(share, bars, style), f"{share:5.0%}"))
    right = [Text.assemble(("memory", STRONG), f", {format_bytes(rank.used_bytes)} held")]
    if details is not None and details.peak_bytes:
        right = [Text.assemble(("memory", STRONG), f" at its peak, {format_bytes(details.peak_bytes)}")]
        for name, size, style in (
            ("allocations", details.allocations_bytes, COMPUTE), ("context", details.context_bytes, HOST),
            ("NCCL", details.communicator_bytes, COMMUNICATION), ("libraries", details.library_bytes, IDLE),
        ):  # fmt: skip
            share = size / max(snapshot.capacity_bytes, details.peak_bytes)
            right.append(Text.assemble(f"{name:12}", bar(share, bars, style), f"{format_bytes(size):>11}"))
    return [Text("  ").join(pair) for pair in zip_longest(left, right, fillvalue=Text(""))]


def _streams(details: RankDetails, local: int, bars: int) -> list[Text]:
    """The last step: a line a stream, its bar the part of the step in which the stream was busy."""
    title = f"last step, {format_duration(details.step_ns)}"
    names = f"{'compute':>10} {'communication':>14} {'late peers':>11} {'ops':>6}"
    lines = [Text.assemble((f"{title:{bars + 15}}", STRONG), (names, DIM))]
    for one in details.streams:
        name = f"stream {one.stream}" if one.stream else "default"
        if one.device != local:
            name = f"GPU {one.device} {name}"
        spans = (one.compute_ns, one.communication_ns, one.late_ns)
        compute, communication, late = (format_duration(span) if span else "-" for span in spans)
        busy = stacked_bar((one.compute_ns / details.step_ns, one.communication_ns / details.step_ns), bars)
        times = f"{compute:>10} {communication:>14} {late:>11} {one.ops:>6}"
        lines.append(Text.assemble(f"{name:14.14} ", busy, times))
    return lines


def notes_page(snapshot: Snapshot) -> Text:
    """Verdict, message, details, notes."""
    lines = [Text.assemble(verdict_text(snapshot), "  ", snapshot.message)]
    for name, detail in snapshot.details.items():
        lines += [Text(""), Text(name, STRONG)]
        lines += [Text(line) for line in _outline(detail)[:400]]
    if snapshot.notes:
        lines += [Text(""), Text("check before trusting this", STRONG)]
        lines += [Text(f"- {note}") for note in snapshot.notes]
    if snapshot.bad_lines:
        lines.append(Text(f"- {snapshot.bad_lines} lines of the event stream could not be read", DIM))
    return Text("\n").join(lines)


def _outline(value: Any, name: str = "", indent: str = "") -> list[str]:
    """Nested data as indented lines, without brackets; times and sizes with their units."""
    if isinstance(value, list) and not any(isinstance(one, (dict, list)) for one in value):
        value = ", ".join(map(str, value)) or "none"
    elif isinstance(value, int) and name.endswith("_ns"):
        name, value = name.removesuffix("_ns"), format_duration(value)
    elif isinstance(value, int) and name.endswith("_bytes"):
        name, value = name.removesuffix("_bytes"), format_bytes(value)
    label = f"{indent}{name.replace('_', ' ')}:" if name else ""
    lines = [label] if name else []
    if isinstance(value, dict):
        for key, one in value.items():
            lines += _outline(one, str(key), indent + "  " * bool(name))
    elif isinstance(value, list):
        for one in value:
            first, *rest = _outline(one) or [""]
            lines += [f"{indent}  - {first}", *(f"{indent}    {line}" for line in rest)]
    else:
        first, *rest = str("-" if value is None else value).splitlines() or [""]
        lines = [f"{label} {first}" if name else first, *(f"{indent}  {line}" for line in rest)]
    return lines


def help_page(width: int) -> Text:
    """All keys and what they do."""
    lines = [Text("keys", STRONG)]
    for key in KEYS:
        where = {VIEWS: "", TABLES: " (tables)"}.get(key.views, f" ({', '.join(key.views)})")
        first, *rest = textwrap.wrap(key.text + where, max(20, width - _HELP_INDENT - 4))
        lines.append(Text.assemble((f"{key.shown:>7}  ", STRONG), f"{key.label:8} {first}"))
        lines += [Text(" " * _HELP_INDENT + line) for line in rest]
    lines += [
        Text(""),
        Text(
            "Shares are of a rank's own virtual time since the last look: compute and communication on its GPU (they "
            "may overlap), host while it worked, idle when none of them did. Late peers: the part of a stream's "
            "communication before the last rank was there."
        ),
        Text("Mouse: click on a line, on a column's name, on a view's name, on a key below; the wheel scrolls."),
    ]
    return Text("\n").join(lines)
