"""The live view driven by keys and mouse: sorting, filter, pause, rank pages, help, narrow screens."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from textual.pilot import Pilot

from phantora_tui import keys, rows
from phantora_tui.app import LiveView, Shown
from phantora_tui.feed import Frame
from phantora_tui.snapshot import Builder
from phantora_tui.table import Table

STREAMS = Path(__file__).resolve().parents[1] / "golden" / "streams"
RUNNING = (STREAMS / "running.jsonl").read_bytes().splitlines()
SNAPSHOT = Builder().feed_all(RUNNING)


def drive(steps: Callable[[LiveView, Pilot], Awaitable[None]], size: tuple[int, int] = (100, 40)) -> LiveView:
    """Shows the recorded run and does what `steps` says."""

    async def whole() -> LiveView:
        app = LiveView(Path("nowhere"), "x", follow=False)
        async with app.run_test(size=size) as pilot:
            app.post_message(Shown(Frame(SNAPSHOT, None, ("it says hello",), True)))
            await pilot.pause()
            await steps(app, pilot)
        return app

    return asyncio.run(whole())


def column(app: LiveView, name: str) -> list[str]:
    """The cells of a column, from the top."""
    table = app.query_one(Table)
    place = app._columns.index(name)
    cells = [row()[place] for row in table._rows]
    return [cell if isinstance(cell, str) else "".join(text for text, _ in cell).strip() for cell in cells]


def about(app: LiveView) -> str:
    return str(app.query_one("#title").render())


def test_sorting_by_keys():
    async def steps(app, pilot):
        assert column(app, "rank") == [str(rank) for rank in range(16)]
        await pilot.press("r")
        assert column(app, "rank") == [str(rank) for rank in reversed(range(16))]
        await pilot.press("s", "s")
        compute = [float(text.rstrip("%").lstrip("█▏▎▍▌▋▊▉·")) for text in column(app, "compute")]
        assert compute == sorted(compute, reverse=True) and compute[0] > compute[-1]

    drive(steps)


def test_each_table_sorts_by_each_column():
    async def steps(app, pilot):
        for view in keys.TABLES:
            await pilot.press(keys.key_to(view).key)
            marked = set()
            for _ in rows.TABLES[view].columns:
                await pilot.press("s")
                (heading,) = (name for ((name, _),) in app.query_one(Table)._heading if name[-1] in "▲▼")
                marked.add(heading[:-1])
            assert marked == {column.name for column in rows.TABLES[view].columns}

    drive(steps)


def test_a_click_on_a_name_sorts_and_once_more_turns_round():
    async def steps(app, pilot):
        table = app.query_one(Table)
        x = 1 + sum(width + 1 for width in table._widths[:1])  # the second column, after the padding
        await pilot.click(Table, offset=(x + 1, 0))
        assert app._order["ranks"] == (1, False)
        await pilot.click(Table, offset=(x + 1, 0))
        assert app._order["ranks"] == (1, True)

    drive(steps)


def test_mouse_on_a_line_then_enter_opens_that_rank():
    async def steps(app, pilot):
        await pilot.click(Table, offset=(5, 4))
        await pilot.press("enter")
        page = str(app.query_one("#text").render())
        assert page.startswith("rank 3") and "it says hello" in page
        for part in ("allocations", "NCCL", "last step", "stream 6"):
            assert part in page
        await pilot.press("escape")
        assert app._view == "ranks"

    drive(steps)


def test_a_click_on_a_views_name_shows_it():
    async def steps(app, pilot):
        at = about(app).index("4 Kernels")
        await pilot.click("#title", offset=(at + 2, 0))
        assert app._view == "kernels"

    drive(steps)


def test_filter_and_its_end():
    async def steps(app, pilot):
        await pilot.press("slash", *"runs", "enter")
        assert set(column(app, "state")) == {"▶ runs"}
        assert "filter 'runs'" in about(app) and 0 < len(column(app, "rank")) < 16
        await pilot.press("slash", *["backspace"] * 4, "enter")
        assert len(column(app, "rank")) == 16 and "filter" not in about(app)

    drive(steps)


def test_a_pause_freezes_the_table_and_not_the_counters():
    async def steps(app, pilot):
        half = Builder().feed_all(RUNNING[:8])
        app.post_message(Shown(Frame(half, None, (), True)))
        await pilot.press("space")
        before = column(app, "clock") if half.ranks else []
        app.post_message(Shown(Frame(SNAPSHOT, None, (), True)))
        await pilot.pause()
        assert "paused" in about(app)
        assert column(app, "clock") == before
        assert SNAPSHOT.step_text in str(app.query_one("#header").render())
        await pilot.press("space")
        assert column(app, "clock") != before

    drive(steps)


def test_help_goes_back_to_where_one_was():
    async def steps(app, pilot):
        await pilot.press("4", "question_mark")
        shown = str(app.query_one("#text").render())
        assert all(key.text.split()[0] in shown for key in keys.KEYS)
        await pilot.press("s", "r", "slash", "space")  # none of them works here
        assert app._view == "help"
        await pilot.press("question_mark")
        assert app._view == "kernels"

    drive(steps)


def test_the_footer_shows_only_keys_that_work_now():
    async def steps(app, pilot):
        for view in keys.VIEWS:
            await pilot.press("1", keys.key_to(view).key)
            shown = {binding.binding.key for binding in app.screen.active_bindings.values() if binding.binding.show}
            assert shown == {key.key for key in keys.KEYS if view in key.views}, view

    drive(steps)


def test_narrow_screens_leave_out_columns():
    async def steps(app, pilot):
        assert app._columns == ["rank", "step", "compute", "comm", "host", "memory", "state"]
        for _ in range(9):  # sorting passes by the columns that are not shown
            await pilot.press("s")
            assert rows.TABLES["ranks"].columns[app._order["ranks"][0]].name in app._columns
        await pilot.resize_terminal(120, 40)
        await pilot.pause()
        assert "idle" in app._columns and "clock" in app._columns

    drive(steps, (80, 24))


def test_q_detaches_and_ctrl_c_only_leaves():
    for key in ("q", "ctrl+c"):

        async def steps(app, pilot, key=key):
            await pilot.press(key)

        assert drive(steps).return_value is None
