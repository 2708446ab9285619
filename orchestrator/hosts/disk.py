"""Free space on this computer, by the file system of a path, in bytes and as text."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

FULL = (errno.ENOSPC, errno.EDQUOT)
"""Errors for a full file system, or a full quota of this user."""

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def existing(path: Path) -> Path:
    """Return the path, or the nearest folder above it that exists."""
    path = path.absolute()
    return next((each for each in (path, *path.parents) if each.exists()), Path(path.anchor))


def mount_of(path: Path) -> Path:
    """Return the mount point of the file system on which `path` lies or would lie."""
    place = existing(path).resolve()
    return next(each for each in (place, *place.parents) if os.path.ismount(each))


def free(path: Path) -> int:
    """Return the bytes that this user can still write there."""
    return shutil.disk_usage(existing(path)).free


def amount(count: int) -> str:
    value, unit = float(count), 0
    while value >= 1024 and unit + 1 < len(_UNITS):
        value, unit = value / 1024, unit + 1
    return f"{value:.0f} {_UNITS[unit]}" if unit == 0 else f"{value:.1f} {_UNITS[unit]}"


def shown(path: Path) -> str:
    """Return a clause that names the file system of a path and its free space."""
    return f"the file system {mount_of(path)} has {amount(free(path))} free"
