"""The keys of the live view, as data: bindings, footer, help screen and docs/tui.md are made from this table."""

from __future__ import annotations

from dataclasses import dataclass

TABLES = ("ranks", "nodes", "communicators", "kernels")
VIEWS = (*TABLES, "rank", "notes", "help")


@dataclass(frozen=True)
class Key:
    """One key.

    Attributes:
        key: As Textual names it.
        shown: As people write it.
        action: The app's action.
        label: For the footer.
        text: A sentence for the help screen.
        views: Where it works.
    """

    key: str
    shown: str
    action: str
    label: str
    text: str
    views: tuple[str, ...] = VIEWS

    @property
    def view(self) -> str:
        """The view that it opens from anywhere; "" if it does something else."""
        return self.action[len("show('") : -len("')")] if self.action.startswith("show") else ""


def key_to(view: str) -> Key:
    """The key that opens a view."""
    return next(key for key in KEYS if key.view == view or key.action == {"rank": "detail"}.get(view, view))


KEYS = (
    Key("question_mark", "?", "help", "Help", "This page."),
    Key("q", "q", "quit", "Detach", "Leaves the view; the run goes on, and `phantora top RUN` comes back to it."),
    Key("1", "1", "show('ranks')", "Ranks", "One line a rank: its state, what its time went to, memory, steps."),
    Key("2", "2", "show('nodes')", "Nodes", "The same for each node: means, and the fullest GPU."),
    Key("3", "3", "show('communicators')", "Waits", "Collectives that have not begun: who is there, who is missing."),
    Key("4", "4", "show('kernels')", "Kernels", "What took most GPU time, and how its duration is known."),
    Key("5", "5", "show('notes')", "Notes", "Verdict, message, and what to check before trusting the numbers."),
    Key("enter", "enter", "detail", "Rank", "One rank: memory by kind, its last step by stream, its output.",
        ("ranks",)),
    Key("escape", "esc", "back", "Back", "Back to the table.", ("rank", "notes", "help")),
    Key("s", "s", "sort", "Sort", "Sorts by the next column; a click on a column's name sorts by that one.", TABLES),
    Key("r", "r", "reverse", "Reverse", "Turns the order round.", TABLES),
    Key("slash", "/", "filter", "Filter", "Shows only lines that contain a text; empty shows all.", TABLES),
    Key("space", "space", "pause", "Pause", "Freezes the table; the counters above it go on.", TABLES),
)  # fmt: skip
