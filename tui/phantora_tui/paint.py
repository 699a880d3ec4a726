"""Colours and small drawings.

The palette is Okabe and Ito's, which colour-blind people can tell apart; nothing is said by colour alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from rich.style import Style
from rich.text import Text
from textual.widgets import Static

from phantora_tui.snapshot import Snapshot

COMPUTE = Style(color="#56b4e9")
COMMUNICATION = Style(color="#e69f00")
HOST = Style(color="#009e73")
IDLE = Style(color="#7f7f7f")
BAD = Style(color="#d55e00", bold=True)
GOOD = Style(color="#009e73", bold=True)
STRONG = Style(bold=True)
DIM = Style(color="#9a9a9a")
# What time goes to. Signs as well as colours: the parts can be told apart on any screen.
PARTS: tuple[tuple[str, str, Style], ...] = (
    ("compute", "█", COMPUTE), ("communication", "▓", COMMUNICATION), ("host", "▒", HOST), ("idle", "░", IDLE),
)  # fmt: skip
NARROW = 81  # screens under so many columns show less
Cell = str | tuple[tuple[str, Style], ...]  # of a table: plain, or pieces of different looks
_EIGHTHS = " ▏▎▍▌▋▊▉█"


def bar(share: float, width: int, style: Style) -> Text:
    """A horizontal bar of `width` cells, in eighths of a cell."""
    return Text.assemble(*_bar(share, width, style))


def _bar(share: float, width: int, style: Style) -> tuple[tuple[str, Style], ...]:
    eighths = round(max(0.0, min(1.0, share)) * width * 8)
    full, rest = divmod(eighths, 8)
    text = "█" * full + (_EIGHTHS[rest] if rest else "")
    return ((text, style), ("·" * (width - len(text)), DIM))


def stacked_bar(shares: Iterable[float], width: int) -> Text:
    """A bar of shares of the PARTS, in their order."""
    text, edge = Text(), 0.0
    for (_, sign, style), share in zip(PARTS, shares, strict=False):
        edge += share
        text.append(sign * max(0, round(min(1.0, edge) * width) - len(text)), style)
    return text.append("·" * (width - len(text)), DIM)


def state_cell(state: str) -> Cell:
    """A rank's state, with a sign."""
    if state == "runs":
        return (("▶ runs", GOOD),)
    if state == "ended":
        return (("■ ended", IDLE),)
    return f"‖ {state}" if state != "starts" else "… starts"


def verdict_text(snapshot: Snapshot) -> Text:
    """The verdict so far, in a word and a sign."""
    if not snapshot.verdict:
        return Text("▶ running" if snapshot.started else "… starting", STRONG)
    good = snapshot.verdict == "ok"
    return Text(f"{'✔' if good else '✘'} {snapshot.verdict}", GOOD if good else BAD)


def share_cell(share: float, style: Style) -> Cell:
    """A share as a short bar and a number."""
    return _percent_cell(round(100 * share), style)


@lru_cache(maxsize=1024)
def _percent_cell(percent: int, style: Style) -> Cell:
    return (*_bar(percent / 100, 5, style), (f"{percent:4}%", Style.null()))


def counted(number: int, noun: str) -> str:
    """`1 line`, `2 lines`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def put(widget: Static, text: Text) -> None:
    """Shows a text in a widget of fixed size, if it is another one than before."""
    if widget.content != text:
        widget.update(text, layout=False)
