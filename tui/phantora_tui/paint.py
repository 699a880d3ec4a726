"""Colours and small drawings.

The palette is Okabe and Ito's, which colour-blind people can tell apart; nothing is said by colour alone.
"""

from __future__ import annotations

from rich.style import Style
from rich.text import Text

COMPUTE = Style(color="#56b4e9")
COMMUNICATION = Style(color="#e69f00")
HOST = Style(color="#009e73")
IDLE = Style(color="#7f7f7f")
BAD = Style(color="#d55e00", bold=True)
GOOD = Style(color="#009e73", bold=True)
STRONG = Style(bold=True)
DIM = Style(color="#9a9a9a")
_EIGHTHS = " ▏▎▍▌▋▊▉█"


def bar(share: float, width: int, style: Style) -> Text:
    """A horizontal bar of `width` cells, in eighths of a cell."""
    eighths = round(max(0.0, min(1.0, share)) * width * 8)
    full, rest = divmod(eighths, 8)
    text = "█" * full + (_EIGHTHS[rest] if rest else "")
    return Text.assemble((text, style), ("·" * (width - len(text)), DIM))


def share_cell(share: float, style: Style) -> Text:
    """A share as a short bar and a number."""
    return Text.assemble(bar(share, 5, style), f"{share:5.0%}")
