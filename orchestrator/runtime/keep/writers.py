"""Which files some process of this machine has open for writing."""

# Thin over the kernel: descriptors, modes and races are said in os calls.
# ruff: noqa: PTH116, PTH208

from __future__ import annotations

import os
from typing import Iterator, Set, Tuple

_ACCESS = os.O_WRONLY | os.O_RDWR

Identity = Tuple[int, int]
"""Device and inode."""


def written_now() -> Set[Identity]:
    """Device and inode of all regular files that are open for writing, as far as the kernel shows them."""
    found = set()
    for pid in _pids():
        for folder, name in _descriptors(pid):
            try:
                if _flags(f"/proc/{pid}/fdinfo/{name}") & _ACCESS:
                    about = os.stat(f"{folder}/{name}")
                    found.add((about.st_dev, about.st_ino))
            except (OSError, ValueError):
                continue
    return found


def _pids() -> Iterator[str]:
    try:
        yield from (name for name in os.listdir("/proc") if name.isdigit() and int(name) != os.getpid())
    except OSError:
        return


def _descriptors(pid: str) -> Iterator[Tuple[str, str]]:
    folder = f"/proc/{pid}/fd"
    try:
        names = os.listdir(folder)
    except OSError:
        return
    for name in names:
        yield folder, name


def _flags(path: str) -> int:
    with open(path, encoding="ascii") as file:
        for line in file:
            if line.startswith("flags:"):
                return int(line.split()[1], 8)
    return 0
