"""A table that draws only the lines on screen, so that thousands of ranks cost no more than a screenful."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual import events
from textual.binding import Binding
from textual.geometry import Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from phantora_tui.paint import STRONG

_CURSOR = Style(bgcolor="#2f4f6f", bold=True)
_LAST_WIDTH = 10  # the last column takes what is left, but not less


@dataclass(frozen=True)
class Column:
    """One column; `narrow` ones are left out on small screens."""

    name: str
    width: int
    right: bool = False
    narrow: bool = True  # shown in narrow mode too


Row = tuple[str | Text, ...]


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
        self._rows: Sequence[Row] = ()
        self._widths: list[int] = []
        self.cursor = 0
        self._marks = ""

    def show(self, columns: Sequence[Column], rows: Sequence[Row], sorted_by: int, descending: bool) -> None:
        """Replaces what is shown; the cursor stays on its line number."""
        self._columns, self._rows = columns, rows
        self._widths = [column.width for column in columns]
        if columns:
            bar = 2 if len(rows) >= self.size.height else 0
            left = self.size.width - bar - sum(width + 1 for width in self._widths[:-1]) - 1
            self._widths[-1] = max(_LAST_WIDTH, min(columns[-1].width, left))
        self._marks = f"{sorted_by}{'▼' if descending else '▲'}"
        self.cursor = max(0, min(self.cursor, len(rows) - 1))
        self.virtual_size = Size(sum(width + 1 for width in self._widths), len(rows) + 1)
        self.refresh()

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

    def render_line(self, y: int) -> Strip:
        """Line 0 is the heading and stays."""
        left, top = self.scroll_offset
        line = y - 1 + top
        if y == 0:
            strip = self._heading()
        elif line < len(self._rows):
            strip = self._strip(self._rows[line], _CURSOR if line == self.cursor and self.has_focus else None)
        else:
            strip = Strip.blank(self.size.width, self.rich_style)
        return strip.crop_extend(left, left + self.size.width, self.rich_style).apply_style(self.rich_style)

    def _heading(self) -> Strip:
        names: list[str | Text] = []
        for index, column in enumerate(self._columns):
            mark = self._marks[-1] if self._marks[:-1] == str(index) else ""
            names.append(Text(column.name + mark, STRONG))
        return self._strip(names, None)

    def _strip(self, cells: Sequence[str | Text], style: Style | None) -> Strip:
        segments: list[Segment] = []
        for column, width, cell in zip(self._columns, self._widths, cells, strict=True):
            text = cell.copy() if isinstance(cell, Text) else Text(cell)
            text.truncate(width, overflow="ellipsis")
            pad = " " * (width - text.cell_len)
            text = Text.assemble(pad, text, " ") if column.right else Text.assemble(text, pad, " ")
            if style is not None:
                text.stylize(style)
            text.end = ""
            segments += text.render(self.app.console)
        return Strip(segments)
