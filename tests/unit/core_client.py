"""Drives the real phantora-core from pure Python: the segment through mmap, the socket, records as in wire.hpp.

A test plays the ranks: each `Rank` is one actor, used from one thread at a time. Offsets are asked of wire.hpp itself by a
small C++ program, so that a changed contract cannot pass unnoticed.
"""

from __future__ import annotations

import ctypes
import functools
import json
import mmap
import os
import shutil
import socket
import struct
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
UNRESOLVED = 2**64 - 1
FOREVER = 2**62
MASK = 2**64 - 1
LIBC = ctypes.CDLL(None, use_errno=True)
SYS_FUTEX = 202

KERNEL, GEMM, MEMCPY, MEMSET, EVENT_RECORD, STREAM_WAIT, COLLECTIVE = range(1, 8)
WAIT, QUERY, ELAPSED, SLEEP, MARK, MEMORY, HOST_WORK, EXIT = range(8, 16)
ON_STREAM, ON_EVENT, ON_DEVICE, RESUME = range(1, 5)
ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, BROADCAST, REDUCE, ALL_TO_ALL, SEND, RECV, GATHER, SCATTER, BARRIER = range(
    1, 12
)
FIRST_FORWARD, OPTIMIZER_STEP, BACKWARD, TEXT, OUT_OF_MEMORY, PHASE = range(1, 7)
(
    HELLO, NAME, NOTE, ATTACH_CHILD, STORE_SET, STORE_GET, STORE_ADD, STORE_WAIT, STORE_CHECK, STORE_DELETE,
    STORE_COMPARE_SET, STORE_COUNT, STORE_APPEND, STORE_LIST, ORDER, LOCK, UNLOCK, COMM_INIT, COMM_SPLIT, COMM_INFO,
    COMM_DESTROY, POST, FETCH, HOST_COLLECTIVE, HOST_SEND, HOST_RECV, STACK_REPLY,
) = range(1, 28)  # fmt: skip
OK, TIMEOUT, REFUSED, MALFORMED, ABORTED, ENDING = range(6)

_PROBE = r"""
#include <cstdio>
#include "phantora/wire.hpp"
using namespace phantora::wire;
#define H(f) std::printf("\"header.%s\": %zu,\n", #f, offsetof(RunHeader, f))
#define A(f) std::printf("\"actor.%s\": %zu,\n", #f, offsetof(ActorBlock, f))
#define V(f) std::printf("\"%s\": %lu,\n", #f, static_cast<unsigned long>(f))
int main() {
  std::printf("{\n");
  H(magic); H(build_id); H(world_size); H(actor_count); H(ring_slots); H(device_offset); H(name_offset); H(clock_offset);
  H(actor_offset); H(actor_stride); H(total_bytes); H(rpc_name); H(rpc_token); H(host_cost_ns); H(gpu); H(global_ns);
  H(doorbell); H(core_asleep); H(run_state);
  A(state); A(rank); A(pid); A(device); A(host_ns); A(head); A(tail); A(outside); A(parked); A(floor_ns); A(timed_wait_ns);
  A(timer_futex); A(next_timer_ns); A(wait); A(streams); A(events); A(torch_reserved_peak);
  V(kMagic); V(kWaitSlots); V(kEventSlots); V(kStreamSlots); V(record_offset);
  Record r = {};
  r.index = 3; r.issue_ns = 5; r.type = RecordType::kGemm; r.device = 2; r.stream = 9; r.stream_sequence = 11;
  r.gemm.m = 1; r.gemm.k = 7; r.words[11] = 0xdeadbeefULL;
  std::printf("\"last_record_type\": %d, \"last_message_type\": %d, \"last_call\": %d, \"check_example\": %u }\n",
              static_cast<int>(RecordType::kCount), static_cast<int>(MessageType::kCount),
              static_cast<int>(CallKind::kCount), record_check(r));
}
"""


def find_core() -> Path | None:
    """Returns the binary under test: $PHANTORA_NATIVE, the checkout's build, or the installed package's."""
    folders = [os.environ.get("PHANTORA_NATIVE"), ROOT / "build" / "native", ROOT / "phantora" / "_native"]
    try:
        import phantora

        folders.append(Path(phantora.__file__).parent / "_native")
    except ImportError:
        pass
    for folder in folders:
        if folder and (Path(folder) / "phantora-core").is_file():
            return Path(folder) / "phantora-core"
    return None


@functools.cache
def layout() -> dict[str, int]:
    """Returns offsets and constants of wire.hpp as the compiler sees them."""
    compiler = os.environ.get("CXX") or shutil.which("g++") or "c++"
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "probe.cpp"
        source.write_text(_PROBE)
        binary = Path(folder) / "probe"
        command = [compiler, "-std=c++20", f"-I{ROOT / 'shim' / 'include'}", str(source), "-o", str(binary)]
        subprocess.run(command, check=True)
        return json.loads(subprocess.run([str(binary)], check=True, capture_output=True).stdout)


def record_check(raw: bytes) -> int:
    """wire::record_check."""
    index, issue, _check, kind, device, stream, sequence = struct.unpack_from("<QQIBBHQ", raw)
    total = 0x9E3779B97F4A7C15
    for word in (index, issue, kind | device << 8 | stream << 16, sequence, *struct.unpack_from("<12Q", raw, 32)):
        total = ((total ^ word) * 0xFF51AFD7ED558CCD) & MASK
        total ^= total >> 32
    return (total ^ (total >> 29)) & 0xFFFFFFFF


def name_hash(text: str) -> int:
    """wire::name_hash."""
    value = 0xCBF29CE484222325
    for byte in text.encode():
        value = ((value ^ byte) * 0x100000001B3) & MASK
    return value or 1


def text(value: str | bytes) -> bytes:
    """A string or blob of a message body."""
    data = value.encode() if isinstance(value, str) else value
    return struct.pack("<I", len(data)) + data


def texts(values: list[str]) -> bytes:
    return struct.pack("<I", len(values)) + b"".join(text(value) for value in values)


def read_blobs(body: bytes) -> list[bytes]:
    """A u32 count, then so many blobs."""
    (count,) = struct.unpack_from("<I", body)
    at, blobs = 4, []
    for _ in range(count):
        (length,) = struct.unpack_from("<I", body, at)
        blobs.append(body[at + 4 : at + 4 + length])
        at += 4 + length
    return blobs


class Ending(Exception):
    """The core ended the run while this rank waited."""


class Core:
    """One run of phantora-core."""

    def __init__(self, folder: Path, world: int = 1, **settings: Any) -> None:
        binary = find_core()
        assert binary is not None, "phantora-core is not built: make native"
        self.folder = folder
        self.world = world
        conf = {
            "world_size": world, "gpus_per_node": 8, "core.costs": "unit", "out_dir": folder, "extra_actors": 4,
            "ring_slots": 256, "gpu.total_bytes": 80 << 30, "core.ending_grace_ms": 3000,
        }  # fmt: skip
        conf.update({key.replace("__", "."): value for key, value in settings.items()})
        self._log = open(folder / "oplog", "wb")  # noqa: SIM115
        conf["oplog_fd"] = self._log.fileno()
        (folder / "core.conf").write_text("".join(f"{key} = {value}\n" for key, value in conf.items()))
        self.process = subprocess.Popen(
            [str(binary), str(folder / "core.conf")],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, pass_fds=[self._log.fileno()],
        )  # fmt: skip
        assert self.process.stdout is not None
        words = self.process.stdout.readline().decode().split()
        if not words:
            raise RuntimeError(self.process.communicate()[1].decode())
        fields = dict(word.split("=", 1) for word in words[1:])
        fd = os.open(fields["segment"], os.O_RDWR)
        self.memory = mmap.mmap(fd, os.fstat(fd).st_size)
        os.close(fd)
        self._address = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        assert self.u64("header.magic") == layout()["kMagic"]
        self.rpc_name = fields["rpc"]
        self.segment_path = fields["segment"]

    def u64(self, name: str, offset: int = 0) -> int:
        return int(struct.unpack_from("<Q", self.memory, layout()[name] + offset)[0])

    def u32(self, name: str, offset: int = 0) -> int:
        return int(struct.unpack_from("<I", self.memory, layout()[name] + offset)[0])

    def put_u64(self, at: int, value: int) -> None:
        # One aligned 8-byte store, which x86 does at once.
        ctypes.c_uint64.from_address(self._address + at).value = value

    def put_u32(self, at: int, value: int) -> None:
        ctypes.c_uint32.from_address(self._address + at).value = value

    def get_u64(self, at: int) -> int:
        return ctypes.c_uint64.from_address(self._address + at).value

    def get_u32(self, at: int) -> int:
        return ctypes.c_uint32.from_address(self._address + at).value

    def futex_wake(self, at: int) -> None:
        LIBC.syscall(SYS_FUTEX, ctypes.c_void_p(self._address + at), 1, 2**30, None, None, 0)

    def futex_wait(self, at: int, expected: int, seconds: float) -> None:
        class Timespec(ctypes.Structure):
            _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))

        timeout = Timespec(int(seconds), int(seconds % 1 * 1e9))
        LIBC.syscall(
            SYS_FUTEX, ctypes.c_void_p(self._address + at), 0, ctypes.c_uint32(expected), ctypes.byref(timeout), None, 0
        )

    def ring_doorbell(self) -> None:
        at = layout()["header.doorbell"]
        self.put_u32(at, (self.get_u32(at) + 1) & 0xFFFFFFFF)
        self.futex_wake(at)

    @property
    def global_ns(self) -> int:
        return self.u64("header.global_ns")

    def finish(self, seconds: float = 10.0) -> dict[str, Any]:
        """Waits for the core's end and returns core_report.json."""
        try:
            self.process.wait(seconds)
        finally:
            self.close()
        assert self.process.returncode == 0, self.stderr
        return self.report()

    def report(self) -> dict[str, Any]:
        return json.loads((self.folder / "core_report.json").read_text())

    def events(self, kind: str | None = None) -> list[dict[str, Any]]:
        lines = [json.loads(line) for line in (self.folder / "events.jsonl").read_text().splitlines()]
        return [line for line in lines if kind is None or line["type"] == kind]

    def oplog(self) -> bytes:
        return (self.folder / "oplog").read_bytes()

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        if self.process.stdout is not None and not self.process.stdout.closed:
            self.process.stdout.close()
            assert self.process.stderr is not None
            self.stderr = self.process.stderr.read().decode()
            self.process.stderr.close()
        self._log.close()


@contextmanager
def running(folder: Path, world: int = 1, **settings: Any) -> Iterator[tuple[Core, list[Rank]]]:
    """A core with all its ranks attached; killed at the end if it has not ended by itself."""
    folder.mkdir(parents=True, exist_ok=True)
    core = Core(folder, world, **settings)
    try:
        yield core, [Rank(core, index) for index in range(world)]
    finally:
        core.close()


@dataclass
class Answer:
    status: int
    resume_ns: int
    value: int


@dataclass
class Rank:
    """One actor. `h` is its clock; every call that the core answers moves it on."""

    core: Core
    index: int
    pid: int = 0
    h: int = 0
    head: int = 0
    sequences: dict[tuple[int, int], int] = field(default_factory=dict)
    generations: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        offsets = layout()
        self.base = self.core.u64("header.actor_offset") + self.index * self.core.u64("header.actor_stride")
        self.ring = self.base + offsets["record_offset"]
        self.slots = self.core.u32("header.ring_slots")
        self._socket: socket.socket | None = None
        self._lock = threading.Lock()
        self._slot = 0
        self.core.put_u32(self.at("pid"), self.pid or os.getpid())
        self.core.put_u32(self.at("state"), 2)
        self.core.ring_doorbell()

    def at(self, name: str) -> int:
        return self.base + layout()[f"actor.{name}"]

    # ---- records

    def record(
        self, kind: int, body: bytes, device: int = 0, stream: int = 0, sequence: int = 0, issue: int | None = None
    ) -> bytes:
        """A whole record for the next slot."""
        issue = self.h if issue is None else issue
        raw = bytearray(struct.pack("<QQIBBHQ", self.head, issue, 0, kind, device, stream, sequence))
        raw += body.ljust(96, b"\0")
        struct.pack_into("<I", raw, 16, record_check(bytes(raw)))
        return bytes(raw)

    def push_raw(self, raw: bytes) -> None:
        """Writes one slot and publishes it, whatever it holds."""
        while self.head - self.core.get_u64(self.at("tail")) >= self.slots:
            self.core.ring_doorbell()
            time.sleep(0.0005)
        at = self.ring + self.head % self.slots * 128
        self.core.memory[at : at + 128] = raw
        self.head += 1
        self.core.put_u64(self.at("head"), self.head)
        self.core.put_u64(self.at("host_ns"), self.h)

    def push(self, kind: int, body: bytes, device: int = 0, stream: int = 0, cost: int = 0) -> None:
        sequence = 0
        if KERNEL <= kind <= COLLECTIVE:
            key = (device if stream == 0 else -1, stream)
            sequence = self.sequences[key] = self.sequences.get(key, 0) + 1
        raw = self.record(kind, body, device, stream, sequence)
        self.h += cost
        self.push_raw(raw)

    def kernel(self, ns: int, stream: int = 1, name: str = "kernel", cost: int = 0) -> None:
        body = struct.pack("<Q3I3IIIQQQQ", name_hash(name), 1, 1, 1, 1, 1, 1, 0, 0, ns, 0, 0, 0)
        self.push(KERNEL, body, stream=stream, cost=cost)

    def gemm(self, m: int, n: int, k: int, stream: int = 1, cost: int = 0) -> None:
        self.push(
            GEMM, struct.pack("<4I8BQQ", m, n, k, 1, 10, 10, 10, 8, 0, 0, 0, 0, name_hash("gemm"), 0), 0, stream, cost
        )

    def copy(self, size: int, kind: int = 1, stream: int = 1, cost: int = 0) -> None:
        self.push(MEMCPY, struct.pack("<QBBB", size, kind, 1, 0), stream=stream, cost=cost)

    def event_record(self, event: int, stream: int = 1, cost: int = 0) -> None:
        self.generations[event] = self.generations.get(event, 0) + 1
        self.push(EVENT_RECORD, struct.pack("<II", event, self.generations[event]), stream=stream, cost=cost)

    def stream_wait(self, event: int, stream: int = 1, cost: int = 0) -> None:
        self.push(STREAM_WAIT, struct.pack("<II", event, self.generations.get(event, 0)), stream=stream, cost=cost)

    def collective(
        self, comm: int, kind: int, size: int, sequence: int, peer: int = -1, stream: int = 1, group: int = 0,
        last: bool = False, dtype: int = 8, count: int | None = None, cost: int = 0,
    ) -> None:  # fmt: skip
        count = size // 4 if count is None else count
        body = struct.pack("<IiBBBBIQQQ", comm, peer, kind, dtype, 0, int(last), group, count, size, sequence)
        self.push(COLLECTIVE, body, stream=stream, cost=cost)

    def mark(self, kind: int, value: int = 0, note: int = 0) -> None:
        self.push(MARK, struct.pack("<B7xQQ", kind, value, note))

    def exit(self, status: int = 0) -> None:
        self.push(EXIT, struct.pack("<i", status))
        self.core.ring_doorbell()
        if self._socket is not None:
            self._socket.close()

    # ---- waits

    def ask(self, kind: int, make: Callable[[int], bytes], device: int = 0, stream: int = 0) -> Answer:
        with self._lock:
            slot = self._slot
            self._slot = (slot + 1) % layout()["kWaitSlots"]
        at = self.at("wait") + slot * 24
        self.core.put_u32(at, 1)
        self.push(kind, make(slot), device, stream)
        self.core.ring_doorbell()
        deadline = time.monotonic() + 20
        while self.core.get_u32(at) != 2:
            self.core.futex_wait(at, 1, 1.0)
            assert time.monotonic() < deadline, f"rank {self.index}: no answer in 20 s"
            assert self.core.process.poll() is None or self.core.get_u32(at) == 2, "the core is gone"
        status, resume, value = struct.unpack_from("<IQQ", self.core.memory, at + 4)
        self.core.put_u32(at, 0)
        if status == ENDING:
            raise Ending
        return Answer(status, resume, value)

    def _join(self, answer: Answer) -> int:
        self.h = max(self.h, answer.resume_ns)
        self.core.put_u64(self.at("host_ns"), self.h)
        return self.h

    def wait_stream(self, stream: int = 1) -> int:
        return self._join(
            self.ask(WAIT, lambda slot: struct.pack("<IBB2xIIII", slot, ON_STREAM, 0, 0, 0, 0, 0), 0, stream)
        )

    def wait_event(self, event: int, generation: int | None = None) -> int:
        generation = self.generations.get(event, 0) if generation is None else generation
        return self._join(
            self.ask(WAIT, lambda slot: struct.pack("<IBB2xIIII", slot, ON_EVENT, 0, event, generation, 0, 0))
        )

    def wait_device(self) -> int:
        return self._join(self.ask(WAIT, lambda slot: struct.pack("<IBB2xIIII", slot, ON_DEVICE, 0, 0, 0, 0, 0)))

    def query_event(self, event: int, peek: bool = False) -> bool:
        generation = self.generations.get(event, 0)
        answer = self.ask(QUERY, lambda slot: struct.pack("<IBB2xIIII", slot, ON_EVENT, peek, event, generation, 0, 0))
        return bool(answer.value)

    def query_stream(self, stream: int = 1) -> bool:
        return bool(
            self.ask(QUERY, lambda slot: struct.pack("<IBB2xIIII", slot, ON_STREAM, 0, 0, 0, 0, 0), 0, stream).value
        )

    def elapsed(self, first: int, second: int) -> int:
        a, b = self.generations[first], self.generations[second]
        answer = self.ask(ELAPSED, lambda slot: struct.pack("<IBB2xIIII", slot, ON_EVENT, 0, first, a, second, b))
        self._join(answer)
        return answer.value

    def sleep(self, ns: int) -> int:
        until = self.h + ns
        return self._join(self.ask(SLEEP, lambda slot: struct.pack("<IIQ", slot, 0, until)))

    # ---- messages

    def request(self, kind: int, body: bytes = b"", driving: bool = True) -> tuple[int, bytes]:
        """Sends one message; returns status and body of the reply. The clock joins."""
        if self._socket is None:
            self._socket = connect(self.core, self.pid or os.getpid())
        self.core.put_u64(self.at("host_ns"), self.h)
        self._socket.sendall(struct.pack("<IHBBIIQ", len(body), kind, driving, 0, self.index, 7, self.h) + body)
        status, resume, reply = read_reply(self._socket)
        if status == ENDING:
            raise Ending
        if driving:
            self._join(Answer(status, resume, 0))
        return status, reply

    def name(self, name: str) -> int:
        self.request(NAME, struct.pack("<Q", name_hash(name)) + text(name), driving=False)
        return name_hash(name)

    def comm_init(self, size: int, rank: int, label: str = "world", key: str = "id") -> int:
        status, body = self.request(COMM_INIT, text(key) + struct.pack("<II", size, rank) + text(label))
        assert status == OK
        return int(struct.unpack("<I", body)[0])

    def store_set(self, key: str, value: bytes) -> None:
        assert self.request(STORE_SET, text("s") + text(key) + text(value))[0] == OK

    def store_get(self, key: str, timeout: int = FOREVER) -> tuple[int, bytes]:
        status, body = self.request(STORE_GET, text("s") + text(key) + struct.pack("<Q", timeout))
        return status, body[4:]

    def lock(self, key: str, shared: bool = False, only_try: bool = False, timeout: int = FOREVER) -> bool:
        status, body = self.request(LOCK, text(key) + struct.pack("<BBQ", shared, only_try, timeout))
        return status == OK and body == b"\1"

    def unlock(self, key: str) -> None:
        assert self.request(UNLOCK, text(key))[0] == OK

    def host_collective(
        self, group: str, sequence: int, size: int, rank: int, blob: bytes, timeout: int = FOREVER, cost: int = 0
    ) -> tuple[int, list[bytes]]:
        body = text(group) + struct.pack("<QIIQQ", sequence, size, rank, timeout, cost) + text(blob)
        status, reply = self.request(HOST_COLLECTIVE, body)
        return status, read_blobs(reply) if status == OK else []


def connect(core: Core, pid: int, token: int | None = None) -> socket.socket:
    """A connection that has said Hello."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(20)
    connection.connect("\0" + core.rpc_name)
    token = core.u64("header.rpc_token") if token is None else token
    hello = struct.pack("<QII", token, pid, 1)
    connection.sendall(struct.pack("<IHBBIIQ", len(hello), HELLO, 0, 0, 2**32 - 1, 1, 0) + hello)
    assert read_reply(connection)[0] == OK
    return connection


def read_reply(connection: socket.socket) -> tuple[int, int, bytes]:
    """Returns status, resume time and body."""

    def exactly(count: int) -> bytes:
        data = b""
        while len(data) < count:
            part = connection.recv(count - len(data))
            if not part:
                raise ConnectionError("the core closed the connection")
            data += part
        return data

    size, status, _sequence, _reserved, resume = struct.unpack("<IIIIQ", exactly(24))
    return status, resume, exactly(size)


def together(*parts: Callable[[], Any]) -> list[Any]:
    """Runs each part in a thread of its own and returns what they returned; the first exception is raised."""
    results: list[Any] = [None] * len(parts)
    errors: list[BaseException] = []

    def run(index: int, part: Callable[[], Any]) -> None:
        try:
            results[index] = part()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(index, part)) for index, part in enumerate(parts)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return results


def everyone(ranks: list[Rank], work: Callable[[Rank], Any]) -> list[Any]:
    """Runs `work(rank)` for all ranks at once."""
    return together(*[lambda rank=rank: work(rank) for rank in ranks])
