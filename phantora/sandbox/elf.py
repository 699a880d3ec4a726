"""Reads from an ELF file which version of glibc it asks for."""

from __future__ import annotations

import struct
from collections.abc import Iterator

_VERSIONS_NEEDED = 0x6FFFFFFE  # SHT_GNU_verneed
_SECTION = struct.Struct("<IIQQQQIIQQ")
_FILE_NEEDED = struct.Struct("<HHIII")
_VERSION_NEEDED = struct.Struct("<IHHII")


def needed_glibc(content: bytes) -> tuple[int, ...]:
    """Returns the newest version of glibc that a 64-bit little-endian file asks for; empty: none (a static program)."""
    versions = [name.removeprefix("GLIBC_") for name in _needed_versions(content) if name.startswith("GLIBC_")]
    return max((tuple(map(int, version.split("."))) for version in versions if version[0].isdigit()), default=())


def _needed_versions(content: bytes) -> Iterator[str]:
    (offset,) = struct.unpack_from("<Q", content, 0x28)
    size, count = struct.unpack_from("<HH", content, 0x3A)
    sections = [_SECTION.unpack_from(content, offset + index * size) for index in range(count)]
    for section in sections:
        if section[1] != _VERSIONS_NEEDED:
            continue
        names = sections[section[6]][4]
        file = section[4]
        for _ in range(section[7]):
            _, versions, _, first, next_file = _FILE_NEEDED.unpack_from(content, file)
            entry = file + first
            for _ in range(versions):
                _, _, _, name, next_entry = _VERSION_NEEDED.unpack_from(content, entry)
                yield content[names + name : content.index(b"\0", names + name)].decode()
                entry += next_entry
            file += next_file
