"""Compares two canonical op logs and says in words where they first differ.

python tests/determinism/oplog_diff.py RUN_A RUN_B      (run directories, or oplog files as they lie there)
"""

from __future__ import annotations

import struct
import sys
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # as a script too
import oplog

TYPES = (
    *("none", "kernel", "gemm", "memcpy", "memset", "event_record", "stream_wait", "collective"),
    *("wait", "query", "elapsed", "sleep", "mark", "memory", "host_work", "exit"),
)
COLLECTIVES = (
    *("none", "all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce"),
    *("all_to_all", "send", "recv", "gather", "scatter", "barrier"),
)
_MARKS = ("none", "first forward", "optimizer step", "backward", "text", "out of memory", "phase")
_COPIES = ("none", "host to device", "device to host", "device to device", "peer", "host to host")


@dataclass(frozen=True)
class Op:
    """One op with its place, its times (ns) and what it does."""

    source: str
    sequence: int
    kind: str
    what: str
    start: int
    end: int
    issue: int
    extra: tuple[str | int, ...]

    def __str__(self) -> str:
        extra = " ".join(str(part) for part in self.extra)
        return (
            f"{self.source} #{self.sequence}: {self.kind} {self.what}".rstrip()
            + f"  [issued {self.issue}, start {self.start}, end {self.end}]"
            + (f" {extra}" if extra else "")
        )


class Log:
    """A log's ops in order, in words."""

    def __init__(self, log: oplog.Log) -> None:
        self._log = log
        self.end = log.last_ns
        self.ops = [self._in_words(op) for op in log.ops]

    def _in_words(self, op: oplog.Op) -> Op:
        kind = TYPES[op.kind]
        extra: tuple[str | int, ...] = ()
        if op.kind == oplog.COLLECTIVE:
            number, group, late = op.extra
            extra = (f"collective #{number},", f"group {group},", f"arrived {op.start - late}")
        elif op.kind == oplog.STREAM_WAIT:
            recorder, number = op.extra
            extra = (f"for {_place(self._log.sources[recorder])} #{number}" if recorder else "for nothing",)
        what = self._describe(kind, op.payload)
        return Op(_place(op.source), op.sequence, kind, what, op.start, op.end, op.issue, extra)

    def _name(self, key: int) -> str:
        return "" if key == 0 else self._log.names.get(key) or f"name {key:#x}"

    def _describe(self, kind: str, words: bytes) -> str:
        if kind == "kernel":
            name, *shape, elements, op, read, written = struct.unpack("<Q8I4Q", words)
            where = f" of {self._name(op)} (launch {shape[7]}, {read} B in, {written} B out)" if op else ""
            sizes = f" grid {tuple(shape[:3])} block {tuple(shape[3:6])} shared {shape[6]} elements {elements}"
            return self._name(name) + sizes + where
        if kind == "gemm":
            m, n, k, batch, *types, name, op = struct.unpack_from("<4I8B2Q", words)
            return f"{self._name(name)} {m}x{n}x{k} batch {batch} types/flags {types} of {self._name(op)}"
        if kind in ("memcpy", "memset"):
            size, how, pinned, peer = struct.unpack_from("<QBBB", words)
            return f"{size} B" + (f" {_COPIES[how]}, pinned {pinned}, peer {peer}" if kind == "memcpy" else "")
        if kind == "collective":
            comm, peer, how, data, reduction, count, size = struct.unpack_from("<IiBBB5xQQ", words)
            group = "'{}' {}".format(*self._log.comms[comm]) if comm in self._log.comms else ""
            return f"{COLLECTIVES[how]} on {comm} {group} type {data} op {reduction} peer {peer}: {count}, {size} B"
        if kind == "mark":
            how, value, text = struct.unpack_from("<Q2Q", words)
            return f"{_MARKS[how]} {value} {self._log.names.get(text, '')}"
        if kind == "host_work":
            duration, text = struct.unpack_from("<2Q", words)
            return f"{duration} ns {self._log.names.get(text, '')}"
        if kind == "exit":
            return f"status {struct.unpack_from('<i', words)[0]}"
        return "" if not any(words) else words.hex()


def _place(source: oplog.Source) -> str:
    place = f"rank {source.rank}" + (f" child {source.child}" if source.child else "")
    return place + (f" device {source.device} stream {source.stream}" if source.stream >= 0 else " host")


def _compared(op: Op, other: Op) -> str:
    names = ("source", "sequence", "kind", "what", "issue", "start", "end", "extra")
    return ", ".join(name for name in names if getattr(op, name) != getattr(other, name))


def difference(first: Log, second: Log, context: int = 3) -> str | None:
    """Says where two logs first differ, in the total order and for the source that is there; None where they are equal."""
    for index, (a, b) in enumerate(zip_longest(first.ops, second.ops)):
        if a == b:
            continue
        lines = [f"{len(first.ops)} and {len(second.ops)} ops; the first difference is at op {index}:"]
        lines += [f"    {op}" for op in first.ops[max(0, index - context) : index]]
        lines += [f"  A {a or 'ends'}", f"  B {b or 'ends'}"]
        if a is not None and b is not None:
            lines.append(f"    differ in: {_compared(a, b)}")
        lines += _of_one_source(first, second)
        return "\n".join(lines)
    return None if first.end == second.end else f"equal ops, but the last ends at {first.end} and {second.end}"


def _of_one_source(first: Log, second: Log) -> list[str]:
    """The earliest difference in what a rank's stream or host does, times of waiting left out: mostly the cause."""
    lists: list[dict[str, list[Op]]] = []
    for log in (first, second):
        by_source: dict[str, list[Op]] = {}
        for op in log.ops:
            by_source.setdefault(op.source, []).append(op)
        lists.append(by_source)
    causes: list[tuple[int, str, Op | None, Op | None]] = []
    for source in sorted(set(lists[0]) | set(lists[1])):
        for a, b in zip_longest(lists[0].get(source, []), lists[1].get(source, [])):
            if a is None or b is None or (a.sequence, a.kind, a.what, a.issue) != (b.sequence, b.kind, b.what, b.issue):
                causes.append((min(op.issue for op in (a, b) if op is not None), source, a, b))
                break
    if not causes:
        return ["every source issues the same at the same times: only starts and ends differ"]
    lines = ["first difference in what a source issues, earliest first:"]
    for _, _, a, b in sorted(causes, key=lambda cause: cause[:2])[:4]:
        lines += [f"  A {a or 'ends'}", f"  B {b or 'ends'}"]
        if a is not None and b is not None and a.what == b.what:
            lines.append(f"    differ in: {_compared(a, b)} (issue by {b.issue - a.issue} ns)")
    return lines


def read(path: Path) -> Log:
    """Reads a run directory's log, or the file itself."""
    return Log(oplog.read(path))


def main() -> int:
    """Entry point: 0 equal, 1 different, 2 usage."""
    if len(sys.argv) != 3:
        print(__doc__, file=sys.stderr)
        return 2
    first, second = (read(Path(argument)) for argument in sys.argv[1:])
    text = difference(first, second)
    print(text or f"equal: {len(first.ops)} ops")
    return int(text is not None)


if __name__ == "__main__":
    sys.exit(main())
