"""A machine's deadline, in seconds from the moment of arming, by the machine's own clocks.

It is armed once: later calls do not move it, so no client's clock can. Within one boot it is measured by a
clock that cannot be set; after a restart by the machine's time of day.
"""

# Close to the kernel: paths are strings here.
# ruff: noqa: PTH103, PTH118

from __future__ import annotations

import os
import time
from typing import Optional

from ..processes import boot_id
from ..rundir import read_json, write_json

SAVE_S = 120.0
"""Maximum seconds before the deadline at which running jobs are asked to end: to save, and to be fetched."""

_SAVE_SHARE = 0.25


def arm(base: str, left: float) -> None:
    """End the machine `left` seconds from now. Does nothing if a deadline is already armed."""
    os.makedirs(base, exist_ok=True)
    if read_json(_path(base)) is None:
        due = {"boot_id": boot_id(), "boottime": _boottime() + left, "wall": time.time() + left}
        write_json(_path(base), {**due, "lasts": left})


def left(base: str) -> Optional[float]:
    """Return seconds until the deadline, negative after it; None if none is armed."""
    armed = read_json(_path(base))
    if armed is None:
        return None
    if armed["boot_id"] == boot_id():
        return float(armed["boottime"]) - _boottime()
    return float(armed["wall"]) - time.time()


def saving(base: str) -> bool:
    """Whether jobs should save their state: in the last quarter of the time, at most SAVE_S seconds."""
    armed, seconds = read_json(_path(base)), left(base)
    return armed is not None and seconds is not None and seconds <= min(SAVE_S, _SAVE_SHARE * armed["lasts"])


def _boottime() -> float:
    """Return seconds by a clock that nobody can set; if possible, one that also runs while the machine is
    suspended.
    """
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def _path(base: str) -> str:
    return os.path.join(base, "deadline.json")
