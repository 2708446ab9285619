"""Find files that some process of this machine may write to: open for writing, or mapped so."""

# Close to the kernel: descriptors, modes and races need os calls, not pathlib.
# ruff: noqa: PTH116, PTH208

from __future__ import annotations

import os
from typing import Collection, Iterator, List, Optional, Tuple

from .. import processes

_ACCESS = os.O_WRONLY | os.O_RDWR

Identity = Tuple[int, int]
"""Device and inode."""


def written_now(wanted: Collection[Identity]) -> Optional[Identity]:
    """Return one of the files, by device and inode, that a younger process has open or mapped for writing."""
    pids = _younger()
    for written in (_opened, _mapped):  # mappings take longer to read, and are rare
        for pid in pids:
            for identity in written(pid):
                if identity in wanted:
                    return identity
    return None


def _opened(pid: str) -> Iterator[Identity]:
    for folder, name in _descriptors(pid):
        try:
            if _flags(f"/proc/{pid}/fdinfo/{name}") & _ACCESS:
                about = os.stat(f"{folder}/{name}")
                yield about.st_dev, about.st_ino
        except (OSError, ValueError):
            continue


def _younger() -> List[str]:
    """Return the processes that began after this one, which is older than its job."""
    own = os.getpid()
    since = processes.start_of(own) or 0
    try:
        pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return []
    return [str(pid) for pid in pids if pid != own and (processes.start_of(pid) or 0) >= since]


def _descriptors(pid: str) -> Iterator[Tuple[str, str]]:
    folder = f"/proc/{pid}/fd"
    try:
        names = os.listdir(folder)
    except OSError:
        return
    for name in names:
        yield folder, name


def _mapped(pid: str) -> Iterator[Identity]:
    """Return files that the process maps as shared and writable memory."""
    try:
        with open(f"/proc/{pid}/maps", "rb") as file:
            shared = [line for line in file if line.split(b" ", 2)[1] == b"rw-s"]
    except (OSError, IndexError):
        return
    for line in shared:
        place = line.rstrip(b"\n").split(None, 5)[5:]
        if place and place[0].startswith(b"/") and not place[0].startswith(b"/dev/"):
            try:
                about = os.stat(place[0])
            except OSError:
                continue
            yield about.st_dev, about.st_ino


def _flags(path: str) -> int:
    with open(path, encoding="ascii") as file:
        for line in file:
            if line.startswith("flags:"):
                return int(line.split()[1], 8)
    return 0
