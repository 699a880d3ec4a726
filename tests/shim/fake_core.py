"""A small stand-in for the simulator core: enough of wire.hpp to try the shim's clock against exact expectations.

It serves the rings and the socket, keeps events in (time, rank) order and processes one when every running actor has
passed it. When nothing moves it parks actors that say they are blocked outside, and lets the earliest deadline pass.
"""

from __future__ import annotations

import ctypes
import heapq
import json
import mmap
import os
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

UNRESOLVED = 2**64 - 1
KERNEL_NS = 1_000
LIBC = ctypes.CDLL(None, use_errno=True)
FUTEX = 202

PROBE = r"""
#include <cstdio>
#include "phantora/wire.hpp"
using namespace phantora::wire;
#define H(f) std::printf("\"header.%s\": %zu,\n", #f, offsetof(RunHeader, f))
#define A(f) std::printf("\"actor.%s\": %zu,\n", #f, offsetof(ActorBlock, f))
int main() {
  std::printf("{\n");
  H(magic); H(version); H(header_bytes); H(build_id); H(world_size); H(gpus_per_node); H(actor_count); H(ring_slots);
  H(device_offset); H(name_offset); H(clock_offset); H(actor_offset); H(actor_stride); H(total_bytes); H(epoch_ns);
  H(seed); H(clock_mode); H(cpu_count); H(rpc_name); H(rpc_token); H(host_cost_ns); H(global_ns); H(doorbell);
  H(core_asleep); H(run_state);
  A(state); A(rank); A(pid); A(device); A(host_ns); A(head); A(tail); A(space_futex); A(producer_waits); A(outside);
  A(parked); A(floor_ns); A(timed_wait_ns); A(timer_futex); A(next_timer_ns); A(wait); A(streams); A(events);
  std::printf("\"sizeof.header\": %zu, \"sizeof.actor\": %zu, \"record_offset\": %zu, \"sizeof.wait\": %zu, ",
              sizeof(RunHeader), sizeof(ActorBlock), (size_t)record_offset, sizeof(WaitSlot));
  std::printf("\"magic\": %llu }\n", (unsigned long long)kMagic);
}
"""

KERNEL, MEMSET, EVENT_RECORD, WAIT, QUERY, SLEEP, MARK, EXIT = 1, 4, 5, 8, 9, 11, 12, 15
HELLO, NAME, NOTE, ATTACH, ORDER, LOCK, UNLOCK = 1, 2, 3, 4, 15, 16, 17
_MASK = 2**64 - 1


def record_check(raw: bytes) -> int:
    """wire::record_check in Python, from the specification in wire.hpp."""
    index, issue, _check, kind, device, stream, sequence = struct.unpack_from("<QQIBBHQ", raw)
    total = 0x9E3779B97F4A7C15
    for word in (index, issue, kind | device << 8 | stream << 16, sequence, *struct.unpack_from("<12Q", raw, 32)):
        total = ((total ^ word) * 0xFF51AFD7ED558CCD) & _MASK
        total ^= total >> 32
    return (total ^ (total >> 29)) & 0xFFFFFFFF


def layout(root: Path, folder: Path) -> dict[str, int]:
    """Offsets as the compiler sees them."""
    source, probe = folder / "probe.cpp", folder / "probe"
    source.write_text(PROBE)
    subprocess.run(
        ["g++", "-std=c++20", "-Wno-invalid-offsetof", "-I", root / "shim/include", source, "-o", probe], check=True
    )
    return json.loads(subprocess.run([probe], check=True, capture_output=True, text=True).stdout)


@dataclass
class Record:
    """One record as drained."""

    kind: int
    issue_ns: int
    stream: int
    sequence: int
    raw: bytes


@dataclass
class Actor:
    """What the core knows of one actor."""

    index: int
    rank: int
    running: bool = True
    live: bool = False
    exited: bool = False
    records: list[Record] = field(default_factory=list)
    tails: dict[int, int] = field(default_factory=dict)
    idle_looks: int = 0
    exit_status: int | None = None
    floor: int = 0


class FakeCore:
    """Serves one segment until closed."""

    def __init__(
        self,
        root: Path,
        folder: Path,
        build_id: str,
        world: int = 1,
        *,
        per_node: int = 8,
        seed: int = 7,
        epoch_ns: int = 1_700_000_000_000_000_000,
        costs: dict[int, int] | None = None,
        cpus: int = 3,
        slots: int = 256,
    ) -> None:
        self.at = layout(root, folder)
        self.world, self.slots, self.epoch_ns = world, slots, epoch_ns
        self.actor_count = world + 4
        device = self._up(self.at["sizeof.header"])
        names = self._up(device + world * 64)
        clocks = self._up(names + 16384 * 8)
        actors = self._up(clocks + 4096 * 16)
        self.stride = self._up(self.at["record_offset"] + slots * 128)
        self.clock_offset, self.actor_offset = clocks, actors
        total = actors + self.actor_count * self.stride
        self.fd = os.memfd_create("fake-core")
        os.ftruncate(self.fd, total)
        self.map = mmap.mmap(self.fd, total)
        self.base = ctypes.addressof(ctypes.c_char.from_buffer(self.map))
        name = f"phantora-test-{os.getpid()}-{id(self):x}"
        for key, value in {
            "version": (1, "I"),
            "header_bytes": (self.at["sizeof.header"], "I"),
            "world_size": (world, "I"),
            "gpus_per_node": (per_node, "I"),
            "actor_count": (self.actor_count, "I"),
            "ring_slots": (slots, "I"),
            "device_offset": (device, "Q"),
            "name_offset": (names, "Q"),
            "clock_offset": (clocks, "Q"),
            "actor_offset": (actors, "Q"),
            "actor_stride": (self.stride, "Q"),
            "total_bytes": (total, "Q"),
            "epoch_ns": (epoch_ns, "q"),
            "seed": (seed, "Q"),
            "clock_mode": (1, "I"),
            "cpu_count": (cpus, "I"),
            "rpc_token": (99, "Q"),
            "run_state": (1, "I"),
            "magic": (self.at["magic"], "Q"),
        }.items():
            struct.pack_into("<" + value[1], self.map, self.at["header." + key], value[0])
        for kind, cost in (costs or {}).items():
            struct.pack_into("<Q", self.map, self.at["header.host_cost_ns"] + 8 * kind, cost)
        self._text("build_id", build_id)
        self._text("rpc_name", name)
        self.actors = [Actor(index, index) for index in range(world)]
        for actor in self.actors:
            self._put(actor, "rank", actor.rank)
            self._put(actor, "device", actor.rank % per_node)
        self.events: list[tuple[int, int, int, Callable[[int], None]]] = []
        self.pushed = 0
        self.locks: dict[str, int] = {}
        self.queues: dict[str, list[tuple[int, Actor, Callable[..., None]]]] = {}
        self.order: list[tuple[int, int, str]] = []  # (h, rank, what) in the order served
        self.names: dict[int, str] = {}
        self.notes: list[tuple[str, str]] = []
        self.requests = 0
        self.now = 0
        self.cpu_seen: dict[int, list[tuple[str, str]]] = {}
        self.errors: list[str] = []
        self.guard = threading.RLock()
        self.closing = False
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind("\0" + name)
        self.listener.listen(64)
        threading.Thread(target=self._accept, daemon=True).start()
        self.thread = threading.Thread(target=self._serve, daemon=True)
        self.thread.start()

    @property
    def segment(self) -> str:
        """Value for PHANTORA_SEGMENT."""
        return f"/proc/{os.getpid()}/fd/{self.fd}"

    def end(self) -> None:
        """Ends the run for all."""
        struct.pack_into("<I", self.map, self.at["header.run_state"], 2)

    def close(self) -> None:
        """Stops serving."""
        self.closing = True
        self.thread.join()
        self.listener.close()
        os.close(self.fd)

    def child_clock(self, pid: int) -> int | None:
        """The final clock that a child left."""
        found, clock = struct.unpack_from("<QQ", self.map, self.clock_offset + 16 * (pid % 4096))
        return clock if found == pid else None

    def h(self, index: int) -> int:
        """The published H of an actor."""
        return self._get(self.actors[index], "host_ns", "Q")

    # ---- memory

    @staticmethod
    def _up(value: int) -> int:
        return (value + 4095) // 4096 * 4096

    def _text(self, key: str, text: str) -> None:
        offset = self.at["header." + key]
        self.map[offset : offset + len(text)] = text.encode()

    def _offset(self, actor: Actor, key: str) -> int:
        return self.actor_offset + actor.index * self.stride + self.at["actor." + key]

    def _get(self, actor: Actor, key: str, code: str = "I") -> int:
        return int(struct.unpack_from("<" + code, self.map, self._offset(actor, key))[0])

    def _put(self, actor: Actor, key: str, value: int, code: str = "I") -> None:
        struct.pack_into("<" + code, self.map, self._offset(actor, key), value)

    def _wake(self, offset: int) -> None:
        LIBC.syscall(FUTEX, ctypes.c_void_p(self.base + offset), 1, 2**31 - 1, None, None, 0)

    # ---- rings

    def _drain(self, actor: Actor) -> bool:
        head, tail = self._get(actor, "head", "Q"), self._get(actor, "tail", "Q")
        ring = self.actor_offset + actor.index * self.stride + self.at["record_offset"]
        for index in range(tail, head):
            start = ring + index % self.slots * 128
            raw = bytes(self.map[start : start + 128])
            number, issue, check, kind, _device, stream, sequence = struct.unpack_from("<QQIBBHQ", raw)
            if number != index or check != record_check(raw):
                self.errors.append(f"actor {actor.index}: malformed record {index}")
            if actor.records and issue < actor.records[-1].issue_ns:
                self.errors.append(f"actor {actor.index}: issue time went back at record {index}")
            actor.records.append(Record(kind, issue, stream, sequence, raw))
            self._handle(actor, actor.records[-1])
        if head != tail:
            self._put(actor, "tail", head, "Q")
            if self._get(actor, "producer_waits"):
                self._put(actor, "space_futex", self._get(actor, "space_futex") + 1)
                self._wake(self._offset(actor, "space_futex"))
        return head != tail

    def _handle(self, actor: Actor, record: Record) -> None:
        actor.running = True
        slot = struct.unpack_from("<I", record.raw, 32)[0]
        if record.kind in (KERNEL, MEMSET):
            actor.tails[record.stream] = max(actor.tails.get(record.stream, 0), record.issue_ns) + KERNEL_NS
        elif record.kind == WAIT:
            actor.running = False
            done = max(record.issue_ns, actor.tails.get(record.stream, 0))
            self._push(done, actor, lambda now, slot=slot: self._answer(actor, slot, now, now))
        elif record.kind == QUERY:
            done = actor.tails.get(record.stream, 0) <= record.issue_ns
            self._answer(actor, slot, record.issue_ns, int(done))
        elif record.kind == SLEEP:
            actor.running = False
            until = struct.unpack_from("<Q", record.raw, 40)[0]
            self._push(until, actor, lambda now, slot=slot: self._answer(actor, slot, now, 0))
        elif record.kind == EXIT:
            actor.exited, actor.running = True, False
            actor.exit_status = struct.unpack_from("<i", record.raw, 32)[0]

    def _push(self, when: int, actor: Actor, action: Callable[[int], None]) -> None:
        self.pushed += 1
        heapq.heappush(self.events, (max(when, self.now), actor.index, self.pushed, action))

    def _answer(self, actor: Actor, slot: int, resume: int, value: int) -> None:
        offset = self._offset(actor, "wait") + slot * self.at["sizeof.wait"]
        actor.running = True
        struct.pack_into("<IQQ", self.map, offset + 4, 0, 0, 0)
        struct.pack_into("<I", self.map, offset + 4, 0)
        struct.pack_into("<QQ", self.map, offset + 8, resume, value)
        struct.pack_into("<I", self.map, offset, 2)
        self._wake(offset)

    # ---- time

    def _bound(self, actor: Actor) -> int:
        if actor.exited or not actor.running:
            return UNRESOLVED
        return max(self._get(actor, "host_ns", "Q"), actor.floor)

    def _set_time(self, now: int) -> None:
        if now <= self.now:
            return
        self.now = now
        struct.pack_into("<Q", self.map, self.at["header.global_ns"], now)
        for actor in self.actors:
            if (
                min(self._get(actor, "next_timer_ns", "Q"), self._get(actor, "timed_wait_ns", "Q")) <= now
                and actor.live
            ):
                self._put(actor, "timer_futex", self._get(actor, "timer_futex") + 1)
                self._wake(self._offset(actor, "timer_futex"))

    def _step(self) -> bool:
        bounds = [self._bound(actor) for actor in self.actors]
        moved = False
        while self.events and self.events[0][0] < min(bounds):
            when, index, _number, action = heapq.heappop(self.events)
            self._set_time(when)
            self.actors[index].floor = when
            action(when)
            moved = True
            bounds = [self._bound(actor) for actor in self.actors]
        known = min(bounds + [event[0] for event in self.events[:1]])
        if known != UNRESOLVED:
            self._set_time(known)
        return moved

    def _busy(self, pid: int) -> bool:
        """Does the process or one below it run, or has it used CPU time since the last look?"""
        parents: dict[int, list[int]] = {}
        states: dict[int, str] = {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    fields = (entry / "stat").read_text().rpartition(")")[2].split()
                except OSError:
                    continue
                states[int(entry.name)] = fields[0]
                parents.setdefault(int(fields[1]), []).append(int(entry.name))
        family, todo = [], [pid]
        while todo:
            family.append(todo.pop())
            todo += parents.get(family[-1], [])
        used, runs = [], False
        for member in family:
            try:
                threads = list(Path(f"/proc/{member}/task").iterdir())
            except OSError:  # it has ended meanwhile
                continue
            for thread in threads:
                try:
                    used.append((thread.name, (thread / "schedstat").read_text().split()[0]))
                    runs = runs or (thread / "stat").read_text().rpartition(")")[2].split()[0] in "RD"
                except OSError:
                    continue
        changed = used != self.cpu_seen.get(pid)
        self.cpu_seen[pid] = used
        return runs or changed

    def _force(self) -> None:
        """Nothing moves: parks actors blocked outside, and lets the earliest event or deadline pass."""
        candidates: list[tuple[int, Actor]] = []
        for actor in self.actors:
            if actor.live and not actor.exited:
                if actor.running and not self._get(actor, "outside"):
                    return
                candidates.append((self._get(actor, "next_timer_ns", "Q"), actor))
                if actor.running:
                    candidates.append((self._get(actor, "timed_wait_ns", "Q"), actor))
            elif not actor.exited:
                return
        looks = [self._busy(self._get(actor, "pid")) for actor in self.actors if actor.live and not actor.exited]
        if any(looks):
            return
        when, actor = min(candidates, key=lambda pair: pair[0], default=(UNRESOLVED, None))
        if self.events and self.events[0][0] <= when:
            event = heapq.heappop(self.events)
            self._set_time(event[0])
            event[3](event[0])
            when = event[0]
        elif when == UNRESOLVED or actor is None:
            return
        for other in self.actors:
            if other.running and self._get(other, "outside"):
                self._put(other, "floor_ns", when, "Q")
        self._set_time(when)

    def _serve(self) -> None:
        quiet = 0
        while not self.closing:
            with self.guard:
                moved = False
                for actor in self.actors:
                    actor.live = actor.live or self._get(actor, "state") == 2
                    moved = self._drain(actor) or moved
                moved = self._step() or moved
                h = tuple(self._get(actor, "host_ns", "Q") for actor in self.actors)
                if moved or h != getattr(self, "_last_h", None):
                    quiet = 0
                self._last_h = h
                quiet += 1
                if quiet > 20:
                    self._force()
                    quiet = 0
            time.sleep(0.0005)

    # ---- socket

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._talk, args=(connection,), daemon=True).start()

    def _talk(self, connection: socket.socket) -> None:
        def take(count: int) -> bytes:
            data = b""
            while len(data) < count:
                part = connection.recv(count - len(data))
                if not part:
                    raise EOFError
                data += part
            return data

        def reply(sequence: int, resume: int, body: bytes = b"") -> None:
            connection.sendall(struct.pack("<IIIIQ", len(body), 0, sequence, 0, resume) + body)

        try:
            while True:
                size, kind, driving, _, index, sequence, h = struct.unpack("<IHBBIIQ", take(24))
                body = take(size)
                with self.guard:
                    self.requests += 1
                    self._request(
                        kind, driving, index, h, body, lambda resume, out=b"", s=sequence: reply(s, resume, out)
                    )
        except (EOFError, OSError):
            connection.close()

    def _request(self, kind: int, driving: int, index: int, h: int, body: bytes, reply: Callable[..., None]) -> None:
        def text(offset: int = 0) -> tuple[str, int]:
            size = struct.unpack_from("<I", body, offset)[0]
            return body[offset + 4 : offset + 4 + size].decode(), offset + 4 + size

        if kind == HELLO:
            if struct.unpack_from("<Q", body)[0] != 99:
                self.errors.append("hello with a wrong token")
            return reply(0)
        if kind == NAME:
            self.names[struct.unpack_from("<Q", body)[0]] = text(8)[0]
            return reply(0)
        if kind == NOTE:
            first, rest = text()
            self.notes.append((first, text(rest)[0]))
            return reply(0)
        if kind == ATTACH:
            rank, _pid = struct.unpack_from("<II", body)
            actor = Actor(len(self.actors), rank)
            self.actors.append(actor)
            self._put(actor, "rank", rank)
            actor.floor = max(h, self.now)
            return reply(max(h, self.now), struct.pack("<I", actor.index))
        if not driving:
            return reply(0, b"\1")
        actor = self.actors[index]
        self._drain(actor)
        actor.running = False

        def answer(now: int, body: bytes = b"") -> None:
            actor.running, actor.floor = True, now
            reply(now, body)

        def act(now: int) -> None:
            what, rest = text()
            if kind == LOCK and self.locks.get(what, index) != index:
                if body[rest + 1]:
                    return answer(now, b"\0")
                return self.queues.setdefault(what, []).append((h, actor, answer))
            self.order.append((h, actor.rank, what))
            if kind == LOCK:
                self.locks[what] = index
            if kind == UNLOCK:
                self.locks.pop(what, None)
                if self.queues.get(what):
                    since, other, granted = self.queues[what].pop(0)
                    self.locks[what] = other.index
                    self.order.append((since, other.rank, what))
                    granted(now, b"\1")
            return answer(now, b"\1" if kind == LOCK else b"")

        self._push(h, actor, act)
        return None
