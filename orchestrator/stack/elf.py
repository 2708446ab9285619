"""The facts of a Linux binary that decide whether it runs on another machine, and where it looks for
libraries.

Format: System V ABI, "Object Files" and "Dynamic Linking". 64-bit little-endian only (x86-64, AArch64).
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass

_PT_LOAD, _PT_DYNAMIC, _PT_NOTE = 1, 2, 4
_DT_NULL, _DT_STRTAB, _DT_STRSZ, _DT_RPATH, _DT_RUNPATH = 0, 5, 10, 15, 29
_READABLE = 4
_PROGRAM_HEADER = struct.Struct("<IIQQQQQQ")
_DYNAMIC = struct.Struct("<QQ")


class NotPatchable(ValueError):
    """The binary's layout leaves no room for a search path."""


@dataclass(frozen=True)
class _Segment:
    index: int
    kind: int
    flags: int
    offset: int
    address: int
    file_size: int
    memory_size: int
    align: int


def is_elf(image: bytes) -> bool:
    return image[:6] == b"\x7fELF\x02\x01"


def glibc_needed(image: bytes) -> tuple[int, int]:
    """Return the newest glibc whose symbols the binary needs; (0, 0) if it names none."""
    versions = re.findall(rb"GLIBC_(\d+)\.(\d+)(?:\.\d+)?\x00", image)
    return max(((int(major), int(minor)) for major, minor in versions), default=(0, 0))


def with_runpath(image: bytes, runpath: str) -> bytes:
    """Return the binary with `runpath` ("$ORIGIN/../lib") as its only library search path.

    The string table moves to a new segment at the end of the file, which replaces a note (build id): only
    debuggers read notes. Raise NotPatchable if there is no note to replace.
    """
    segments = _segments(image)
    dynamic = next((s for s in segments if s.kind == _PT_DYNAMIC), None)
    loads = [s for s in segments if s.kind == _PT_LOAD]
    # Loaders need loadable segments in ascending order of address, so the spare one must be the last.
    spare = [s for s in segments if s.kind == _PT_NOTE and loads and s.index > loads[-1].index]
    if dynamic is None or not spare:
        raise NotPatchable("no note after the last loadable segment")
    page = max(s.align for s in loads)
    address = _round_up(max(s.address + s.memory_size for s in loads), page)
    offset = _round_up(len(image), page)
    entries = _entries(image, dynamic)
    strings = _strings(image, entries, loads)
    table = strings + runpath.encode() + b"\0"
    changed = bytearray(image.ljust(offset, b"\0") + table)
    _write_entries(changed, dynamic, _redirected(entries, address, len(table), len(strings)))
    header = (_PT_LOAD, _READABLE, offset, address, address, len(table), len(table), page)
    _PROGRAM_HEADER.pack_into(changed, _header_offset(image, spare[0].index), *header)
    return bytes(changed)


def _header_offset(image: bytes, index: int) -> int:
    return int(struct.unpack_from("<Q", image, 0x20)[0]) + index * _PROGRAM_HEADER.size


def _segments(image: bytes) -> list[_Segment]:
    if not is_elf(image):
        raise NotPatchable("not a 64-bit little-endian ELF file")
    found = []
    for index in range(struct.unpack_from("<H", image, 0x38)[0]):
        kind, flags, offset, address, _, file_size, memory_size, align = _PROGRAM_HEADER.unpack_from(
            image, _header_offset(image, index)
        )
        found.append(_Segment(index, kind, flags, offset, address, file_size, memory_size, align))
    return found


def _entries(image: bytes, dynamic: _Segment) -> list[tuple[int, int]]:
    area = image[dynamic.offset : dynamic.offset + dynamic.file_size]
    return [(int(tag), int(value)) for tag, value in _DYNAMIC.iter_unpack(area)]


def _strings(image: bytes, entries: list[tuple[int, int]], loads: list[_Segment]) -> bytes:
    facts = dict(entries)
    address, size = facts[_DT_STRTAB], facts[_DT_STRSZ]
    home = next(s for s in loads if s.address <= address < s.address + s.file_size)
    start = home.offset + address - home.address
    return image[start : start + size]


def _redirected(
    entries: list[tuple[int, int]], address: int, size: int, position: int
) -> list[tuple[int, int]]:
    kept = [entry for entry in entries if entry[0] not in (_DT_RPATH, _DT_RUNPATH, _DT_NULL)]
    if len(kept) + 2 > len(entries):
        raise NotPatchable("its dynamic section is full")
    moved = {_DT_STRTAB: address, _DT_STRSZ: size}
    changed = [(tag, moved.get(tag, value)) for tag, value in kept] + [(_DT_RUNPATH, position)]
    return changed + [(_DT_NULL, 0)] * (len(entries) - len(changed))


def _write_entries(image: bytearray, dynamic: _Segment, entries: list[tuple[int, int]]) -> None:
    for place, entry in enumerate(entries):
        _DYNAMIC.pack_into(image, dynamic.offset + place * _DYNAMIC.size, *entry)


def _round_up(value: int, page: int) -> int:
    return -(-value // page) * page
