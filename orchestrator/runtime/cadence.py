"""How often lines are added to a trace: a week of them is no burden, and a minute still tells something."""

from __future__ import annotations

_FIRST = 0.25
_PER_INTERVAL = 3600
_BYTES_PER_INTERVAL = 2_000_000
_THRIFT = 200


class Growth:
    """How long a trace is, `size` in bytes, and how much it grew between two looks, whoever wrote."""

    def __init__(self) -> None:
        self.size = 0
        self._seen = 0

    def since(self) -> int:
        """Bytes since the last call."""
        grown, self._seen = max(0, self.size - self._seen), self.size
        return grown


class Cadence:
    """How long to wait between lines: `base` seconds at first, longer the longer it goes on.

    Four of a quarter of it, for short jobs; then the interval doubles after every 3,600 lines, or after
    every two megabytes by which the trace grew, whoever wrote them: however many processes write and however
    long their lines are, a doubling costs two megabytes, and a week has some fifteen at most. Never so often
    that making them takes more than a two-hundredth of a core.
    """

    def __init__(self, base: float = 1.0) -> None:
        self._base = base
        self._count = 0
        self._lines = 0
        self._bytes = 0
        self._doublings = 0

    def next(self, cost: float = 0.0, written: int = 0) -> float:
        """Seconds until the next line, the last one having cost `cost` seconds of CPU; the trace has grown by
        `written` bytes since the line before it."""
        self._count += 1
        if self._count <= 4:
            return max(self._base * _FIRST, cost * _THRIFT)
        if self._lines == _PER_INTERVAL or self._bytes + written > _BYTES_PER_INTERVAL:
            self._lines = self._bytes = 0
            self._doublings += 1
        self._lines += 1
        self._bytes += written
        return max(self._base * float(2**self._doublings), cost * _THRIFT)
