"""Bodies of the messages to the core (wire.hpp): little-endian integers; strings and blobs with a u32 length first."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from enum import IntEnum

from phantora_runtime import bridge
from phantora_runtime.bridge import Status

NO_TIMEOUT = bridge.UNRESOLVED


class Message(IntEnum):
    """wire::MessageType, as far as Python sends them."""

    STORE_SET = 5
    STORE_GET = 6
    STORE_ADD = 7
    STORE_WAIT = 8
    STORE_CHECK = 9
    STORE_DELETE = 10
    STORE_COMPARE_SET = 11
    STORE_COUNT = 12
    STORE_APPEND = 13
    STORE_LIST = 14
    ORDER = 15
    HOST_COLLECTIVE = 24
    HOST_SEND = 25
    HOST_RECV = 26


class CoreTimeout(Exception):
    """The virtual time-out of a request passed."""


class CoreRefused(RuntimeError):
    """The core answered with another status than ok or time-out."""


class Body:
    """Builds a body, field after field."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def u8(self, value: int) -> Body:
        """Appends one byte."""
        self._parts.append(struct.pack("<B", value))
        return self

    def u32(self, value: int) -> Body:
        """Appends an unsigned 32-bit integer."""
        self._parts.append(struct.pack("<I", value))
        return self

    def u64(self, value: int) -> Body:
        """Appends an unsigned 64-bit integer."""
        self._parts.append(struct.pack("<Q", value))
        return self

    def i64(self, value: int) -> Body:
        """Appends a signed 64-bit integer."""
        self._parts.append(struct.pack("<q", value))
        return self

    def blob(self, value: bytes | str) -> Body:
        """Appends a string or blob."""
        data = value.encode() if isinstance(value, str) else bytes(value)
        self._parts.append(struct.pack("<I", len(data)) + data)
        return self

    def blobs(self, values: Iterable[bytes | str]) -> Body:
        """Appends a u32 count and that many strings."""
        items = list(values)
        self.u32(len(items))
        for item in items:
            self.blob(item)
        return self

    def bytes(self) -> bytes:
        """Returns the body."""
        return b"".join(self._parts)


class Reply:
    """Reads a reply, field after field."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def _take(self, layout: str) -> int:
        (value,) = struct.unpack_from(layout, self._data, self._at)
        self._at += struct.calcsize(layout)
        return int(value)

    def u8(self) -> int:
        """Reads one byte."""
        return self._take("<B")

    def u32(self) -> int:
        """Reads an unsigned 32-bit integer."""
        return self._take("<I")

    def u64(self) -> int:
        """Reads an unsigned 64-bit integer."""
        return self._take("<Q")

    def i64(self) -> int:
        """Reads a signed 64-bit integer."""
        return self._take("<q")

    def blob(self) -> bytes:
        """Reads a string or blob."""
        size = self.u32()
        data = self._data[self._at : self._at + size]
        if len(data) != size:
            raise CoreRefused("The core's reply is shorter than it says.")
        self._at += size
        return data

    def blobs(self) -> list[bytes]:
        """Reads a u32 count and that many blobs."""
        return [self.blob() for _ in range(self.u32())]


def call(message: Message, body: Body) -> Reply:
    """Sends a request and returns the reply.

    Raises:
        CoreTimeout: Status kTimeout.
        CoreRefused: Any other status but ok.
    """
    status, data = bridge.request(int(message), body.bytes())
    if status == Status.OK:
        return Reply(data)
    if status == Status.TIMEOUT:
        raise CoreTimeout
    raise CoreRefused(f"The simulator answered {status.name.lower()} to {message.name.lower()}.")
