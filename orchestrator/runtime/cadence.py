"""How often lines are added to a trace: a week of them is no burden, and a minute still tells something."""

from __future__ import annotations

_FIRST = 0.25
_BASE = 1.0
_PER_INTERVAL = 3600
_THRIFT = 200


class Cadence:
    """How long to wait between lines: a second at first, longer the longer it goes on.

    Four of a quarter of a second, for short jobs; then 3,600 of a second, 3,600 of two, of four, … A week
    makes some 26,000 lines. Never so often that making them takes more than a two-hundredth of a core.
    """

    def __init__(self) -> None:
        self._count = 0

    def next(self, cost: float = 0.0) -> float:
        """Seconds until the next line, the last one having cost `cost` seconds of CPU."""
        self._count += 1
        return max(self._planned(), cost * _THRIFT)

    def _planned(self) -> float:
        if self._count <= 4:
            return _FIRST
        return _BASE * float(2 ** ((self._count - 5) // _PER_INTERVAL))
