"""Checksums of objects as stores keep them: sha256, md5 and crc32c, with the interface of hashlib.

The standard library has no crc32c. The kernel's is used if available (AF_ALG, at the speed of memory);
otherwise many lanes are computed at once with bytes.translate and large integers, at about 100 MB/s.
"""

from __future__ import annotations

import hashlib
import socket
from functools import lru_cache
from typing import Any, List, Optional

_POLYNOMIAL = 0x82F63B78
_LANES = 2048
_STRIDE = 256
_BLOCK = _LANES * _STRIDE
_ALL = 0xFFFFFFFF


def checker(checksum: str) -> Optional["Checker"]:
    """Return a Checker for a checksum "algorithm:hex"; None if it is empty or of an unknown algorithm."""
    algorithm, _, expected = checksum.partition(":")
    if algorithm == "crc32c":
        return Checker(crc32c(), expected)
    if algorithm == "md5":
        return Checker(_md5(), expected)
    return Checker(hashlib.sha256(), expected) if algorithm == "sha256" else None


class Checker:
    """A hash of data that is passed to `update`, and its expected value."""

    def __init__(self, hasher: Any, expected: str) -> None:
        self.update = hasher.update
        self._hasher = hasher
        self._expected = expected

    def passes(self) -> bool:
        return bool(self._hasher.hexdigest() == self._expected)


def crc32c() -> Any:
    """Return a new crc32c hash, of the kernel if possible."""
    return KernelCrc32c() if _kernel_has_it() else Crc32c()


def _md5() -> Any:
    # `usedforsecurity=False` permits MD5 in FIPS mode; here it detects damage, not attacks.
    return hashlib.md5(usedforsecurity=False)


class Crc32c:
    """crc32c in Python."""

    def __init__(self) -> None:
        self._state = _ALL

    def update(self, data: bytes) -> None:
        whole = len(data) - len(data) % _BLOCK
        for start in range(0, whole, _BLOCK):
            self._state = _block(self._state, data[start : start + _BLOCK])
        self._state = _bytewise(self._state, data[whole:])

    def hexdigest(self) -> str:
        return f"{self._state ^ _ALL:08x}"


class KernelCrc32c:
    """crc32c of the kernel."""

    def __init__(self) -> None:
        with socket.socket(socket.AF_ALG, socket.SOCK_SEQPACKET, 0) as algorithm:
            algorithm.bind(("hash", "crc32c"))
            self._open, _ = algorithm.accept()

    def update(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[self._open.send(view[:65536], socket.MSG_MORE) :]

    def hexdigest(self) -> str:
        with self._open:
            return f"{int.from_bytes(self._open.recv(4), 'little'):08x}"


_found: List[bool] = []


def _kernel_has_it() -> bool:
    if not _found:
        _found.append(_kernel_computes())
    return _found[0]


def _kernel_computes() -> bool:
    try:
        made = KernelCrc32c()
        made.update(b"1234")
        made.update(b"56789")
        return made.hexdigest() == "e3069283" and KernelCrc32c().hexdigest() == "00000000"
    except (OSError, AttributeError):
        return False


# ---------------------------------------------------------------- lanes


def _table() -> List[int]:
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ _POLYNOMIAL if value & 1 else value >> 1
        table.append(value)
    return table


_TABLE = _table()
_PLANES = [bytes(value >> shift & 0xFF for value in _TABLE) for shift in (0, 8, 16, 24)]
"""Bytes of the table's values: plane 0 has the lowest byte of each."""


def _bytewise(state: int, data: bytes) -> int:
    for byte in data:
        state = state >> 8 ^ _TABLE[(state ^ byte) & 0xFF]
    return state


def _skip(state: int, count: int) -> int:
    """Return the state after `count` zero bytes."""
    return _bytewise(state, bytes(count))


@lru_cache(maxsize=None)
def _skips() -> List[List[int]]:
    """Return tables that advance a state by one lane of zero bytes: this is linear, so there is one table per
    byte of the state."""
    return [[_skip(value << shift, _STRIDE) for value in range(256)] for shift in (0, 8, 16, 24)]


def _block(state: int, data: bytes) -> int:
    """Return the state after a block: all lanes start with state 0, and are then combined one after the
    other."""
    planes = [bytes(_LANES)] * 4
    for place in range(_STRIDE):
        index = _xor(planes[0], data[place::_STRIDE])
        looked = [index.translate(plane) for plane in _PLANES]
        planes = [_xor(planes[number + 1], looked[number]) for number in range(3)] + [looked[3]]
    first, second, third, fourth = _skips()
    for lane in zip(*planes):  # noqa: B905  (`strict` came after 3.9)
        moved = first[state & 255] ^ second[state >> 8 & 255] ^ third[state >> 16 & 255] ^ fourth[state >> 24]
        state = moved ^ (lane[0] | lane[1] << 8 | lane[2] << 16 | lane[3] << 24)
    return state


def _xor(one: bytes, other: bytes) -> bytes:
    whole = int.from_bytes(one, "little") ^ int.from_bytes(other, "little")
    return whole.to_bytes(_LANES, "little")
