"""The kernel's counters of the whole machine: its cores, its swap, and time that tasks waited."""

from __future__ import annotations

import os
from typing import Any, Dict, List, Optional, Sequence, Tuple

from ..processes import read

_TICK = float(os.sysconf("SC_CLK_TCK"))
_PAGE = os.sysconf("SC_PAGE_SIZE")
_IDLE, _IOWAIT, _STEAL = 3, 4, 7
_RESOURCES = ("cpu", "memory", "io")


class Machine:
    """Cores, swap and pressure since the job began, as visible to the job."""

    def __init__(self, group: Sequence[str] = ()) -> None:
        """Start counting. `group`: folders of the job's control groups, own first; their pressure is
        preferred to the machine's.
        """
        self._group = tuple(group[:1])
        self._cores = _allowed()
        self._before = cores(read("/proc/stat") or "")
        self._began = self._before
        self._swap = swapped(read("/proc/vmstat") or "")
        self._pressure = self._pressures()

    def sample(self) -> Dict[str, Any]:
        """Return a sample. `busy`: percent of each core that the job may use, since the last sample, by any
        process.

        `steal` and `iowait`: seconds of those cores since the job began: given to another machine, or idle
        while waiting for a disk. `swapped_in`, `swapped_out`: bytes. `pressure`: seconds in which some task
        waited for a core, for memory and for a disk; None if the kernel does not report it.
        """
        now = cores(read("/proc/stat") or "")
        swap = swapped(read("/proc/vmstat") or "")
        found: Dict[str, Any] = {
            "busy": [_busy(self._before.get(core), now.get(core)) for core in self._cores],
            "steal": self._since(now, _STEAL),
            "iowait": self._since(now, _IOWAIT),
            "swapped_in": _grown(self._swap[0], swap[0]),
            "swapped_out": _grown(self._swap[1], swap[1]),
            "pressure": list(map(_grown, self._pressure, self._pressures())),
        }
        self._before = now
        return found

    def _since(self, now: Dict[int, List[int]], column: int) -> Optional[float]:
        pairs = [
            (self._began[core], now[core]) for core in self._cores if core in self._began and core in now
        ]
        if not pairs or any(len(after) <= column for _, after in pairs):
            return None
        return round(max(0, sum(after[column] - before[column] for before, after in pairs)) / _TICK, 2)

    def _pressures(self) -> List[Optional[float]]:
        return [self._one_pressure(resource) for resource in _RESOURCES]

    def _one_pressure(self, resource: str) -> Optional[float]:
        for path in [f"{folder}/{resource}.pressure" for folder in self._group] + [
            f"/proc/pressure/{resource}"
        ]:
            found = stalled(read(path) or "")
            if found is not None:
                return found
        return None


def cores(text: str) -> Dict[int, List[int]]:
    """Return core -> its counters in ticks, from /proc/stat."""
    found = {}
    for line in text.splitlines():
        name, *fields = line.split()
        if name.startswith("cpu") and name[3:].isdigit():
            found[int(name[3:])] = [int(value) for value in fields]
    return found


def swapped(text: str) -> Tuple[Optional[int], Optional[int]]:
    """Return (in, out) bytes since the machine's start, from /proc/vmstat."""
    found: Dict[str, int] = {}
    for line in text.splitlines():
        key, _, value = line.partition(" ")
        if key in ("pswpin", "pswpout"):
            found[key] = int(value) * _PAGE
    return found.get("pswpin"), found.get("pswpout")


def stalled(text: str) -> Optional[float]:
    """Return the seconds in which some task was delayed, from a pressure file."""
    for line in text.splitlines():
        kind, *fields = line.split()
        if kind == "some" and fields and fields[-1].startswith("total="):
            return int(fields[-1][6:]) / 1e6
    return None


def meminfo(key: str) -> Optional[int]:
    """Return a line of /proc/meminfo in bytes."""
    for line in (read("/proc/meminfo") or "").splitlines():
        if line.startswith(f"{key}:"):
            return int(line.split()[1]) * 1024
    return None


def _busy(before: Optional[List[int]], after: Optional[List[int]]) -> Optional[int]:
    if before is None or after is None or len(after) <= _STEAL or len(before) <= _STEAL:
        return None
    grown = [max(0, after[column] - before[column]) for column in range(_STEAL + 1)]
    whole = sum(grown)
    return round(100 * (whole - grown[_IDLE] - grown[_IOWAIT] - grown[_STEAL]) / whole) if whole else 0


def _grown(before: Optional[float], now: Optional[float]) -> Optional[float]:
    return None if before is None or now is None else round(max(0, now - before), 3)


def _allowed() -> List[int]:
    try:
        return sorted(os.sched_getaffinity(0))
    except AttributeError:
        return list(range(os.cpu_count() or 1))
