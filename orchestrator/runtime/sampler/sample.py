"""Sample what a job uses, from outside its processes, and append it to the run's trace.

A trace is JSON lines. The first is {"event": "header", "version": 1, …}; `sample` lines have totals since the
job began and current values, so that a lost line loses only detail. Each line is one O_APPEND write: others
may append to the same file, and only the last line can be incomplete.
"""

# Close to the kernel: descriptors, modes and races need os calls, not pathlib.
# ruff: noqa: PTH208

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, List, Optional, Set, Tuple

from .. import cgroups
from ..cadence import DOUBLING, Cadence
from ..processes import Stat, boot_id, descendants, read, stat
from .alarms import Alarms
from .cpu import Machine, meminfo
from .disks import Disks
from .gpu import GpuMeter
from .network import Network

VERSION = 1


@dataclass
class Totals:
    """Usage of the job's processes since it began. Seconds and bytes.

    `read` and `written` reached a disk; `asked_read` and `asked_written` went through system calls, including
    the page cache. `waited` is time in which a thread could have run but had no core.
    """

    cpu_user: float = 0.0
    cpu_system: float = 0.0
    read: int = 0
    written: int = 0
    asked_read: int = 0
    asked_written: int = 0
    read_calls: int = 0
    waited: float = 0.0
    major_faults: int = 0


_IO = {
    "read_bytes": "read",
    "write_bytes": "written",
    "rchar": "asked_read",
    "wchar": "asked_written",
    "syscr": "read_calls",
}


@dataclass
class Usage:
    """Add up the usage of a changing tree of processes.

    The kernel adds a process's usage to its parent when the parent waits for it. So living processes suffice,
    except those whose last parent is the supervisor itself: it retires them when they end.
    """

    totals: Totals = field(default_factory=Totals)
    _gone: Totals = field(default_factory=Totals)
    _threads: Dict[Tuple[int, int], int] = field(default_factory=dict)
    _waited: float = 0.0

    def measure(self, processes: List[Stat]) -> Totals:
        """Return the totals now, given every existing process of the job."""
        sum_ = Totals()
        _add(sum_, self._gone)
        for entry in processes:
            _add(sum_, self._of(entry))
        self._waited += self._new_waiting(processes)
        sum_.waited = self._waited
        for name in vars(sum_):  # if nobody waited for a process, its usage is lost; totals never decrease
            setattr(sum_, name, max(getattr(sum_, name), getattr(self.totals, name)))
        self.totals = sum_
        return sum_

    def retire(self, ended: Stat) -> None:
        """Add the usage of a process that has ended, before the supervisor waits for it."""
        _add(self._gone, self._of(ended))

    def _of(self, entry: Stat) -> Totals:
        used = Totals(
            cpu_user=entry.user + entry.children_user,
            cpu_system=entry.system + entry.children_system,
            major_faults=entry.major_faults,
        )
        for line in (read(f"/proc/{entry.pid}/io") or "").splitlines():
            key, _, value = line.partition(": ")
            if key in _IO:
                setattr(used, _IO[key], int(value))
        return used

    def _new_waiting(self, processes: List[Stat]) -> float:
        """Return the seconds that threads waited for a core since the last call, without threads that have
        ended.
        """
        found: Dict[Tuple[int, int], int] = {}
        for entry in processes:
            for thread in _threads(entry.pid):
                fields = (read(f"/proc/{entry.pid}/task/{thread}/schedstat") or "").split()
                if len(fields) == 3:
                    found[entry.pid, thread] = int(fields[1])
        moved = sum(value - self._threads.get(key, 0) for key, value in found.items())
        self._threads = found
        return max(0, moved) / 1e9


def _add(into: Totals, used: Totals) -> None:
    for name, value in vars(used).items():
        setattr(into, name, getattr(into, name) + value)


def _threads(pid: int) -> List[int]:
    try:
        return [int(name) for name in os.listdir(f"/proc/{pid}/task")]
    except OSError:
        return []


class Sampler:
    """Write the trace of one run. `root` is the supervisor: everything below it is the job, except
    `strangers`.

    `tell` receives one sentence for each way in which the machine turns out to be too small.
    """

    def __init__(self, trace: str, root: int, tell: Optional[Callable[[str], None]] = None) -> None:
        self._file = os.open(trace, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self._root = root
        self._tell = tell
        self._usage = Usage()
        self._cgroups = cgroups.own()
        self._machine = Machine(self._cgroups.cpu)
        self._disks = Disks(self._cgroups.io)
        self._began = time.monotonic()
        self._own_cpu = time.process_time()
        self._network = Network(root)
        self._throttled = self._cgroups.throttled()
        self._peak = 0
        self._gpu = GpuMeter()
        self._cadence = Cadence(doubling=2 * DOUBLING)  # one sampler, whatever the number of processes
        self._size = 0
        self._due = self._began
        header = self._header()
        self._alarms = Alarms(header)
        self._write(header)

    @property
    def strangers(self) -> Set[int]:
        """Return our own helpers among the supervisor's children."""
        return self._gpu.pids

    @property
    def used(self) -> Totals:
        """Return what the job has used, as of the last sample."""
        return self._usage.totals

    def wait(self) -> float:
        """Return the seconds until the next sample is due."""
        return max(0.0, self._due - time.monotonic())

    def sample_if_due(self) -> None:
        if time.monotonic() >= self._due:
            before = time.process_time()
            self.sample()
            cost = time.process_time() - before
            self._due = time.monotonic() + self._cadence.next(cost, self._size)

    def sample(self) -> None:
        """Append one sample now. Call it once more before the ended job is waited for."""
        processes = [entry for entry in descendants(self._root) if entry.pid not in self.strangers]
        used = self._usage.measure(processes)
        rss = sum(entry.rss for entry in processes)
        memory = [_memory(entry.pid) for entry in processes]
        self._peak = max(self._peak, rss, *(peak for peak, _ in memory), 0)
        line = {
            "event": "sample",
            "up": round(time.monotonic() - self._began, 3),
            **{name: round(value, 3) for name, value in vars(used).items()},
            "rss": rss,
            "peak": self._peak,
            "swap": sum(swap for _, swap in memory),
            "processes": len(processes),
            "threads": sum(entry.threads for entry in processes),
            **self._network.sample(),
            "throttled": self._throttling(),
            "group_memory": self._cgroups.memory_now(),
            "group_held": self._cgroups.memory_held(),
            "group_peak": self._cgroups.memory_peak(),
            "available": meminfo("MemAvailable"),
            **self._machine.sample(),
            "disks": self._disks.sample(),
            "gpus": self._gpu.read(),
            "own_cpu": round(time.process_time() - self._own_cpu, 3),
        }
        self._write(line)
        self._warn(line)

    def retire(self, pid: int) -> None:
        """Count the usage of a child that has ended, before it is waited for; not for the job's first
        process.
        """
        ended = None if pid in self.strangers else stat(pid)
        if ended is not None:
            self._usage.retire(ended)

    def ended(self, peak: int) -> None:
        """Append the end of the run. `peak`: the kernel's record of the largest process's memory, in
        bytes.
        """
        self._peak = max(self._peak, peak)
        self._write({"event": "end", "up": round(time.monotonic() - self._began, 3), "peak": self._peak})

    def close(self) -> None:
        self._gpu.close()
        os.close(self._file)

    def _warn(self, line: Dict[str, Any]) -> None:
        """Report new warnings, in the trace and to `tell`."""
        for kind, text in self._alarms.see(line):
            self._write({"event": "alarm", "kind": kind, "text": text})
            if self._tell is not None:
                self._tell(text)

    def _header(self) -> Dict[str, Any]:
        return {
            "event": "header",
            "version": VERSION,
            "cores": _cores(self._cgroups),
            "memory": self._cgroups.memory_limit() or meminfo("MemTotal"),
            "memory_is_a_limit": self._cgroups.memory_limit() is not None,
            "machine": os.uname().machine,
            "boot_id": boot_id(),
            "gpus": self._gpu.names,
            "disks": self._disks.facts(),
        }

    def _throttling(self) -> Optional[float]:
        now = self._cgroups.throttled()
        return None if now is None or self._throttled is None else round(now - self._throttled, 3)

    def _write(self, line: Dict[str, Any]) -> None:
        text = json.dumps({"t": round(time.time(), 3), **line}, separators=(",", ":")) + "\n"
        try:
            os.write(self._file, text.encode())
            self._size = os.fstat(self._file).st_size
        except OSError:  # the disk is full: the job reports that, not orch
            pass


def _memory(pid: int) -> Tuple[int, int]:
    """Return (the maximum memory that the process ever held, how much of it is swapped out now) in bytes."""
    found = {"VmHWM": 0, "VmSwap": 0}
    for line in (read(f"/proc/{pid}/status") or "").splitlines():
        name, _, value = line.partition(":")
        if name in found:
            found[name] = int(value.split()[0]) * 1024
    return found["VmHWM"], found["VmSwap"]


def _cores(groups: cgroups.Cgroups) -> float:
    """Return how many cores the job may use at once."""
    try:
        allowed = float(len(os.sched_getaffinity(0)))
    except AttributeError:
        allowed = float(os.cpu_count() or 1)
    return min(allowed, groups.cpu_limit() or allowed)
