"""The clock of a ledger: this computer's, without what was set on it meanwhile.

Each line has the wall clock's time, and a tick of the clock that nobody sets. Within one start of this
computer times are counted by ticks from the first line that it wrote; between two starts, and on another
computer, the wall clocks count.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_BOOTTIME = getattr(time, "CLOCK_BOOTTIME", None)  # Linux
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True)
class Tick:
    """Seconds `up` since the start `boot` of a computer."""

    boot: str
    up: float


def tick() -> Tick | None:
    """None where this system has no such clock."""
    if _BOOTTIME is None:
        return None
    try:
        return Tick(_BOOT_ID.read_text().strip(), time.clock_gettime(_BOOTTIME))
    except OSError:
        return None


def tick_of(value: object) -> Tick | None:
    """The tick that a line has as [boot, up]."""
    match value:
        case [str(boot), float(up)]:
            return Tick(boot, up)
    return None


def as_json(at: Tick | None) -> dict[str, Any]:
    return {"tick": [at.boot, at.up]} if at else {}


def now(started: Mapping[str, float]) -> float:
    """Unix seconds by a ledger's clock. `started`: when each computer's start was, by its first line."""
    at = tick()
    return started[at.boot] + at.up if at and at.boot in started else time.time()
