"""The tables: from a snapshot to columns and rows. A row carries its sort keys beside what is shown."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rich.text import Text

from phantora_runtime.quantities import format_bytes, format_duration
from phantora_tui.paint import BAD, COMMUNICATION, COMPUTE, HOST, IDLE, share_cell, state_text
from phantora_tui.snapshot import Rank, Snapshot
from phantora_tui.table import Column, Row

Line = tuple[Row, tuple[Any, ...]]


@dataclass(frozen=True)
class View:
    """One table.

    Attributes:
        columns: Its columns.
        lines: Cells and sort keys of all lines.
        sort: The column it is sorted by at first.
        descending: The order at first.
    """

    columns: tuple[Column, ...]
    lines: Callable[[Snapshot], list[Line]]
    sort: int = 0
    descending: bool = False


def _shares(compute: float, communication: float, host: float, idle: float) -> tuple[Text, ...]:
    return (
        share_cell(compute, COMPUTE),
        share_cell(communication, COMMUNICATION),
        share_cell(host, HOST),
        share_cell(idle, IDLE),
    )


def _ranks(snapshot: Snapshot) -> list[Line]:
    lines: list[Line] = []
    for rank in snapshot.ranks:
        shares = (rank.compute, rank.communication, rank.host, rank.idle)
        cells: Row = (
            str(rank.rank), str(rank.steps), *_shares(*shares), format_bytes(rank.used_bytes),
            format_duration(rank.h_ns), state_text(rank.state),
        )  # fmt: skip
        lines.append((cells, (rank.rank, rank.steps, *shares, rank.used_bytes, rank.h_ns, rank.state)))
    return lines


def _nodes(snapshot: Snapshot) -> list[Line]:
    size = snapshot.gpus_per_node
    lines: list[Line] = []
    for first in range(0, len(snapshot.ranks), size):
        ranks = snapshot.ranks[first : first + size]
        shares = tuple(_mean(ranks, name) for name in ("compute", "communication", "host", "idle"))
        steps, fullest = min(rank.steps for rank in ranks), max(rank.used_bytes for rank in ranks)
        waits = sum(rank.state not in ("runs", "ended", "starts") for rank in ranks)
        state = f"{waits} of {len(ranks)} wait" if waits else _common(ranks)
        cells: Row = (f"node-{first // size}", str(steps), *_shares(*shares), format_bytes(fullest), state)
        lines.append((cells, (first, steps, *shares, fullest, state)))
    return lines


def _mean(ranks: tuple[Rank, ...], name: str) -> float:
    return float(sum(getattr(rank, name) for rank in ranks)) / len(ranks)


def _common(ranks: tuple[Rank, ...]) -> str:
    states = {rank.state for rank in ranks}
    return states.pop() if len(states) == 1 else "mixed"


def _communicators(snapshot: Snapshot) -> list[Line]:
    lines: list[Line] = []
    for one in snapshot.waiting:
        missing = one.size - one.inside
        cells: Row = (
            one.group, f"{one.op} #{one.sequence}", f"{one.inside}/{one.size}",
            Text(_list(one.ranks_missing, missing), BAD), _list(one.ranks_in, one.inside),
        )  # fmt: skip
        lines.append((cells, (one.group, one.op, one.inside, one.ranks_missing, one.ranks_in)))
    return lines


def _list(ranks: tuple[int, ...], count: int) -> str:
    more = f" +{count - len(ranks)}" if count > len(ranks) else ""
    return " ".join(map(str, ranks)) + more


def _kernels(snapshot: Snapshot) -> list[Line]:
    total = sum(kernel.time_ns for kernel in snapshot.kernels) or 1
    lines: list[Line] = []
    for kernel in snapshot.kernels:
        share = kernel.time_ns / total
        source = Text(kernel.source, BAD if kernel.source == "unknown" else "")
        cells: Row = (
            kernel.label, share_cell(share, COMPUTE), format_duration(kernel.time_ns), str(kernel.launches), source,
        )  # fmt: skip
        lines.append((cells, (kernel.label, share, kernel.time_ns, kernel.launches, kernel.source)))
    return lines


_SHARE_COLUMNS = (
    Column("compute", 10), Column("comm", 10), Column("host", 10), Column("idle", 10, narrow=False),
)  # fmt: skip
TABLES: dict[str, View] = {
    "ranks": View(
        (
            Column("rank", 5, right=True), Column("step", 5, right=True), *_SHARE_COLUMNS,
            Column("memory", 10, right=True), Column("clock", 9, right=True, narrow=False), Column("state", 60),
        ),
        _ranks,
    ),
    "nodes": View(
        (
            Column("node", 9), Column("step", 5, right=True), *_SHARE_COLUMNS,
            Column("fullest", 10, right=True), Column("state", 40),
        ),
        _nodes,
    ),
    "communicators": View(
        (
            Column("group", 16), Column("collective", 22), Column("there", 8, right=True), Column("missing ranks", 26),
            Column("waiting ranks", 40, narrow=False),
        ),
        _communicators,
    ),
    "kernels": View(
        (
            Column("kernel", 44), Column("share", 10), Column("time", 10, right=True),
            Column("launches", 9, right=True, narrow=False), Column("source", 12),
        ),
        _kernels, sort=2, descending=True,
    ),
}  # fmt: skip


def arrange(
    view: View, snapshot: Snapshot, sort: int, descending: bool, text: str, narrow: bool
) -> tuple[list[Column], list[Row], list[int]]:
    """Returns the columns shown, the rows in order, and for each row its place in the snapshot."""
    lines = list(enumerate(view.lines(snapshot)))
    if text:
        lines = [line for line in lines if text.lower() in " ".join(map(str, line[1][0])).lower()]
    lines.sort(key=lambda line: line[1][1][sort], reverse=descending)
    shown = [index for index, column in enumerate(view.columns) if column.narrow or not narrow]
    rows = [tuple(line[1][0][index] for index in shown) for line in lines]
    return [view.columns[index] for index in shown], rows, [line[0] for line in lines]
