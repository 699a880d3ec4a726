"""The app: one screen, a header, a plot, and one of several views below. Widgets only draw what a frame says."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from textual.app import App, ComposeResult
from textual.binding import Binding
from textual.containers import VerticalScroll
from textual.message import Message
from textual.widgets import ContentSwitcher, Footer, Input, Static

from phantora_tui import keys, pages, rows
from phantora_tui.feed import Feed, Frame
from phantora_tui.header import Header, tabs
from phantora_tui.paint import NARROW, counted, put
from phantora_tui.plot import StepPlot
from phantora_tui.snapshot import Snapshot
from phantora_tui.table import Table

_VIEWS = Binding.Group("Views ", compact=True)  # the line of tabs has their names


class Shown(Message):
    """A new frame."""

    def __init__(self, frame: Frame) -> None:
        super().__init__()
        self.frame = frame


class LiveView(App[str]):
    """The live view of one run.

    Args:
        folder: The run directory.
        name: What the run is called on screen.
        follow: Read the run; tests hand in frames themselves.
        can_interrupt: Ctrl-C ends the view with `interrupt`, for the command that runs the run; else it only leaves.
    """

    ENABLE_COMMAND_PALETTE = False
    CSS_PATH = "live.tcss"
    TITLE = "phantora"
    BINDINGS: ClassVar = [
        *(
            Binding(key.key, key.action, key.label, key_display=key.shown, group=_VIEWS if key.view else None)
            for key in keys.KEYS
        ),
        Binding("ctrl+c", "interrupt", show=False, priority=True),
    ]

    def __init__(self, folder: Path, name: str, follow: bool = True, can_interrupt: bool = False) -> None:
        super().__init__()
        self._run_name = name
        self._feed = Feed(folder, self._post)
        self._follow = follow
        self._can_interrupt = can_interrupt
        self._frame = Frame(Snapshot(), None, (), True)
        self._frozen: Snapshot | None = None
        self._view = self._back = "ranks"
        self._order = {name: (view.sort, view.descending) for name, view in rows.TABLES.items()}
        self._filter = ""
        self._rank = 0
        self._places: list[int] = []
        self._columns: list[str] = []
        self._drawable = False

    def compose(self) -> ComposeResult:
        """The screen, from the top."""
        yield Header(id="header")
        yield StepPlot(id="plot")
        yield Static(id="title")
        with ContentSwitcher(initial="table", id="switcher"):
            yield Table(id="table")
            with VerticalScroll(id="page"):
                yield Static(id="text")
        yield Input(placeholder="show only lines that contain ...", id="filter")
        yield Footer(show_command_palette=False, compact=True)

    def on_mount(self) -> None:
        """Starts to read."""
        self.query_one("#filter").display = False
        self.query_one(Table).focus()
        self._drawable = True
        self._draw()
        if self._follow:
            self._feed.start()

    def on_unmount(self) -> None:
        """Ends the reader."""
        self._feed.stop()

    def _post(self, frame: Frame) -> None:
        """Called by the reader's thread."""
        self.post_message(Shown(frame))

    def on_shown(self, message: Shown) -> None:
        """Takes over a frame."""
        self._frame = message.frame
        self._draw()

    def on_resize(self) -> None:
        """Narrow or not, once all widgets have their new sizes."""
        self.call_after_refresh(self._draw)

    # -- what keys do -------------------------------------------------------------------------------------------------

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """The footer shows only keys that work now."""
        for key in keys.KEYS:
            if key.action.partition("(")[0] == action:
                return self._view in key.views
        return True

    def action_interrupt(self) -> None:
        """Ctrl-C is a key here: the terminal sends no signal."""
        self.exit("interrupt" if self._can_interrupt else None)

    def action_show(self, view: str) -> None:
        """Goes to a view."""
        if self._view in rows.TABLES:
            self._back = self._view
        self._view = view
        self._filter = ""
        self._feed.rank = self._rank if view == "rank" else None
        table = view in rows.TABLES
        self.query_one(ContentSwitcher).current = "table" if table else "page"
        self.query_one("#table" if table else "#page").focus()
        self._draw()
        self.refresh_bindings()

    def action_detail(self) -> None:
        """Opens the rank under the cursor."""
        table = self.query_one(Table)
        if self._places:
            self._rank = self._places[min(table.cursor, len(self._places) - 1)]
            self.action_show("rank")

    async def action_back(self) -> None:
        """To the table that was left."""
        self.action_show(self._back)

    def action_help(self) -> None:
        """Shows the keys, or goes back."""
        self.action_show(self._back if self._view == "help" else "help")

    def action_sort(self) -> None:
        """Sorts by the next column that is shown."""
        sort, descending = self._order[self._view]
        shown = [column.name for column in rows.TABLES[self._view].columns]
        while shown[sort := (sort + 1) % len(shown)] not in self._columns:
            pass
        self._order[self._view] = (sort, descending)
        self._draw()

    def action_reverse(self) -> None:
        """Turns the order round."""
        sort, descending = self._order[self._view]
        self._order[self._view] = (sort, not descending)
        self._draw()

    def on_table_header_clicked(self, message: Table.HeaderClicked) -> None:
        """Sorts by a column; once more: the other way."""
        names = [column.name for column in rows.TABLES[self._view].columns]
        column = names.index(self._columns[message.column])
        sort, descending = self._order[self._view]
        self._order[self._view] = (column, not descending if column == sort else False)
        self._draw()

    def action_pause(self) -> None:
        """Freezes the table; the counters above go on."""
        self._frozen = None if self._frozen is not None else self._frame.snapshot
        self._draw()

    def action_filter(self) -> None:
        """Asks for a text."""
        field = self.query_one("#filter", Input)
        field.value, field.display = self._filter, True
        field.focus()

    def on_input_changed(self, message: Input.Changed) -> None:
        """Filters while the text is typed."""
        self._filter = message.value
        self._draw()

    def on_input_submitted(self) -> None:
        """Goes back to the table."""
        self.query_one("#filter").display = False
        self.query_one(Table).focus()

    # -- drawing ------------------------------------------------------------------------------------------------------

    def _draw(self) -> None:
        if not self._drawable:
            return
        snapshot = self._frame.snapshot
        self.query_one(Header).update_from(self._run_name, snapshot, self._frame.tokens_per_s, self._frame.live)
        plot = self.query_one(StepPlot)
        plot.display = self.size.height >= (20 if self._view in rows.TABLES else 30)
        plot.update_from(snapshot)
        about = {"rank": f"rank {self._rank}", "help": "help"}.get(self._view, "")
        if self._view in rows.TABLES:
            about = self._draw_table(self._frozen or snapshot)
        else:
            self._draw_page(snapshot)
        put(self.query_one("#title", Static), tabs(self._view, about))

    def _draw_page(self, snapshot: Snapshot) -> None:
        if self._view == "rank":
            page = pages.rank_page(snapshot, self._rank, list(self._frame.log), self.size.width)
        else:
            page = pages.help_page(self.size.width) if self._view == "help" else pages.notes_page(snapshot)
        text = self.query_one("#text", Static)
        if text.content != page:
            text.update(page)

    def _draw_table(self, snapshot: Snapshot) -> str:
        view = rows.TABLES[self._view]
        sort, descending = self._order[self._view]
        narrow = self.size.width < NARROW
        columns, lines, self._places = rows.arrange(view, snapshot, sort, descending, self._filter, narrow)
        self._columns = [column.name for column in columns]
        name = view.columns[sort].name
        shown = self._columns.index(name) if name in self._columns else -1
        self.query_one(Table).show(columns, lines, shown, descending)
        parts = [counted(len(lines), "line")]
        if self._filter:
            parts.append(f"filter '{self._filter}'")
        if self._frozen is not None:
            parts.append("paused: space goes on")
        return ", ".join(parts)
