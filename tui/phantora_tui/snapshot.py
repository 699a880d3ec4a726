"""What is known of a run at one moment: built from lines of its event stream, read by widgets.

Every line may be cut short, unknown or nonsense (a script can write anything into its run directory): such lines are
counted and left out.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

_MAX_NOTES = 200
_ABOVE = 2**64


@dataclass(frozen=True)
class Step:
    """One step of rank 0; the four parts add up to its duration."""

    index: int
    duration_ns: int
    compute_ns: int
    communication_ns: int
    host_ns: int
    idle_ns: int


class Rank(NamedTuple):
    """One rank. Shares are of the time between two looks at it and may overlap; an ended one holds its peak."""

    rank: int
    state: str
    h_ns: int
    steps: int
    used_bytes: int
    compute: float = 0.0
    communication: float = 0.0
    host: float = 0.0

    @property
    def waits(self) -> bool:
        """It waits for something: its state says for what."""
        return self.state not in ("runs", "ended", "starts")

    @property
    def idle(self) -> float:
        """Neither its GPU nor its host worked."""
        return max(0.0, 1.0 - max(self.compute, self.communication, self.host))


class StreamWork(NamedTuple):
    """What one stream of a rank did in the rank's last whole step; `late_ns` of its communication waited for peers."""

    device: int  # on its node
    stream: int  # 0: the default stream
    ops: int
    compute_ns: int
    communication_ns: int
    late_ns: int


class RankDetails(NamedTuple):
    """What only one rank's page shows: memory by kind when it held most, and its last step by stream."""

    peak_bytes: int
    context_bytes: int
    communicator_bytes: int
    library_bytes: int
    reserved_peak_bytes: int  # by torch's own statistics; 0 until the rank ends
    allocated_peak_bytes: int
    step_ns: int  # on the rank's own host clock; 0: no step yet
    streams: tuple[StreamWork, ...] = ()

    @property
    def allocations_bytes(self) -> int:
        """What cudaMalloc and the like gave out."""
        return max(0, self.peak_bytes - self.context_bytes - self.communicator_bytes - self.library_bytes)


@dataclass(frozen=True)
class Kernel:
    """A kernel or library call by name, over all ranks; `source` says how its duration is known."""

    label: str
    launches: int
    time_ns: int
    source: str


@dataclass(frozen=True)
class Waiting:
    """The first collective of a communicator that has not begun."""

    group: str
    op: str
    sequence: int
    size: int
    inside: int
    ranks_in: tuple[int, ...]
    ranks_missing: tuple[int, ...]


@dataclass(frozen=True)
class Snapshot:
    """All a view shows. Times in nanoseconds of virtual time unless the name says otherwise."""

    world_size: int = 0
    gpus_per_node: int = 8
    gpu: str = ""
    clock: str = ""
    capacity_bytes: int = 0
    steps_wanted: int | None = None
    warmup: int = 1
    at_ns: int = 0
    real_ms: int = 0
    started: bool = False
    ranks: tuple[Rank, ...] = ()
    rank_details: tuple[RankDetails, ...] = ()
    steps: tuple[Step, ...] = ()
    kernels: tuple[Kernel, ...] = ()
    waiting: tuple[Waiting, ...] = ()
    peak_bytes: int = 0
    notes: tuple[str, ...] = ()
    verdict: str = ""
    message: str = ""
    details: dict[str, Any] = field(default_factory=dict)  # oom, hang, mismatch: as in report.json
    ended: bool = False
    bad_lines: int = 0

    @property
    def speed(self) -> float:
        """Virtual seconds per real second."""
        return self.at_ns / 1e6 / self.real_ms if self.real_ms else 0.0

    @property
    def step_text(self) -> str:
        """`step 4 of 10`, for people."""
        wanted = f" of {self.steps_wanted}" if self.steps_wanted else ""
        return f"step {len(self.steps)}{wanted}"

    @property
    def steady(self) -> tuple[Step, ...]:
        """Steps after the warm-up; all of them where there are no others."""
        return self.steps[self.warmup :] or self.steps

    @property
    def step_ns(self) -> int | None:
        """Median duration of the steady steps."""
        times = sorted(step.duration_ns for step in self.steady)
        return times[len(times) // 2] if times else None


class Builder:
    """Takes lines in; gives snapshots out."""

    def __init__(self) -> None:
        self.snapshot = Snapshot()
        self._before: dict[int, tuple[int, int, int, int]] = {}
        self._shares: dict[int, tuple[float, ...]] = {}
        self._peaks: dict[int, int] = {}

    def feed(self, text: bytes | str) -> None:
        """Takes in one line."""
        if not text.strip():
            return
        try:
            line = json.loads(text)
            kind = line["type"]
            take = getattr(self, f"_take_{kind}", None) if isinstance(kind, str) else None
            if take is not None:
                take(line)
                if kind != "report":
                    self._set(at_ns=max(self.snapshot.at_ns, _whole(line.get("at_ns", 0))))
        except (ValueError, KeyError, TypeError, IndexError, AttributeError, OverflowError, RecursionError):
            self._set(bad_lines=self.snapshot.bad_lines + 1)

    def feed_all(self, lines: Sequence[bytes | str]) -> Snapshot:
        """Takes in lines and returns what is known then."""
        for line in lines:
            self.feed(line)
        return self.snapshot

    def _set(self, **changes: Any) -> None:
        self.snapshot = replace(self.snapshot, **changes)

    def _take_run(self, line: dict[str, Any]) -> None:
        steps = str(line.get("steps", "all"))
        self._set(
            world_size=_whole(line["world_size"]),
            gpus_per_node=max(1, _whole(line["gpus_per_node"])),
            gpu=str(line.get("gpu", "")),
            clock=str(line.get("clock", "")),
            capacity_bytes=_whole(line.get("capacity_bytes", 0)),
            steps_wanted=int(steps) if steps.isdigit() else None,
            warmup=_whole(line.get("warmup", 1)),
        )

    def _take_started(self, _line: dict[str, Any]) -> None:
        self._set(started=True)

    def _take_ranks(self, line: dict[str, Any]) -> None:
        names = [str(name) for name in line["states"]]
        keys = ("state", "h_ns", "steps", "used_bytes", "compute_ns", "communication_ns", "waited_ns")
        ranks = []
        for number, (state, h, steps, used, compute, communication, waited) in enumerate(
            zip(*(_column(line[key]) for key in keys), strict=True)
        ):
            ended = names[state] == "ended"
            shares = self._shares_of(number, ended, h, compute, communication, waited)
            # What it held is given back in pieces while it ends: then its peak says more.
            self._peaks[number] = max(self._peaks.get(number, 0), used)
            ranks.append(Rank(number, names[state], h, steps, self._peaks[number] if ended else used, *shares))
        peak = max([self.snapshot.peak_bytes, *self._peaks.values()])
        self._set(ranks=tuple(ranks), real_ms=_whole(line.get("real_ms", 0)), peak_bytes=peak)

    def _shares_of(
        self, rank: int, ended: bool, h: int, compute: int, communication: int, waited: int
    ) -> tuple[float, ...]:
        """Since the last look at which its clock had moved on; once it ends, what it was before."""
        before = self._before.get(rank, (0, 0, 0, 0))
        spent = h - before[0]
        if spent > 0 and not (ended and rank in self._shares):
            parts = (compute - before[1], communication - before[2], spent - (waited - before[3]))
            self._shares[rank] = tuple(min(1.0, max(0.0, part / spent)) for part in parts)
            self._before[rank] = (h, compute, communication, waited)
        return self._shares.get(rank, (0.0, 0.0, 0.0))

    def _take_details(self, line: dict[str, Any]) -> None:
        columns = [_column(line[key]) for key in RankDetails._fields[:-1]]
        streams = (tuple(StreamWork(*_column(one)) for one in each) for each in line["streams"])
        details = tuple(RankDetails(*one) for one in zip(*columns, streams, strict=True))
        for number, one in enumerate(details):
            self._peaks[number] = max(self._peaks.get(number, 0), one.peak_bytes)
        peak = max([self.snapshot.peak_bytes, *self._peaks.values()])
        self._set(rank_details=details, peak_bytes=peak)

    def _take_step(self, line: dict[str, Any]) -> None:
        keys = ("duration_ns", "compute_ns", "communication_exposed_ns", "host_exposed_ns", "idle_ns")
        step = Step(_whole(line["index"]), *(_whole(line[key]) for key in keys))
        if not self.snapshot.steps or step.index > self.snapshot.steps[-1].index:
            self._set(steps=(*self.snapshot.steps, step))

    def _take_kernels(self, line: dict[str, Any]) -> None:
        kernels = tuple(
            Kernel(str(one["label"]), _whole(one["launches"]), _whole(one["time_ns"]), str(one["source"]))
            for one in line["kernels"]
        )
        self._set(kernels=kernels)

    def _take_waiting(self, line: dict[str, Any]) -> None:
        waiting = (_waiting(one, _whole(one["size"]), _whole(one["in"])) for one in line["communicators"])
        self._set(waiting=tuple(waiting))

    def _take_note(self, line: dict[str, Any]) -> None:
        self._set(notes=(*self.snapshot.notes, str(line["text"]))[-_MAX_NOTES:])

    def _take_verdict(self, line: dict[str, Any]) -> None:
        self._set(verdict=str(line["verdict"]), message=str(line["message"]))

    def _take_end(self, line: dict[str, Any]) -> None:
        details = {key: line[key] for key in ("hang", "mismatch") if line.get(key)}
        stuck = [one for one in (line.get("hang") or {}).get("communicators", ()) if "ranks_missing" in one]
        waiting = tuple(
            _waiting(one, len(one["ranks_in"]) + len(one["ranks_missing"]), len(one["ranks_in"])) for one in stuck
        )
        self._set(verdict=str(line["verdict"]), message=str(line["message"]), details=details, waiting=waiting)

    def _take_report(self, line: dict[str, Any]) -> None:
        details = dict(self.snapshot.details)
        if line.get("oom"):
            details["oom"] = line["oom"]
        self._set(
            verdict=str(line["verdict"]),
            message=str(line["message"]),
            details=details,
            notes=tuple(str(note) for note in line.get("notes", ()))[-_MAX_NOTES:],
            peak_bytes=max(self.snapshot.peak_bytes, _whole(line.get("peak_device_bytes", 0))),
            ended=True,
        )


def _waiting(one: dict[str, Any], size: int, inside: int) -> Waiting:
    ranks = (tuple(map(_whole, one[key])) for key in ("ranks_in", "ranks_missing"))
    return Waiting(str(one["group"]), str(one["op"]), _whole(one["sequence"]), size, inside, *ranks)


def _column(values: Any) -> list[int]:
    """Many counts; as _whole, but faster."""
    if not isinstance(values, list) or any(type(value) is not int for value in values):
        raise ValueError("not a list of counts")
    if values and not (min(values) >= 0 and max(values) < _ABOVE):
        raise ValueError("a count out of range")
    return values


def _whole(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < _ABOVE:
        raise ValueError(f"not a count: {value!r}")
    return value
