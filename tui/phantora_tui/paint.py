"""Colours and small drawings.

The palette is Okabe and Ito's, which colour-blind people can tell apart; nothing is said by colour alone.
"""

from __future__ import annotations

from collections.abc import Iterable

from rich.style import Style
from rich.text import Text

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
_EIGHTHS = " ▏▎▍▌▋▊▉█"


def bar(share: float, width: int, style: Style) -> Text:
    """A horizontal bar of `width` cells, in eighths of a cell."""
    eighths = round(max(0.0, min(1.0, share)) * width * 8)
    full, rest = divmod(eighths, 8)
    text = "█" * full + (_EIGHTHS[rest] if rest else "")
    return Text.assemble((text, style), ("·" * (width - len(text)), DIM))


def stacked_bar(shares: Iterable[float], width: int) -> Text:
    """A bar of shares of the PARTS, in their order."""
    text, edge = Text(), 0.0
    for (_, sign, style), share in zip(PARTS, shares, strict=False):
        edge += share
        text.append(sign * max(0, round(min(1.0, edge) * width) - len(text)), style)
    return text.append("·" * (width - len(text)), DIM)


def state_text(state: str) -> Text:
    """A rank's state, with a sign."""
    if state == "runs":
        return Text("▶ runs", GOOD)
    if state == "ended":
        return Text("■ ended", IDLE)
    return Text(f"‖ {state}" if state != "starts" else "… starts")


def verdict_text(snapshot: Snapshot) -> Text:
    """The verdict so far, in a word and a sign."""
    if not snapshot.verdict:
        return Text("▶ running" if snapshot.started else "… starting", STRONG)
    good = snapshot.verdict == "ok"
    return Text(f"{'✔' if good else '✘'} {snapshot.verdict}", GOOD if good else BAD)


def share_cell(share: float, style: Style) -> Text:
    """A share as a short bar and a number."""
    return Text.assemble(bar(share, 5, style), f"{share:5.0%}")
