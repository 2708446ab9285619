"""Compression of what is sent: only while the link is slower than zlib, and only of what gets smaller."""

from __future__ import annotations

import time
from typing import Any, Callable, Optional

_SLOW = 20e6
"""Bytes a second, below which a link is slow. zlib at its fastest does about three times as many."""
_WORTH = 0.9
"""A sample that does not get smaller than this share of itself is sent as it is."""
_SAMPLE = 1 << 12
_BEGIN = 1 << 20
"""Bytes that are written before the link is judged: they may only have filled buffers."""
_MEMORY = 8 << 20
"""Bytes after which half of what was measured is forgotten."""


class Squeeze:
    """What one direction of a conversation knows of its link. `clock`: seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._bytes = 0
        self._seconds = 0.0

    @property
    def slow(self) -> bool:
        return self._bytes >= _BEGIN and self._bytes < _SLOW * self._seconds

    def write(self, write: Callable[[bytes], Any], data: bytes) -> None:
        """Write `data`, and measure how long that takes."""
        begun = self._clock()
        write(data)
        self._seconds += self._clock() - begun
        self._bytes += len(data)
        if self._bytes > _MEMORY:
            self._bytes, self._seconds = self._bytes // 2, self._seconds / 2

    def smaller(self, piece: bytes) -> Optional[bytes]:
        """Return `piece` compressed, if that pays."""
        if not self.slow or not _gets_smaller(piece[:_SAMPLE]):
            return None
        packed = _packed(piece)
        return packed if len(packed) < len(piece) else None


def _gets_smaller(sample: bytes) -> bool:
    return len(_packed(sample)) < _WORTH * len(sample)


def _packed(piece: bytes) -> bytes:
    """Return `piece` compressed; as it is, if this Python has no zlib."""
    try:
        import zlib
    except ImportError:
        return piece
    return zlib.compress(piece, 1)


def unpacked(piece: bytes, most: int) -> Optional[bytes]:
    """Return what was compressed; None if it is damaged, or longer than `most`."""
    import zlib

    inflating = zlib.decompressobj()
    try:
        data = inflating.decompress(piece, most)
    except zlib.error:
        return None
    return data if inflating.eof and not inflating.unused_data else None
