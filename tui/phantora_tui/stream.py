"""Where lines come from: a running run's socket, else the file that every run leaves."""

from __future__ import annotations

import contextlib
import os
import select
import socket
from collections.abc import Iterator
from pathlib import Path

from phantora_runtime.viewers import REPLACED, line_type, open_events, socket_path

_CHUNK = 1 << 18
_LONGEST_LINE = 16 << 20


class EventStream:
    """Lines of a run's event stream, as they come.

    Args:
        folder: The run directory.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._socket = _connect(folder)
        self._file = -1
        self._partial = b""
        self.live = self._socket is not None

    def close(self) -> None:
        """Ends the connection."""
        if self._socket is not None:
            self._socket.close()
        if self._file >= 0:
            os.close(self._file)
        self._socket, self._file = None, -1

    def lines(self, wait_s: float) -> list[bytes]:
        """What has come; waits up to `wait_s` for something where the run is live.

        A connection that breaks off is followed by the file's end: the run has ended, or its supervisor was killed.
        """
        if self._socket is not None:
            return self._split(self._receive(wait_s))
        return self._split(self._read())

    def _receive(self, wait_s: float) -> bytes:
        assert self._socket is not None
        ready, _, _ = select.select([self._socket], [], [], wait_s)
        if not ready:
            return b""
        data = b""
        with contextlib.suppress(OSError):
            data = self._socket.recv(_CHUNK)
        if not data:
            self._socket.close()
            self._socket, self.live, self._partial = None, False, b""
        return data

    def _read(self) -> bytes:
        try:
            if self._file < 0:
                self._file = open_events(self._folder)
            return os.read(self._file, _CHUNK)
        except OSError:  # not there yet, or damaged
            return b""

    def _split(self, data: bytes) -> list[bytes]:
        *lines, self._partial = (self._partial + data).split(b"\n")
        if len(self._partial) > _LONGEST_LINE:
            self._partial = b""
        return lines


def newest(lines: list[bytes]) -> list[bytes]:
    """Leaves out lines that a later one makes worthless."""
    kept, seen = [], set()
    for line in reversed(lines):
        kind = line_type(line)
        if kind not in seen:
            kept.append(line)
        if kind in REPLACED:
            seen.add(kind)
    return kept[::-1]


def log_tail(folder: Path, rank: int, lines: int, most_bytes: int = 1 << 16) -> list[str]:
    """The last lines a rank has printed; control characters left out."""
    try:
        with open(folder / "ranks" / f"{rank:05}.log", "rb") as log:
            size = log.seek(0, os.SEEK_END)
            log.seek(max(0, size - most_bytes))
            text = log.read(most_bytes).decode(errors="replace")
    except OSError:
        return []
    return [_printable(line) for line in text.replace("\r", "\n").splitlines()[-lines:]]


def _printable(line: str) -> str:
    return "".join(character for character in _without_escapes(line) if character.isprintable() or character == "\t")


def _without_escapes(line: str) -> Iterator[str]:
    escape = False
    for character in line:
        if character == "\x1b":
            escape = True
        elif escape:
            escape = not (character.isalpha() or character == "\x07")
        else:
            yield character


def _connect(folder: Path) -> socket.socket | None:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        with socket_path(folder) as path:
            connection.connect(path)
    except OSError:
        connection.close()
        return None
    return connection
