"""The clock of a ledger: this computer's clock, unaffected by changes of its setting.

Each line has the wall clock's time, and a tick of a clock that cannot be set. Between lines of one boot of a
computer, times are counted by ticks from the first of these lines; across boots and computers the wall clock
counts.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

_BOOTTIME = getattr(time, "CLOCK_BOOTTIME", None)  # Linux
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class Tick(NamedTuple):
    """`up`: seconds since a computer booted. `boot`: the id of that boot."""

    boot: str
    up: float


def tick() -> Tick | None:
    """Return the current tick; None if this system has no such clock."""
    if _BOOTTIME is None:
        return None
    try:
        return Tick(_BOOT_ID.read_text().strip(), time.clock_gettime(_BOOTTIME))
    except OSError:
        return None


def tick_of(value: object) -> Tick | None:
    """Return the tick that a line holds as [boot, up]; None if it holds none."""
    if type(value) is list and [type(part) for part in value] == [str, float]:
        return Tick(*value)
    return None


def as_json(at: Tick | None) -> dict[str, Any]:
    return {"tick": [at.boot, at.up]} if at else {}


def now(started: Mapping[str, float]) -> float:
    """Return Unix seconds by a ledger's clock. `started`: the time of each boot, computed from its first
    line.
    """
    at = tick()
    return started[at.boot] + at.up if at and at.boot in started else time.time()
