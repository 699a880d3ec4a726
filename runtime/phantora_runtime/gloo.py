"""ProcessGroupGloo, played by the core: CPU tensors travel as bytes with the clocks of those who send them.

A collective is one message of all members and ends for all at the latest of their clocks plus a cost. Sends return at
once; receives are done when the script waits for them.
"""

from __future__ import annotations

import contextlib
import functools
import os
import struct
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

from phantora_runtime.messages import Body, CoreTimeout, Message, call

_DEFAULT_TIMEOUT = timedelta(minutes=30)
# Loopback or one switch away: what gloo itself needs for a small collective. assumed
_LATENCY_NS = 50_000
_BYTES_PER_S = 3_000_000_000  # assumed: one TCP connection of gloo
_OPERATIONS = (
    *("allreduce", "reduce", "broadcast", "allgather", "all_gather_single", "_allgather_base", "gather", "scatter"),
    *("reduce_scatter", "reduce_scatter_single", "_reduce_scatter_base", "all_to_all_single", "alltoall_base"),
    *("alltoall", "barrier", "send"),  # what is coalesced is made of these
)
_kept_alive: list[Any] = []
_asked: list[Any] = [None]  # the Work whose future was asked for last


def cost_ns(byte_count: int) -> int:
    """Returns the virtual duration of a collective that moves this many bytes per member."""
    return _LATENCY_NS + byte_count * 10**9 // _BYTES_PER_S


@contextlib.contextmanager
def _free_of_charge() -> Iterator[None]:
    """Gloo itself runs no operators of torch: those that stand for it here cost the rank nothing."""
    autograd = sys.modules["torch"].autograd
    autograd._enable_record_function(False)
    try:
        yield
    finally:
        autograd._enable_record_function(True)


def _free(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def call_free(*arguments: Any, **named: Any) -> Any:
        with _free_of_charge():
            return method(*arguments, **named)

    return call_free


def install() -> None:
    """Puts the virtual backend in the place of ProcessGroupGloo."""
    torch = sys.modules["torch"]
    backend = _make_class()
    for module in (torch._C._distributed_c10d, torch.distributed.distributed_c10d, torch.distributed):
        if hasattr(module, "ProcessGroupGloo"):
            module.ProcessGroupGloo = backend
    _patch_work(torch._C._distributed_c10d.Work)


def _patch_work(work_class: Any) -> None:
    """The C++ holder of a Python Work does not forward these two; its future tells whose it is."""
    is_completed, source_rank = work_class.is_completed, work_class._source_rank

    def own_half(work: Any) -> Any:
        _asked[0] = None
        try:
            work.get_future()
        except RuntimeError:
            return None
        return _asked[0]

    def patched_is_completed(self: Any) -> bool:
        return bool(is_completed(self)) or own_half(self) is not None

    def patched_source_rank(self: Any) -> int:
        own = own_half(self)
        return int(source_rank(self) if own is None else own.source_rank())

    work_class.is_completed, work_class._source_rank = patched_is_completed, patched_source_rank


def _make_work_class() -> Any:
    torch = sys.modules["torch"]

    class VirtualWork(torch._C._distributed_c10d.Work):  # type: ignore[misc, name-defined]
        """One operation: done at once, or (receives) when it is waited for."""

        def __init__(self, result: list[Any], pending: Callable[[], int] | None = None) -> None:
            super().__init__()
            self._result = result
            self._pending = pending
            self._source = -1
            self._future = torch.futures.Future()
            if pending is None:
                self._future.set_result(result)

        def _finish(self) -> None:
            if self._pending is not None:
                pending, self._pending = self._pending, None
                with _free_of_charge():
                    self._source = pending()
                self._future.set_result(self._result)

        def wait(self, timeout: timedelta = timedelta(0)) -> bool:
            self._finish()
            return True

        def is_completed(self) -> bool:
            self._finish()
            return True

        def is_success(self) -> bool:
            return True

        def get_future(self) -> Any:
            _asked[0] = self
            self._finish()
            return self._future

        def result(self) -> list[Any]:
            self._finish()
            return self._result

        def source_rank(self) -> int:
            return self._source

        def _source_rank(self) -> int:
            return self._source

        def synchronize(self) -> None:
            self._finish()

    return VirtualWork


def _to_bytes(tensor: Any) -> bytes:
    torch = sys.modules["torch"]
    flat = tensor.detach().contiguous().cpu().reshape(-1)
    return bytes(flat.view(torch.uint8).numpy()) if flat.numel() else b""


def _from_bytes(data: bytes, like: Any) -> Any:
    torch = sys.modules["torch"]
    if not data:
        return torch.empty(0, dtype=like.dtype)
    return torch.frombuffer(bytearray(data), dtype=torch.uint8).view(like.dtype)


def _fill(tensor: Any, data: bytes) -> None:
    if len(data) != tensor.numel() * tensor.element_size():
        raise RuntimeError(
            f"gloo: a peer sent {len(data)} bytes where this rank expects {tensor.numel() * tensor.element_size()}."
        )
    if data:
        tensor.detach().copy_(_from_bytes(data, tensor).reshape(tensor.shape))


def reducer(operation: Any) -> Callable[[list[Any]], Any]:
    """Returns the function that reduces members' tensors, in member order."""
    torch = sys.modules["torch"]
    kind = getattr(operation, "op", operation)  # ReduceOp holds a RedOpType
    name = str(getattr(kind, "name", kind)).rpartition(".")[2]
    if name in ("SUM", "AVG"):

        def total(parts: list[Any]) -> Any:
            result = parts[0].clone()
            for part in parts[1:]:
                result += part
            return result if name == "SUM" else result / len(parts)

        return total
    pairs = {
        "PRODUCT": torch.mul,
        "MIN": torch.minimum,
        "MAX": torch.maximum,
        "BAND": torch.bitwise_and,
        "BOR": torch.bitwise_or,
        "BXOR": torch.bitwise_xor,
    }
    if name not in pairs:
        raise RuntimeError(f"gloo does not support the reduction {name}.")

    def fold(parts: list[Any]) -> Any:
        result = parts[0]
        for part in parts[1:]:
            result = pairs[name](result, part)
        return result

    return fold


def _make_class() -> Any:
    torch = sys.modules["torch"]
    c10d = torch._C._distributed_c10d
    base = c10d.Backend
    work_class = _make_work_class()
    error_class = torch.distributed.DistBackendError
    groups_seen: dict[str, int] = {}

    class ProcessGroupGloo(base):  # type: ignore[misc, valid-type]
        """As torch's; the transport is the core."""

        Options = c10d.ProcessGroupGloo.Options if hasattr(c10d, "ProcessGroupGloo") else base.Options

        def __init__(
            self,
            store: Any,
            rank: int,
            size: int,
            timeout: timedelta = _DEFAULT_TIMEOUT,
            enable_reconfigure: bool = False,
        ) -> None:
            super().__init__(rank, size)
            self._rank, self._size, self._limit = rank, size, timeout
            self._sequence = 0
            self._messages: dict[tuple[int, int, int], int] = {}
            self._options = base.Options("gloo", timeout)
            self._group = self._name_group(store)
            _kept_alive.append(self)

        def _name_group(self, store: Any) -> str:
            """All members agree on a name through the store, as gloo's own rendezvous does."""
            if self._size == 1:
                groups_seen["single"] = groups_seen.get("single", 0) + 1
                return f"gloo/rank{os.environ.get('RANK', '0')}/{groups_seen['single']}"
            if self._rank == 0:
                own = f"gloo/from{os.environ.get('RANK', '0')}"
                groups_seen[own] = groups_seen.get(own, 0) + 1
                name = f"{own}/{groups_seen[own]}"
                store.set("phantora_gloo", name)
                return name
            data = store.get("phantora_gloo")
            return data.decode() if isinstance(data, bytes) else str(data)

        # -- the two ways to the core ---------------------------------------------------------------------------------

        def _together(
            self, what: str, data: bytes, timeout: timedelta | None = None, moved: int | None = None
        ) -> list[bytes]:
            """Everybody's bytes, in member order."""
            self._sequence += 1
            limit = timeout if timeout is not None and timeout > timedelta(0) else self._limit
            body = Body().blob(f"{self._group}").u64(self._sequence).u32(self._size).u32(self._rank)
            body.u64(_nanoseconds(limit)).u64(cost_ns(len(data) if moved is None else moved))
            try:
                parts = call(Message.HOST_COLLECTIVE, body.blob(what.encode().ljust(16, b"\0")[:16] + data)).blobs()
            except CoreTimeout:
                raise error_class(
                    f"gloo: {what} number {self._sequence} of {self._group} timed out after {limit}; "
                    "a member is missing."
                ) from None
            for member, part in enumerate(parts):
                other = part[:16].rstrip(b"\0").decode()
                if other != what:
                    raise error_class(
                        f"gloo: rank {self._rank} calls {what} while rank {member} of {self._group} calls {other}."
                    )
            return [part[16:] for part in parts]

        def _reduced(self, what: str, tensors: list[Any], opts: Any) -> Any:
            tensor = tensors[0]
            parts = self._together(what, _to_bytes(tensor), getattr(opts, "timeout", None))
            return reducer(opts.reduceOp)([_from_bytes(part, tensor) for part in parts]).reshape(tensor.shape)

        def _channel(self, source: int, target: int) -> str:
            return f"{self._group}/{source}>{target}"

        # -- collectives ----------------------------------------------------------------------------------------------

        def allreduce(self, tensors: list[Any], opts: Any = None) -> Any:
            opts = opts or c10d.AllreduceOptions()
            tensors[0].detach().copy_(self._reduced("allreduce", tensors, opts))
            return work_class(tensors)

        def allreduce_coalesced(self, tensors: list[Any], opts: Any = None) -> Any:
            for tensor in tensors:
                self.allreduce([tensor], opts)
            return work_class(tensors)

        def reduce(self, tensors: list[Any], opts: Any = None) -> Any:
            opts = opts or c10d.ReduceOptions()
            result = self._reduced("reduce", tensors, opts)
            if self._rank == opts.rootRank:
                tensors[0].detach().copy_(result)
            return work_class(tensors)

        def broadcast(self, tensors: list[Any], opts: Any = None) -> Any:
            opts = opts or c10d.BroadcastOptions()
            data = _to_bytes(tensors[0]) if self._rank == opts.rootRank else b""
            parts = self._together("broadcast", data, opts.timeout, tensors[0].numel() * tensors[0].element_size())
            if self._rank != opts.rootRank:
                _fill(tensors[0], parts[opts.rootRank])
            return work_class(tensors)

        def allgather(self, output_tensors: list[list[Any]], input_tensors: list[Any], opts: Any = None) -> Any:
            parts = self._together("allgather", _to_bytes(input_tensors[0]), getattr(opts, "timeout", None))
            for tensor, part in zip(output_tensors[0], parts, strict=True):
                _fill(tensor, part)
            return work_class(output_tensors[0])

        def all_gather_single(self, output_buffer: Any, input_buffer: Any, opts: Any = None) -> Any:
            parts = self._together("allgather_base", _to_bytes(input_buffer), getattr(opts, "timeout", None))
            _fill(output_buffer, b"".join(parts))
            return work_class([output_buffer])

        _allgather_base = all_gather_single

        def allgather_coalesced(self, output_lists: list[list[Any]], input_list: list[Any], opts: Any = None) -> Any:
            for index, tensor in enumerate(input_list):
                self.allgather([[outputs[index] for outputs in output_lists]], [tensor], opts)
            return work_class([tensor for outputs in output_lists for tensor in outputs])

        def all_gather_single_coalesced(self, outputs: list[Any], inputs: list[Any], opts: Any = None) -> Any:
            for output, tensor in zip(outputs, inputs, strict=True):
                self.all_gather_single(output, tensor, opts)
            return work_class(outputs)

        def gather(self, output_tensors: list[list[Any]], input_tensors: list[Any], opts: Any = None) -> Any:
            opts = opts or c10d.GatherOptions()
            parts = self._together("gather", _to_bytes(input_tensors[0]), opts.timeout)
            if self._rank == opts.rootRank:
                for tensor, part in zip(output_tensors[0], parts, strict=True):
                    _fill(tensor, part)
            return work_class(output_tensors[0] if output_tensors else [])

        def scatter(self, output_tensors: list[Any], input_tensors: list[list[Any]], opts: Any = None) -> Any:
            opts = opts or c10d.ScatterOptions()
            pieces = [_to_bytes(tensor) for tensor in input_tensors[0]] if self._rank == opts.rootRank else []
            parts = self._together("scatter", _pack(pieces), opts.timeout)
            _fill(output_tensors[0], _unpack(parts[opts.rootRank])[self._rank])
            return work_class(output_tensors)

        def reduce_scatter(self, output_tensors: list[Any], input_tensors: list[list[Any]], opts: Any = None) -> Any:
            opts = opts or c10d.ReduceScatterOptions()
            parts = self._together("reduce_scatter", _pack([_to_bytes(t) for t in input_tensors[0]]), opts.timeout)
            output = output_tensors[0]
            mine = [_from_bytes(_unpack(part)[self._rank], output) for part in parts]
            output.detach().copy_(reducer(opts.reduceOp)(mine).reshape(output.shape))
            return work_class(output_tensors)

        def reduce_scatter_single(self, output_buffer: Any, input_buffer: Any, opts: Any = None) -> Any:
            opts = opts or c10d.ReduceScatterOptions()
            parts = self._together("reduce_scatter_base", _to_bytes(input_buffer), opts.timeout)
            size = output_buffer.numel()
            whole = reducer(opts.reduceOp)([_from_bytes(part, input_buffer) for part in parts])
            output_buffer.detach().copy_(
                whole[self._rank * size : (self._rank + 1) * size].reshape(output_buffer.shape)
            )
            return work_class([output_buffer])

        _reduce_scatter_base = reduce_scatter_single

        def reduce_scatter_single_coalesced(self, outputs: list[Any], inputs: list[Any], opts: Any = None) -> Any:
            for output, tensor in zip(outputs, inputs, strict=True):
                self.reduce_scatter_single(output, tensor, opts)
            return work_class(outputs)

        def all_to_all_single(
            self,
            output_buffer: Any,
            input_buffer: Any,
            output_split_sizes: list[int],
            input_split_sizes: list[int],
            opts: Any = None,
        ) -> Any:
            sizes = list(input_split_sizes) or [input_buffer.shape[0] // self._size] * self._size
            pieces = [_to_bytes(piece) for piece in input_buffer.split(sizes)]
            parts = self._together("alltoall_base", _pack(pieces), getattr(opts, "timeout", None))
            _fill(output_buffer, b"".join(_unpack(part)[self._rank] for part in parts))
            return work_class([output_buffer])

        alltoall_base = all_to_all_single

        def alltoall(self, output_tensors: list[Any], input_tensors: list[Any], opts: Any = None) -> Any:
            parts = self._together(
                "alltoall", _pack([_to_bytes(t) for t in input_tensors]), getattr(opts, "timeout", None)
            )
            for tensor, part in zip(output_tensors, parts, strict=True):
                _fill(tensor, _unpack(part)[self._rank])
            return work_class(output_tensors)

        def barrier(self, opts: Any = None) -> Any:
            self._together("barrier", b"", getattr(opts, "timeout", None))
            return work_class([])

        def monitored_barrier(self, opts: Any = None, wait_all_ranks: bool = False) -> None:
            self._together("barrier", b"", getattr(opts, "timeout", None))

        # -- point to point -------------------------------------------------------------------------------------------

        def send(self, tensors: list[Any], dst_rank: int, tag: int) -> Any:
            data = struct.pack("<I", self._rank) + _to_bytes(tensors[0])
            call(Message.HOST_SEND, Body().blob(self._channel(self._rank, dst_rank)).u64(tag).blob(data))
            return work_class(tensors)

        def recv(self, tensors: list[Any], src_rank: int, tag: int) -> Any:
            return work_class(tensors, lambda: self._receive(self._channel(src_rank, self._rank), tensors[0], tag))

        def recv_anysource(self, tensors: list[Any], tag: int) -> Any:
            def receive() -> int:
                # The core matches any sender of this group to us by the channel's wild card.
                return self._receive(f"{self._group}/*>{self._rank}", tensors[0], tag)

            return work_class(tensors, receive)

        def _receive(self, channel: str, tensor: Any, tag: int) -> int:
            try:
                body = Body().blob(channel).u64(tag).u64(_nanoseconds(self._limit))
                data = call(Message.HOST_RECV, body).blob()
            except CoreTimeout:
                raise error_class(f"gloo: nothing arrived on {channel} within {self._limit}.") from None
            _fill(tensor, data[4:])
            return int(struct.unpack_from("<I", data)[0])

        # -- attributes -----------------------------------------------------------------------------------------------

        @property
        def options(self) -> Any:
            return self._options

        @property
        def supports_splitting(self) -> bool:
            return False

        def getBackendName(self) -> str:
            return "gloo"

        def name(self) -> str:
            return "gloo"

        def set_timeout(self, timeout: timedelta) -> None:
            self._limit = timeout

        def _set_default_timeout(self, timeout: timedelta) -> None:
            self._limit = timeout

        def _set_sequence_number_for_group(self) -> None:
            return

        def _get_sequence_number_for_group(self) -> int:
            return self._sequence

        def abort(self) -> None:
            return

        def shutdown(self) -> None:
            return

        @staticmethod
        def create_device(hostname: str = "", interface: str = "", lazy_init: bool | None = None) -> None:
            return None

        @staticmethod
        def create_default_device(lazy_init: bool | None = None) -> None:
            return None

    for name in _OPERATIONS:
        setattr(ProcessGroupGloo, name, _free(getattr(ProcessGroupGloo, name)))
    ProcessGroupGloo.__module__ = "torch.distributed.distributed_c10d"
    ProcessGroupGloo.__qualname__ = "ProcessGroupGloo"
    return ProcessGroupGloo


def _nanoseconds(timeout: timedelta) -> int:
    return max(1, round(timeout / timedelta(microseconds=1)) * 1000)


def _pack(pieces: list[bytes]) -> bytes:
    return struct.pack(f"<I{len(pieces)}Q", len(pieces), *(len(piece) for piece in pieces)) + b"".join(pieces)


def _unpack(data: bytes) -> list[bytes]:
    (count,) = struct.unpack_from("<I", data)
    sizes = struct.unpack_from(f"<{count}Q", data, 4)
    at, pieces = 4 + 8 * count, []
    for size in sizes:
        pieces.append(data[at : at + size])
        at += size
    return pieces
