"""The canonical op log on its way from the core to disk: digest of the bytes, compressed file."""

from __future__ import annotations

import gzip
import hashlib
import os
import threading
from pathlib import Path

_CHUNK = 1 << 20


class OplogWriter:
    """Reads the pipe that the core writes; the file is gzip without a time stamp, the digest is of the plain bytes."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._hash = hashlib.sha256()
        self.byte_count = 0
        self.fault: OSError | None = None
        self._read, self.write_fd = os.pipe()
        os.set_inheritable(self.write_fd, True)
        self._thread = threading.Thread(target=self._copy, name="oplog", daemon=True)

    def start(self) -> None:
        """Starts reading; `close_write_end` follows once the core has the pipe."""
        self._thread.start()

    def close_write_end(self) -> None:
        """Closes our copy, so that the core's end is the last one."""
        os.close(self.write_fd)

    def finish(self, timeout_s: float = 60.0) -> str:
        """Waits for the last byte and returns the digest."""
        self._thread.join(timeout_s)
        return self._hash.hexdigest()

    def _copy(self) -> None:
        try:
            with open(self._path, "wb") as raw, gzip.GzipFile("", "wb", 1, raw, mtime=0) as packed:
                while data := self._next():
                    packed.write(data)
        except OSError as error:
            self.fault = error
            while self._next():  # the core must not block: the digest is right all the same
                pass
        os.close(self._read)

    def _next(self) -> bytes:
        data = os.read(self._read, _CHUNK)
        self._hash.update(data)
        self.byte_count += len(data)
        return data
