"""A table that makes only the lines on screen and draws only those that changed: a thousand ranks cost a screenful."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import Binding
from textual.geometry import Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from phantora_tui.paint import STRONG, Cell

_CURSOR = Style(bgcolor="#122b45", bold=True)
_LEAST_WIDTH = 10  # of the column that takes what is left


@dataclass(frozen=True)
class Column:
    """One column; `narrow` ones are left out on small screens."""

    name: str
    width: int
    right: bool = False
    narrow: bool = True  # shown in narrow mode too
    rest: bool = False  # takes what is left, up to its width; where none does, the last one


Row = tuple[Cell, ...]


class Table(ScrollView, can_focus=True):
    """Columns, rows, and a cursor on one row."""

    BINDINGS: ClassVar = [
        Binding("up,k", "move(-1)", show=False),
        Binding("down,j", "move(1)", show=False),
        Binding("pageup", "page(-1)", show=False),
        Binding("pagedown", "page(1)", show=False),
        Binding("home", "move(-1000000)", show=False),
        Binding("end", "move(1000000)", show=False),
    ]

    class HeaderClicked(Message):
        """Somebody clicked on a column's name."""

        def __init__(self, column: int) -> None:
            super().__init__()
            self.column = column

    def __init__(self, id: str) -> None:
        super().__init__(id=id)
        self._columns: Sequence[Column] = ()
        self._rows: Sequence[Callable[[], Row]] = ()
        self._widths: list[int] = []
        self._heading: Row = ()
        self._drawn: dict[int, Row] = {}  # by line
        self._look = Style.null()
        self.cursor = 0

    def show(
        self, columns: Sequence[Column], rows: Sequence[Callable[[], Row]], sorted_by: int, descending: bool
    ) -> None:
        """Replaces what is shown; the cursor stays on its line number."""
        widths = [column.width for column in columns]
        if columns:
            rest = next((index for index, column in enumerate(columns) if column.rest), -1)
            bar = 2 if len(rows) >= self.size.height else 0
            left = self.size.width - bar - sum(width + 1 for width in widths) + widths[rest]
            widths[rest] = max(_LEAST_WIDTH, min(widths[rest], left))
        marks = ["" if index != sorted_by else "▼" if descending else "▲" for index in range(len(columns))]
        heading: Row = tuple(((column.name + mark, STRONG),) for column, mark in zip(columns, marks, strict=True))
        same = (widths, heading, len(rows)) == (self._widths, self._heading, len(self._rows))
        self._columns, self._rows, self._widths, self._heading = columns, rows, widths, heading
        if not same:
            self.cursor = max(0, min(self.cursor, len(rows) - 1))
            self.virtual_size = Size(sum(width + 1 for width in widths), len(rows) + 1)
            self._drawn.clear()
            self.refresh()
            return
        before, self._drawn = self._drawn, {}
        for line in range(self.scroll_offset.y, min(len(rows), self.scroll_offset.y + self.size.height - 1)):
            self._drawn[line] = rows[line]()
            if self._drawn[line] != before.get(line):
                self.refresh_line(line + 1)

    def action_move(self, by: int) -> None:
        """Moves the cursor."""
        self.cursor = max(0, min(len(self._rows) - 1, self.cursor + by))
        self.scroll_to_region(Region(0, self.cursor, 1, 2), animate=False, x_axis=False)
        self.refresh()

    def action_page(self, by: int) -> None:
        """Moves the cursor by a screenful."""
        self.action_move(by * max(1, self.size.height - 2))

    def on_click(self, event: events.Click) -> None:
        """A line becomes the cursor's; a name sorts."""
        if event.y == 0:
            at = event.x + self.scroll_offset.x
            for index, width in enumerate(self._widths):
                if at <= width:
                    self.post_message(self.HeaderClicked(index))
                    return
                at -= width + 1
        elif (line := event.y - 1 + self.scroll_offset.y) < len(self._rows):
            self.cursor = line
            self.refresh()

    def refresh_line(self, y: int) -> None:
        """Draws one line of the table again, line 0 being the heading."""
        self.refresh(Region(0, y - self.scroll_offset.y, self.size.width, 1))

    def render_lines(self, crop: Region) -> list[Strip]:
        """The look that all lines share is worked out once for all of them."""
        self._look = self.rich_style
        return super().render_lines(crop)

    def render_line(self, y: int) -> Strip:
        """Line 0 is the heading and stays."""
        line = y - 1 + self.scroll_offset.y
        if y == 0:
            cells = self._heading
        elif line >= len(self._rows):
            return Strip.blank(self.size.width, self._look)
        else:
            cells = self._drawn.get(line) or self._rows[line]()
            self._drawn[line] = cells
        parts = zip(cells, self._widths, self._columns, strict=True)
        at_cursor = y > 0 and line == self.cursor and self.has_focus
        look = self._look + _CURSOR if at_cursor else self._look
        segments = [segment for cell, width, column in parts for segment in _fit(cell, width, column.right, look)]
        width = sum(self._widths) + len(self._widths)
        return Strip(segments, width).adjust_cell_length(self.size.width, look)


@lru_cache(maxsize=4096)
def _fit(cell: Cell, width: int, right: bool, look: Style) -> tuple[Segment, ...]:
    """A cell in so many columns and one more: cut off with an ellipsis, or padded."""
    pieces = ((cell, look),) if isinstance(cell, str) else tuple((text, look + style) for text, style in cell)
    size = sum(cell_len(text) for text, _ in pieces)
    segments, left = [], width - (size > width)
    for text, style in pieces:
        cut = min(left, cell_len(text))
        segments.append(Segment(set_cell_size(text, cut), style))
        left -= cut
    if size > width:
        segments.append(Segment("…", segments[-1].style))
    pad = Segment(" " * max(0, width - size), look)
    return (pad, *segments, Segment(" ", look)) if right else (*segments, pad, Segment(" ", look))
