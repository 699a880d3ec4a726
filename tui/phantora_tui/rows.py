"""The tables: from a snapshot to columns and lines. A line knows its sort keys; its cells are made when it is drawn."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from phantora_runtime.quantities import format_bytes, format_duration
from phantora_tui.paint import BAD, COMMUNICATION, COMPUTE, HOST, IDLE, Cell, share_cell, state_cell
from phantora_tui.snapshot import Kernel, Rank, Snapshot, Waiting
from phantora_tui.table import Column, Row


class Line(NamedTuple):
    """One line of a table: a sort key and a cell for each column."""

    keys: tuple[Any, ...]
    cells: Callable[[], Row]


@dataclass(frozen=True)
class View:
    """One table.

    Attributes:
        columns: Its columns.
        lines: All lines.
        sort: The column it is sorted by at first.
        descending: The order at first.
    """

    columns: tuple[Column, ...]
    lines: Callable[[Snapshot], list[Line]]
    sort: int = 0
    descending: bool = False


def _share_cells(shares: tuple[float, ...]) -> tuple[Cell, ...]:
    styles = (COMPUTE, COMMUNICATION, HOST, IDLE)
    return tuple(share_cell(share, style) for share, style in zip(shares, styles, strict=True))


def _ranks(snapshot: Snapshot) -> list[Line]:
    lines = []
    for rank in snapshot.ranks:
        shares = (rank.compute, rank.communication, rank.host, rank.idle)
        keys = (rank.rank, rank.steps, *shares, rank.used_bytes, rank.h_ns, rank.state)
        lines.append(Line(keys, partial(_rank_cells, rank, shares)))
    return lines


def _rank_cells(rank: Rank, shares: tuple[float, ...]) -> Row:
    used, clock = format_bytes(rank.used_bytes), format_duration(rank.h_ns)
    return (str(rank.rank), str(rank.steps), *_share_cells(shares), used, clock, state_cell(rank.state))


def _nodes(snapshot: Snapshot) -> list[Line]:
    size = snapshot.gpus_per_node
    lines = []
    for first in range(0, len(snapshot.ranks), size):
        ranks = snapshot.ranks[first : first + size]
        shares = tuple(_mean(ranks, name) for name in ("compute", "communication", "host", "idle"))
        steps, fullest = min(rank.steps for rank in ranks), max(rank.used_bytes for rank in ranks)
        waits = sum(rank.waits for rank in ranks)
        state = f"{waits} of {len(ranks)} wait" if waits else _common(ranks)
        cells = partial(_node_cells, f"node-{first // size}", steps, shares, fullest, state)
        lines.append(Line((first, steps, *shares, fullest, state), cells))
    return lines


def _node_cells(name: str, steps: int, shares: tuple[float, ...], fullest: int, state: str) -> Row:
    return (name, str(steps), *_share_cells(shares), format_bytes(fullest), state)


def _mean(ranks: tuple[Rank, ...], name: str) -> float:
    return float(sum(getattr(rank, name) for rank in ranks)) / len(ranks)


def _common(ranks: tuple[Rank, ...]) -> str:
    states = {rank.state for rank in ranks}
    return states.pop() if len(states) == 1 else "mixed"


def _communicators(snapshot: Snapshot) -> list[Line]:
    return [
        Line((one.group, one.op, one.inside, one.ranks_missing, one.ranks_in), partial(_communicator_cells, one))
        for one in snapshot.waiting
    ]


def _communicator_cells(one: Waiting) -> Row:
    missing = ((_list(one.ranks_missing, one.size - one.inside), BAD),)
    there = f"{one.inside}/{one.size}"
    return (one.group, f"{one.op} #{one.sequence}", there, missing, _list(one.ranks_in, one.inside))


def _list(ranks: tuple[int, ...], count: int) -> str:
    more = f" +{count - len(ranks)}" if count > len(ranks) else ""
    return " ".join(map(str, ranks)) + more


def _kernels(snapshot: Snapshot) -> list[Line]:
    total = sum(kernel.time_ns for kernel in snapshot.kernels) or 1
    lines = []
    for kernel in snapshot.kernels:
        share = kernel.time_ns / total
        keys = (kernel.label, share, kernel.time_ns, kernel.launches, kernel.source)
        lines.append(Line(keys, partial(_kernel_cells, kernel, share)))
    return lines


def _kernel_cells(kernel: Kernel, share: float) -> Row:
    source: Cell = ((kernel.source, BAD),) if kernel.source == "unknown" else kernel.source
    return (kernel.label, share_cell(share, COMPUTE), format_duration(kernel.time_ns), str(kernel.launches), source)


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
            Column("kernel", 100, rest=True), Column("share", 10), Column("time", 10, right=True),
            Column("launches", 9, right=True, narrow=False), Column("source", 12),
        ),
        _kernels, sort=2, descending=True,
    ),
}  # fmt: skip


def arrange(
    view: View, snapshot: Snapshot, sort: int, descending: bool, text: str, narrow: bool
) -> tuple[list[Column], list[Callable[[], Row]], list[int]]:
    """Returns the columns shown, the rows in order (made when called), and for each its place in the snapshot."""
    lines = list(enumerate(view.lines(snapshot)))
    if text:
        lines = [(place, line) for place, line in lines if text.lower() in _plain(line.cells())]
    lines.sort(key=lambda line: line[1].keys[sort], reverse=descending)
    shown = [index for index, column in enumerate(view.columns) if column.narrow or not narrow]
    rows: list[Callable[[], Row]] = [partial(_chosen, line, shown) for _, line in lines]
    return [view.columns[index] for index in shown], rows, [place for place, _ in lines]


def _chosen(line: Line, shown: list[int]) -> Row:
    cells = line.cells()
    return tuple(cells[index] for index in shown)


def _plain(row: Row) -> str:
    cells = (cell if isinstance(cell, str) else "".join(text for text, _ in cell) for cell in row)
    return " ".join(cells).lower()
