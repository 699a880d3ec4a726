"""Receives from anybody take the message that was sent first in virtual time, whichever arrives first in real time."""

from __future__ import annotations

import struct
import time

import pytest
from core_client import FOREVER, HOST_RECV, HOST_SEND, OK, TIMEOUT, find_core, running, text, together

pytestmark = pytest.mark.skipif(find_core() is None, reason="phantora-core is not built: make native")


@pytest.mark.parametrize("pauses", [(0.0, 0.05), (0.05, 0.0)])
def test_a_receive_from_anybody_goes_by_virtual_time(tmp_path, pauses):
    with running(tmp_path, 3) as (core, (receiver, one, two)):

        def send(rank, pause, at):
            time.sleep(pause)
            rank.h = at
            name = text(f"g/{rank.index}>0")
            rank.request(HOST_SEND, name + struct.pack("<Q", 7) + text(f"from {rank.index}"))
            rank.exit()

        def receive():
            seen = []
            for timeout in (100, FOREVER, FOREVER):
                status, body = receiver.request(HOST_RECV, text("g/*>0") + struct.pack("<QQ", 7, timeout))
                seen.append((status, body if status == OK else b"", receiver.h))
            receiver.exit()
            return seen

        seen = together(receive, lambda: send(one, pauses[0], 500), lambda: send(two, pauses[1], 300))[0]
        assert seen == [(TIMEOUT, b"", 100), (OK, text("from 2"), 300), (OK, text("from 1"), 500)]
        assert core.finish()["late_ops"] == 0


def test_only_channels_of_the_same_group_receiver_and_tag_count(tmp_path):
    with running(tmp_path, 2) as (core, (receiver, sender)):

        def send():
            for at, channel, tag in ((10, "g/1>1", 7), (20, "h/1>0", 7), (30, "g/1>0", 8), (40, "g/1>0", 7)):
                sender.h = at
                sender.request(HOST_SEND, text(channel) + struct.pack("<Q", tag) + text(str(at)))
            sender.exit()

        def receive():
            answer = receiver.request(HOST_RECV, text("g/*>0") + struct.pack("<QQ", 7, FOREVER))
            receiver.exit()
            return answer, receiver.h

        assert together(receive, send)[0] == ((OK, text("40")), 40)
        core.finish()
