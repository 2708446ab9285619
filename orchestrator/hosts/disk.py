"""Free space on this computer, by the file system that a path lies on, in bytes and in words."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

FULL = (errno.ENOSPC, errno.EDQUOT)
"""What the system answers where a file system, or this user's share of it, is full."""

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def existing(path: Path) -> Path:
    """The path, or the nearest folder above it that is there."""
    path = path.absolute()
    return next((each for each in (path, *path.parents) if each.exists()), Path(path.anchor))


def mount_of(path: Path) -> Path:
    """Where the file system is mounted on which `path` lies, or will."""
    place = existing(path).resolve()
    return next(each for each in (place, *place.parents) if os.path.ismount(each))


def free(path: Path) -> int:
    """Bytes that this user can still write there."""
    return shutil.disk_usage(existing(path)).free


def amount(count: int) -> str:
    value, unit = float(count), 0
    while value >= 1024 and unit + 1 < len(_UNITS):
        value, unit = value / 1024, unit + 1
    return f"{value:.0f} {_UNITS[unit]}" if unit == 0 else f"{value:.1f} {_UNITS[unit]}"


def shown(path: Path) -> str:
    """The file system of a path with what is free there, as a clause."""
    return f"the file system {mount_of(path)} has {amount(free(path))} free"
