"""Reads what really happened, and when, out of a run's op log (format: runtime/core/src/oplog.hpp)."""

from __future__ import annotations

import gzip
import struct
from dataclasses import dataclass
from pathlib import Path

GEMM, MEMCPY, STREAM_WAIT, COLLECTIVE = 2, 3, 6, 7
SEND, RECV = 7, 8


@dataclass(frozen=True)
class Op:
    """One op of a rank; times in nanoseconds since the start of the run."""

    rank: int
    stream: int  # -1: the host
    kind: int
    words: tuple[int, ...]
    start: int
    end: int
    issue: int
    waited: int  # of a collective: for its last member

    @property
    def duration(self) -> int:
        return self.end - self.start

    def is_copy_of(self, size: int) -> bool:
        return self.kind == MEMCPY and self.words[0] == size

    def is_collective(self, kind: int) -> bool:
        return self.kind == COLLECTIVE and self.words[1] & 0xFF == kind


class _Reader:
    def __init__(self, data: bytes) -> None:
        assert data[:8] == b"PHNTLOG1"
        self.data, self.at = data, 8

    def number(self) -> int:
        value = shift = 0
        while True:
            byte = self.data[self.at]
            self.at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    def signed(self) -> int:
        value = self.number()
        return value >> 1 ^ -(value & 1)

    def numbers(self, count: int) -> list[int]:
        return [self.number() for _ in range(count)]

    def skip(self, size: int) -> None:
        self.at += size


def read_ops(run_directory: Path) -> list[Op]:
    """All ops, in the total order."""
    reader = _Reader(gzip.decompress((run_directory / "oplog").read_bytes()))
    sources: dict[int, list[int]] = {}
    shapes: dict[int, tuple[int, tuple[int, ...]]] = {}
    ops: list[Op] = []
    start = 0
    while reader.at < len(reader.data):
        tag = reader.data[reader.at]
        reader.skip(1)
        if tag == 1:
            reader.skip(8)
            reader.skip(reader.number())
        elif tag == 2:
            source = reader.number()
            sources[source] = reader.numbers(4)
        elif tag == 3:
            shape = reader.number()
            words = struct.unpack_from("<9Q", reader.data, reader.at + 1)
            shapes[shape] = (reader.data[reader.at], words)
            reader.skip(1 + 72)
        elif tag == 4:
            reader.number()
            reader.skip(reader.number())
            reader.numbers(reader.number())
        elif tag == 5:
            rank, _child, _device, stream = sources[reader.number()]
            reader.signed()
            kind, words = shapes[reader.number()]
            start += reader.number()
            end = start + reader.number()
            issue = start - reader.signed()
            extra = reader.numbers({COLLECTIVE: 3, STREAM_WAIT: 2}.get(kind, 0))
            waited = extra[2] if kind == COLLECTIVE else 0
            ops.append(Op(rank, stream - 1, kind, words, start, end, issue, waited))
        else:
            assert tag == 6, f"tag {tag} at {reader.at - 1}"
            reader.number()
    return ops
