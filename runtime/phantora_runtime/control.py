"""Messages from zygote and ranks to the supervisor: one JSON object a packet, many writers."""

from __future__ import annotations

import json
import os
import socket
from typing import Any

FD_VARIABLE = "PHANTORA_CONTROL_FD"
_MAX_TEXT = 60_000


def pair() -> tuple[socket.socket, socket.socket]:
    """Returns the supervisor's end and the end that zygote and ranks inherit."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setblocking(False)
    theirs.set_inheritable(True)
    return ours, theirs


def send(event: str, **fields: Any) -> None:
    """Tells the supervisor; silently nothing when there is none (its end of the run is being torn down)."""
    try:
        fd = int(os.environ[FD_VARIABLE])
    except (KeyError, ValueError):
        return
    clipped = {key: value[-_MAX_TEXT:] if isinstance(value, str) else value for key, value in fields.items()}
    try:
        os.write(fd, json.dumps({"event": event, **clipped}).encode())
    except OSError:
        return


def receive(ours: socket.socket) -> list[dict[str, Any]]:
    """Returns all messages that have arrived."""
    messages: list[dict[str, Any]] = []
    while True:
        try:
            data = ours.recv(1 << 18)
        except BlockingIOError:
            return messages
        except OSError:
            return messages
        if not data:
            return messages
        messages.append(json.loads(data))
