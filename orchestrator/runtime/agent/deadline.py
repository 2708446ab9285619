"""A machine's deadline, as seconds from the moment of arming, by the machine's own clocks.

It is armed once: later calls do not move it, so that no client's clock can. Within one boot it is counted by
the clock that nobody can set; after a restart by this machine's time of day.
"""

# Thin over the kernel: paths are texts here.
# ruff: noqa: PTH103, PTH118

from __future__ import annotations

import os
import time
from typing import Optional

from ..processes import boot_id
from ..rundir import read_json, write_json

SAVE_S = 120.0
"""Seconds before the deadline at which running jobs are asked to end, at most: to save, and to be fetched."""

_SAVE_SHARE = 0.25


def arm(base: str, left: float) -> None:
    """End the machine `left` seconds from now. Does nothing where a deadline was armed before."""
    os.makedirs(base, exist_ok=True)
    if read_json(_path(base)) is None:
        due = {"boot_id": boot_id(), "boottime": _boottime() + left, "wall": time.time() + left}
        write_json(_path(base), {**due, "lasts": left})


def left(base: str) -> Optional[float]:
    """Seconds until the deadline, negative after it; None where none is armed."""
    armed = read_json(_path(base))
    if armed is None:
        return None
    if armed["boot_id"] == boot_id():
        return float(armed["boottime"]) - _boottime()
    return float(armed["wall"]) - time.time()


def saving(base: str) -> bool:
    """Whether jobs are to save what they have: in the last quarter of the time, at most SAVE_S seconds."""
    armed, seconds = read_json(_path(base)), left(base)
    return armed is not None and seconds is not None and seconds <= min(SAVE_S, _SAVE_SHARE * armed["lasts"])


def _boottime() -> float:
    """Seconds by a clock that no one sets; it goes on while the machine is suspended, where there is such."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def _path(base: str) -> str:
    return os.path.join(base, "deadline.json")
