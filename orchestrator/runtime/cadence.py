"""Decide how often a line is added to a trace, so that a week of lines stays small."""

from __future__ import annotations

_FIRST = 0.25
DOUBLING = 2_000_000
_THRIFT = 200


class Cadence:
    """How long to wait between lines: `base` seconds at first, longer the longer the trace is.

    Four of a quarter of it, for short jobs; then twice as long after every `doubling` bytes of trace, whoever
    wrote them. So however many processes write and however long their lines are, a doubling costs so many
    bytes, and a week has some fifteen at most. Never so often that making lines takes more than a
    two-hundredth of a core.
    """

    def __init__(self, base: float = 1.0, doubling: int = DOUBLING) -> None:
        self._base = base
        self._doubling = doubling
        self._count = 0

    def next(self, cost: float = 0.0, size: int = 0) -> float:
        """Seconds until the next line, the last one having cost `cost` seconds of CPU; the trace is `size`
        bytes long."""
        self._count += 1
        if self._count <= 4:
            return max(self._base * _FIRST, cost * _THRIFT)
        return max(self._base * float(2 ** (size // self._doubling)), cost * _THRIFT)
