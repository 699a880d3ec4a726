"""Pictures of every view on every recorded stream (record_streams.py) at two sizes.

pytest tests/golden --snapshot-update     after a change that is meant
"""

from __future__ import annotations

from pathlib import Path

import pytest

from phantora_tui import keys
from phantora_tui.app import LiveView, Shown
from phantora_tui.feed import Frame
from phantora_tui.snapshot import Builder

STREAMS = Path(__file__).with_name("streams")
SIZES = [(80, 24), (160, 50)]
LOG = ("0.134 B parameters on 16 GPUs", "step 0: loss 0.0000, 0.0522 s, 102,170 tokens/s/GPU, 2.16 GiB")
FILTERED = ("slash", "e", "enter", "s", "s", "s", "r")


def draw(snap_compare, stream: str, size: tuple[int, int], typed: tuple[str, ...], view: str) -> bool:
    """Is the screen the recorded one, after these keys?"""
    snapshot = Builder().feed_all((STREAMS / f"{stream}.jsonl").read_bytes().splitlines())
    app = LiveView(Path("runs/llama"), "llama", follow=False)

    async def show(pilot) -> None:
        app.post_message(Shown(Frame(snapshot, 102_170.0, LOG, stream == "running")))
        await pilot.pause()
        for key in typed:
            await pilot.press(key)
            await pilot.pause()
        assert app._view == view

    return snap_compare(app, terminal_size=size, run_before=show)


by_size = pytest.mark.parametrize("size", SIZES, ids=lambda size: "x".join(map(str, size)))


@by_size
@pytest.mark.parametrize("view", keys.VIEWS)
@pytest.mark.parametrize("stream", ["running", "done", "oom", "hang"])
def test_a_view_looks_as_it_did(snap_compare, stream, view, size):
    assert draw(snap_compare, stream, size, (keys.key_to(view).key,), view)


@by_size
def test_a_filtered_and_sorted_table_looks_as_it_did(snap_compare, size):
    assert draw(snap_compare, "running", size, FILTERED, "ranks")
