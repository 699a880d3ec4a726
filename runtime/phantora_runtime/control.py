"""Messages from zygote and ranks to the supervisor: one JSON object a packet, many writers."""

from __future__ import annotations

import json
import os
import socket
from typing import Any

FD_VARIABLE = "PHANTORA_CONTROL_FD"
_MAX_TEXT = 10_000  # characters of a field: as JSON, at most six bytes each, all must fit into one packet

# What the supervisor reads of each event.
_FIELDS: dict[str, dict[str, type]] = {
    "importing": {"name": str},
    "torch": {"version": str},
    "no_torch": {"python": str},
    "note": {"text": str},
    "started": {"rank": int, "pid": int},
    "exception": {"rank": int, "type": str, "message": str, "traceback": str},
    "leaving": {"rank": int, "status": int},
    "finishing": {"rank": int, "oom_errors": int},
    "exited": {"rank": int, "status": int},
}


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
    """Returns all messages that have arrived. What a script may have written there itself, and is none, is left out."""
    messages: list[dict[str, Any]] = []
    while True:
        try:
            data = ours.recv(1 << 18)
        except OSError:
            return messages
        if not data:
            return messages
        try:
            message = json.loads(data)
        except (ValueError, RecursionError):
            continue
        if _is_complete(message):
            messages.append(message)


def _is_complete(message: Any) -> bool:
    if not isinstance(message, dict) or not isinstance(message.get("event"), str):
        return False
    fields = _FIELDS.get(message["event"], {})
    return all(isinstance(message.get(name), kind) for name, kind in fields.items())
