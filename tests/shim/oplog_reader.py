"""Reads the shapes out of a canonical op log (format: runtime/core/src/oplog.hpp)."""

from __future__ import annotations

import struct
from collections.abc import Iterator

NAME, SOURCE, SHAPE, COMM, OP, END = 1, 2, 3, 4, 5, 6
STREAM_WAIT, COLLECTIVE, GEMM = 6, 7, 2


class Log:
    """The log's names, and its ops as (record type, words of the op)."""

    def __init__(self, data: bytes) -> None:
        assert data[:8] == b"PHNTLOG1"
        self._data, self._at = data, 8
        self.names: dict[int, str] = {}
        self.ops = list(self._ops())

    def _number(self) -> int:
        value = shift = 0
        while True:
            byte = self._data[self._at]
            self._at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    def _bytes(self, count: int) -> bytes:
        self._at += count
        return self._data[self._at - count : self._at]

    def _ops(self) -> Iterator[tuple[int, tuple[int, ...]]]:
        shapes: dict[int, tuple[int, tuple[int, ...]]] = {}
        extra = {STREAM_WAIT: 2, COLLECTIVE: 3}
        while self._at < len(self._data):
            tag = self._bytes(1)[0]
            if tag == NAME:
                key = struct.unpack("<Q", self._bytes(8))[0]
                self.names[key] = self._bytes(self._number()).decode()
            elif tag == SHAPE:
                key = self._number()
                kind = self._bytes(1)[0]
                shapes[key] = (kind, struct.unpack("<9Q", self._bytes(72)))
            elif tag == COMM:
                self._number()
                self._bytes(self._number())
                for _ in range(self._number()):
                    self._number()
            elif tag == OP:
                _source, _sequence, shape = self._number(), self._number(), self._number()
                for _ in range(3 + extra.get(shapes[shape][0], 0)):
                    self._number()
                yield shapes[shape]
            elif tag == SOURCE:
                for _ in range(5):
                    self._number()
            else:
                assert tag == END, f"tag {tag} at {self._at}"
                self._number()


def gemms(log: Log) -> list[tuple[str, dict[str, int]]]:
    """The GEMMs of a log, in order: entry point and fields of wire::GemmOp."""
    found = []
    fields = ("m", "n", "k", "batch", "type_a", "type_b", "type_c", "compute", "transpose_a", "transpose_b", "epilogue")
    for kind, words in log.ops:
        if kind == GEMM:
            raw = struct.pack("<9Q", *words)
            numbers = (*struct.unpack_from("<4I", raw), *raw[16:24])
            found.append((log.names[words[3]], dict(zip(fields, numbers, strict=False))))
    return found
