"""Decide how often a line is added to a trace, so that a week of lines stays small."""

from __future__ import annotations

_FIRST = 0.25
DOUBLING = 2_000_000
_THRIFT = 200


class Cadence:
    """How long to wait between lines: `base` seconds at first, longer as the trace grows.

    The first four pauses are a quarter of `base`, for short jobs; after every `doubling` bytes of trace, by
    any process, the pause doubles. So each doubling costs a fixed number of bytes, whatever the number of
    processes and the length of lines, and a week has at most about fifteen. Writing lines never takes more
    than 0.5% of a core.
    """

    def __init__(self, base: float = 1.0, doubling: int = DOUBLING) -> None:
        self._base = base
        self._doubling = doubling
        self._count = 0

    def next(self, cost: float = 0.0, size: int = 0) -> float:
        """Return seconds until the next line. `cost`: CPU seconds of the last line; `size`: bytes of the
        trace.
        """
        self._count += 1
        if self._count <= 4:
            return max(self._base * _FIRST, cost * _THRIFT)
        return max(self._base * float(2 ** (size // self._doubling)), cost * _THRIFT)
