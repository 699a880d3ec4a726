"""torch.distributed.TCPStore, played by the core: ordered by (virtual time, rank), virtual time-outs, no sockets."""

from __future__ import annotations

import ipaddress
import os
import socket
import sys
from datetime import timedelta
from typing import Any

from phantora_runtime.messages import Body, CoreTimeout, Message, call
from phantora_runtime.virtual_node import node_name

_FIRST_FREE_PORT = 20_000
_PORTS_PER_RANK = 256
_DEFAULT_TIMEOUT = timedelta(seconds=300)
_kept_alive: list[Any] = []  # C++ holds stores without holding their Python half
_free_ports_used = 0


def _own_node() -> int:
    return int(os.environ.get("GROUP_RANK", "0"))


def _node_of(host: str) -> str:
    """Returns one name per virtual node for all the ways to write it."""
    try:
        own = ipaddress.ip_address(host).is_loopback or ipaddress.ip_address(host).is_unspecified
    except ValueError:
        own = host in ("", "localhost", "localhost.localdomain")
    if own:
        return node_name(_own_node())
    if host.startswith("node-"):
        return host.partition(".")[0]
    try:
        return socket.gethostbyaddr(host)[0].partition(".")[0]
    except OSError:
        return host


def _free_port() -> int:
    """What port 0 gives: the same number in every run, another one for each rank of a node."""
    global _free_ports_used
    port = _FIRST_FREE_PORT + int(os.environ.get("LOCAL_RANK", "0")) * _PORTS_PER_RANK + _free_ports_used
    _free_ports_used += 1
    return port


def _timeout_ns(timeout: timedelta) -> int:
    return max(0, round(timeout / timedelta(microseconds=1)) * 1000)


def _text(value: str | bytes) -> str:
    return value if isinstance(value, str) else value.decode()


def install() -> None:
    """Puts the virtual store in the place of TCPStore, wherever torch has imported it."""
    torch = sys.modules["torch"]
    store_class = _make_class()
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "torch" and module is not None and "TCPStore" in vars(module):
            setattr(module, "TCPStore", store_class)  # noqa: B010 - a module, for the type checker
    torch.distributed.VirtualStore = store_class


def _make_class() -> Any:
    torch = sys.modules["torch"]
    base = torch._C._distributed_c10d.Store
    error_class = torch.distributed.DistStoreError

    class TCPStore(base):  # type: ignore[misc, valid-type]
        """As torch.distributed.TCPStore; the server is the core."""

        def __init__(
            self,
            host_name: str,
            port: int,
            world_size: int | None = None,
            is_master: bool = False,
            timeout: timedelta = _DEFAULT_TIMEOUT,
            wait_for_workers: bool = True,
            multi_tenant: bool = False,
            master_listen_fd: int | None = None,
            use_libuv: bool = True,
        ) -> None:
            super().__init__()
            if port == 0 and is_master:
                port = _free_port()
            self._join(host_name, port, timeout, f"{_node_of(host_name)}:{port}")
            self._libuv = use_libuv
            self._connect(is_master, world_size if wait_for_workers else None)

        def _join(self, host: str, port: int, timeout: timedelta, name: str) -> None:
            self._host, self._port, self._name = host, port, name
            self._wait = timeout
            base.set_timeout(self, timeout)
            _kept_alive.append(self)

        def _connect(self, is_master: bool, world_size: int | None) -> None:
            """A client waits for its server; with a known world size all wait for all."""
            server = self._name + "/connections"
            if is_master:
                call(Message.STORE_SET, Body().blob(server).blob("server").blob("1"))
            else:
                self._wait_in(server, ["server"], self._wait)
            if world_size is None or world_size < 1:
                return
            reply = call(Message.STORE_ADD, Body().blob(server).blob("workers").i64(1))
            if reply.i64() == world_size:
                call(Message.STORE_SET, Body().blob(server).blob("all").blob("1"))
            else:
                self._wait_in(server, ["all"], self._wait)

        def _wait_in(self, store: str, keys: list[str], timeout: timedelta) -> None:
            try:
                call(Message.STORE_WAIT, Body().blob(store).blobs(keys).u64(_timeout_ns(timeout)))
            except CoreTimeout:
                raise self._timed_out(keys, timeout) from None

        def _timed_out(self, keys: list[str], timeout: timedelta) -> Exception:
            milliseconds = round(timeout / timedelta(milliseconds=1))
            text = f"wait timeout after {milliseconds}ms, keys: /{', /'.join(keys)} (store {self._name})"
            return error_class(text)  # type: ignore[no-any-return]

        def set(self, key: str, value: str | bytes) -> None:
            call(Message.STORE_SET, Body().blob(self._name).blob(key).blob(value))

        def get(self, key: str) -> bytes:
            try:
                body = Body().blob(self._name).blob(key).u64(_timeout_ns(self._wait))
                return call(Message.STORE_GET, body).blob()
            except CoreTimeout:
                raise self._timed_out([key], self._wait) from None

        def add(self, key: str, value: int) -> int:
            return call(Message.STORE_ADD, Body().blob(self._name).blob(key).i64(value)).i64()

        def check(self, keys: list[str]) -> bool:
            return bool(call(Message.STORE_CHECK, Body().blob(self._name).blobs(keys)).u8())

        def compare_set(self, key: str, expected_value: str | bytes, desired_value: str | bytes) -> bytes:
            body = Body().blob(self._name).blob(key).blob(expected_value).blob(desired_value)
            return call(Message.STORE_COMPARE_SET, body).blob()

        def delete_key(self, key: str) -> bool:
            return bool(call(Message.STORE_DELETE, Body().blob(self._name).blob(key)).u8())

        def num_keys(self) -> int:
            return call(Message.STORE_COUNT, Body().blob(self._name)).u64()

        def list_keys(self) -> list[str]:
            return [_text(key) for key in call(Message.STORE_LIST, Body().blob(self._name)).blobs()]

        def append(self, key: str, value: str | bytes) -> None:
            call(Message.STORE_APPEND, Body().blob(self._name).blob(key).blob(value))

        def multi_get(self, keys: list[str]) -> list[bytes]:
            return [self.get(key) for key in keys]

        def multi_set(self, keys: list[str], values: list[str | bytes]) -> None:
            for key, value in zip(keys, values, strict=True):
                self.set(key, value)

        def has_extended_api(self) -> bool:
            return True

        def wait(self, keys: list[str], timeout: timedelta | None = None) -> None:
            self._wait_in(self._name, list(keys), self._wait if timeout is None else timeout)

        def set_timeout(self, timeout: timedelta) -> None:
            self._wait = timeout
            base.set_timeout(self, timeout)

        @property
        def timeout(self) -> timedelta:
            return self._wait

        @property
        def host(self) -> str:
            return self._host

        @property
        def port(self) -> int:
            return self._port

        @property
        def libuvBackend(self) -> bool:
            return self._libuv

        def clone(self) -> Any:
            twin = type(self).__new__(type(self))
            base.__init__(twin)
            twin._libuv = self._libuv
            twin._join(self._host, self._port, self._wait, self._name)
            return twin

        def __repr__(self) -> str:
            return f"TCPStore({self._host}, {self._port})"

    TCPStore.__module__ = "torch.distributed"
    TCPStore.__qualname__ = "TCPStore"
    return TCPStore
