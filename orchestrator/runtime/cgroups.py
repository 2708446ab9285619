"""The control groups of this process: their limits, usage and kills.

Both versions of the kernel's interface are read; None for whatever cannot be read.
"""

# Close to the kernel: descriptors, modes and races need os calls, not pathlib.
# ruff: noqa: PTH112, PTH118, PTH120

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Callable, Dict, Iterator, List, Optional, Tuple

from .processes import read

_UNLIMITED = 1 << 60


@dataclass(frozen=True)
class Cgroups:
    """Folders of the controllers, own group first, then its parents. `version` 0: there are none."""

    version: int
    memory: Tuple[str, ...]
    cpu: Tuple[str, ...]
    io: Tuple[str, ...] = ()

    def oom_kills(self) -> Optional[int]:
        """Return how many processes of the own group the kernel has killed because memory ran out."""
        name = "memory.events" if self.version == 2 else "memory.oom_control"
        return _keyed(self.memory[0], name, "oom_kill") if self.memory else None

    def memory_now(self) -> Optional[int]:
        return self._memory("memory.current", "memory.usage_in_bytes")

    def memory_held(self) -> Optional[int]:
        """Return the memory that cannot be reclaimed at once: without file pages that were not used for a
        while.
        """
        now = self.memory_now()
        if now is None:
            return None
        name = "inactive_file" if self.version == 2 else "total_inactive_file"
        return max(0, now - (_keyed(self.memory[0], "memory.stat", name) or 0))

    def memory_peak(self) -> Optional[int]:
        return self._memory("memory.peak", "memory.max_usage_in_bytes")

    def memory_limit(self) -> Optional[int]:
        """Return the smallest limit of the group and its parents in bytes; None if there is none."""
        name = "memory.max" if self.version == 2 else "memory.limit_in_bytes"
        limits = _numbers(self.memory, lambda folder: _integer(folder, name))
        tight = [limit for limit in limits if limit < _UNLIMITED]
        return int(min(tight)) if tight else None

    def cpu_limit(self) -> Optional[float]:
        """Return the smallest quota of the group and its parents in cores; None if there is none."""
        quotas = _numbers(self.cpu, _quota_v2 if self.version == 2 else _quota_v1)
        return min(quotas) if quotas else None

    def throttled(self) -> Optional[float]:
        """Return the seconds for which the quota kept this group from running."""
        if not self.cpu:
            return None
        if self.version == 2:
            microseconds = _keyed(self.cpu[0], "cpu.stat", "throttled_usec")
            return None if microseconds is None else microseconds / 1e6
        nanoseconds = _keyed(self.cpu[0], "cpu.stat", "throttled_time")
        return None if nanoseconds is None else nanoseconds / 1e9

    def _memory(self, modern: str, legacy: str) -> Optional[int]:
        name = modern if self.version == 2 else legacy
        return _integer(self.memory[0], name) if self.memory else None


def own() -> Cgroups:
    """Return the groups of this process. Version 1 wins if both exist and it has the controllers."""
    groups = _groups(read("/proc/self/cgroup") or "")
    mounts = _mounts(read("/proc/self/mountinfo") or "")
    memory = _chain(mounts.get("memory"), groups.get("memory"))
    cpu = _chain(mounts.get("cpu"), groups.get("cpu"))
    if memory or cpu:
        return Cgroups(1, memory, cpu, _chain(mounts.get("blkio"), groups.get("blkio")))
    unified = _chain(mounts.get(""), groups.get(""))
    return Cgroups(2 if unified else 0, unified, unified, unified)


def global_oom_kills() -> Optional[int]:
    """Return how many processes of the whole computer the kernel has killed because memory ran out."""
    return _keyed("/proc", "vmstat", "oom_kill")


def _groups(text: str) -> Dict[str, str]:
    """Return controller -> path, from /proc/self/cgroup; the controller of version 2 is ""."""
    found = {}
    for line in text.splitlines():
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            found[controller] = path
    return found


def _mounts(text: str) -> Dict[str, Tuple[str, str]]:
    """Return controller -> (mount point, group that is mounted there), from /proc/self/mountinfo."""
    found: Dict[str, Tuple[str, str]] = {}
    for line in text.splitlines():
        left, _, right = line.partition(" - ")
        place, kind = left.split(), right.split()
        if kind and kind[0] == "cgroup2":
            found.setdefault("", (place[4], place[3]))
        elif kind and kind[0] == "cgroup":
            for controller in kind[-1].split(","):
                found.setdefault(controller, (place[4], place[3]))
    return found


def _chain(mount: Optional[Tuple[str, str]], group: Optional[str]) -> Tuple[str, ...]:
    """Return the folders of the group and its parents up to the mount, as far as they are visible."""
    if mount is None or group is None:
        return ()
    point, root = mount
    relative = os.path.relpath(group, root)
    if relative.startswith(".."):
        relative = "."
    folder = os.path.normpath(os.path.join(point, relative))
    if not os.path.isdir(folder):
        return ()
    return tuple(_upwards(folder, point))


def _upwards(folder: str, top: str) -> Iterator[str]:
    while True:
        yield folder
        if folder == top or len(folder) <= len(top):
            return
        folder = os.path.dirname(folder)


def _numbers(folders: Tuple[str, ...], of: Callable[[str], Optional[float]]) -> List[float]:
    return [value for value in map(of, folders) if value is not None]


def _integer(folder: str, name: str) -> Optional[int]:
    text = (read(os.path.join(folder, name)) or "").strip()
    return int(text) if text.isdigit() else None


def _keyed(folder: str, name: str, key: str) -> Optional[int]:
    for line in (read(os.path.join(folder, name)) or "").splitlines():
        found, _, value = line.partition(" ")
        if found == key:
            return int(value)
    return None


def _quota_v2(folder: str) -> Optional[float]:
    fields = (read(os.path.join(folder, "cpu.max")) or "").split()
    return int(fields[0]) / int(fields[1]) if len(fields) == 2 and fields[0].isdigit() else None


def _quota_v1(folder: str) -> Optional[float]:
    quota, period = _integer(folder, "cpu.cfs_quota_us"), _integer(folder, "cpu.cfs_period_us")
    return quota / period if quota and period else None
