"""Pictures of every view at two sizes, drawn from streams of real runs (streams/, shortened to what a view needs).

pytest tests/golden --snapshot-update     after a change that is meant
"""

from __future__ import annotations

from pathlib import Path

import pytest

from phantora_tui.app import LiveView, Shown
from phantora_tui.feed import Frame
from phantora_tui.snapshot import Builder

STREAMS = Path(__file__).with_name("streams")
SIZES = [(80, 24), (160, 50)]
LOG = ("0.134 B parameters on 16 GPUs", "step 0: loss 0.0000, 0.0522 s, 102,170 tokens/s/GPU, 2.16 GiB")
VIEWS = [
    ("running", "ranks", ()),
    ("running", "nodes", ("2",)),
    ("running", "communicators", ("3",)),
    ("running", "kernels", ("4",)),
    ("running", "rank", ("down", "down", "enter")),
    ("running", "filter", ("slash", "r", "u", "n", "s", "enter", "s", "r")),
    ("done", "ranks", ()),
    ("done", "notes", ("5",)),
    ("done", "help", ("question_mark",)),
    ("oom", "ranks", ()),
    ("oom", "notes", ("5",)),
    ("hang", "communicators", ("3",)),
    ("hang", "notes", ("5",)),
]


@pytest.mark.parametrize("size", SIZES, ids=lambda size: "x".join(map(str, size)))
@pytest.mark.parametrize(("stream", "view", "keys"), VIEWS, ids=lambda value: value if isinstance(value, str) else "")
def test_a_view_looks_as_it_did(snap_compare, stream, view, keys, size):
    snapshot = Builder().feed_all((STREAMS / f"{stream}.jsonl").read_bytes().splitlines())
    app = LiveView(Path("runs/llama"), "llama", follow=False)

    async def show(pilot) -> None:
        app.post_message(Shown(Frame(snapshot, 102_170.0, LOG, stream == "running")))
        await pilot.pause()
        for key in keys:
            await pilot.press(key)
            await pilot.pause()

    assert snap_compare(app, terminal_size=size, run_before=show)
