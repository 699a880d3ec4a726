"""Decodes the canonical op log (format: runtime/core/src/oplog.hpp); all tests read it through here."""

from __future__ import annotations

import gzip
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

KERNEL, GEMM, MEMCPY, STREAM_WAIT, COLLECTIVE = 1, 2, 3, 6, 7  # wire::RecordType
SEND, RECV = 7, 8  # wire::CollectiveKind
_NAME, _SOURCE, _SHAPE, _COMM, _OP, _END = 1, 2, 3, 4, 5, 6
_EXTRA = {STREAM_WAIT: 2, COLLECTIVE: 3}


@dataclass(frozen=True)
class Source:
    """Who issues: a rank's host or one of its streams."""

    rank: int
    child: int
    device: int
    stream: int  # -1: the host


@dataclass(frozen=True)
class Op:
    """One op; times in nanoseconds since the start of the run."""

    source: Source
    sequence: int
    kind: int
    payload: bytes  # 72 bytes of the record
    start: int
    end: int
    issue: int
    extra: tuple[int, ...]

    @property
    def rank(self) -> int:
        return self.source.rank

    @property
    def stream(self) -> int:
        return self.source.stream

    @property
    def words(self) -> tuple[int, ...]:
        return struct.unpack("<9Q", self.payload)

    @property
    def duration(self) -> int:
        return self.end - self.start

    @property
    def waited(self) -> int:
        """Of a collective: how long for its last member."""
        return self.extra[2] if self.kind == COLLECTIVE else 0

    def is_copy_of(self, size: int) -> bool:
        return self.kind == MEMCPY and self.words[0] == size

    def is_collective(self, kind: int) -> bool:
        return self.kind == COLLECTIVE and self.words[1] & 0xFF == kind


class Log:
    """A whole log: its ops in the total order, and what its numbers stand for."""

    def __init__(self, data: bytes) -> None:
        if data[:8] != b"PHNTLOG1":
            raise ValueError("not an op log of version 1")
        self._data, self._at = data, 8
        self.names: dict[int, str] = {}
        self.sources: dict[int, Source] = {}
        self.comms: dict[int, tuple[str, list[int]]] = {}
        self.last_ns = -1
        self.ops = list(self._read())

    def _number(self) -> int:
        value = shift = 0
        while True:
            byte = self._data[self._at]
            self._at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    def _signed(self) -> int:
        value = self._number()
        return value >> 1 ^ -(value & 1)

    def _take(self, count: int) -> bytes:
        self._at += count
        return self._data[self._at - count : self._at]

    def _text(self) -> str:
        return self._take(self._number()).decode(errors="replace")

    def _read(self) -> Iterator[Op]:
        shapes: dict[int, tuple[int, bytes]] = {}
        sequences: dict[int, int] = {}
        start = 0
        while self._at < len(self._data):
            tag = self._take(1)[0]
            if tag == _NAME:
                (key,) = struct.unpack("<Q", self._take(8))
                self.names[key] = self._text()
            elif tag == _SOURCE:
                key, rank, child, device, stream = (self._number() for _ in range(5))
                self.sources[key] = Source(rank, child, device, stream - 1)
            elif tag == _SHAPE:
                key = self._number()
                shapes[key] = (self._take(1)[0], self._take(72))
            elif tag == _COMM:
                key, label = self._number(), self._text()
                self.comms[key] = (label, [self._number() for _ in range(self._number())])
            elif tag == _OP:
                key = self._number()
                sequences[key] = sequences.get(key, 0) + self._signed()
                kind, payload = shapes[self._number()]
                start += self._number()
                end, issue = start + self._number(), start - self._signed()
                extra = tuple(self._number() for _ in range(_EXTRA.get(kind, 0)))
                yield Op(self.sources[key], sequences[key], kind, payload, start, end, issue, extra)
            elif tag == _END:
                self.last_ns = self._number()
            else:
                raise ValueError(f"item {tag} at byte {self._at - 1}")

    def gemms(self) -> list[tuple[str, dict[str, int]]]:
        """The GEMMs in order: entry point and fields of wire::GemmOp."""
        fields = (
            *("m", "n", "k", "batch", "type_a", "type_b", "type_c", "compute"),
            *("transpose_a", "transpose_b", "epilogue"),
        )
        return [
            (
                self.names[op.words[3]],
                dict(zip(fields, (*struct.unpack_from("<4I", op.payload), *op.payload[16:24]), strict=False)),
            )
            for op in self.ops
            if op.kind == GEMM
        ]


def read(path: Path) -> Log:
    """Reads a run directory's log, or the file itself, compressed or not."""
    data = (path / "oplog" if path.is_dir() else path).read_bytes()
    return Log(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)
