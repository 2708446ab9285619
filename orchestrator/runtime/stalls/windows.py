"""One window: some steps of the unchanged training on one kind of input, timed, with their resource usage."""

# Close to the kernel: counters are read as text.
# ruff: noqa: PTH208

from __future__ import annotations

import os
import resource
from time import perf_counter, process_time
from typing import Any, Callable, Dict, Generator, Iterator, List, NamedTuple, Optional

Feed = Generator[Any, bool, Any]
"""Yields the iterator that the next step is to pull from; is sent True where the step was made, False where
the iterator had ended."""

LEAD = 3
"""Steps before the clock starts: buffers fill at the speed of the training."""


class Usage(NamedTuple):
    """Totals: seconds, CPU seconds, seconds of waiting for a core; bytes read from a disk, bytes requested;
    read calls; pages read back; network bytes; CPU seconds of the whole machine.
    """

    wall: float
    cpu: float
    waited: float
    device: int
    asked: int
    calls: int
    faults: int
    network: int
    machine: float

    def since(self, other: "Usage") -> Dict[str, float]:
        grown = {name: now - then for name, now, then in zip(self._fields, self, other)}  # noqa: B905
        return {name: round(value, 6) if isinstance(value, float) else value for name, value in grown.items()}


def usage() -> Usage:
    """Return the totals now. What cannot be read counts as 0."""
    io = _io()
    return Usage(
        perf_counter(),
        process_time(),
        _waited(),
        io.get("read_bytes", 0),
        io.get("rchar", 0),
        io.get("syscr", 0),
        resource.getrusage(resource.RUSAGE_SELF).ru_majflt,
        _network(),
        _machine(),
    )


def _io() -> Dict[str, int]:
    try:
        with open("/proc/self/io", encoding="ascii") as lines:
            return {name: int(value) for name, value in (line.split(":") for line in lines)}
    except (OSError, ValueError):
        return {}


def _waited() -> float:
    """Return the seconds in which any thread could have run but had no core."""
    total = 0
    try:
        for task in os.listdir("/proc/self/task"):
            with open(f"/proc/self/task/{task}/schedstat", encoding="ascii") as file:
                total += int(file.read().split()[1])
    except (OSError, ValueError, IndexError):
        pass
    return total / 1e9


def _network() -> int:
    try:
        with open("/proc/self/net/dev", encoding="ascii") as lines:
            return sum(int(line.split(":")[1].split()[0]) for line in lines if ":" in line)
    except (OSError, ValueError, IndexError):
        return 0


def _machine() -> float:
    try:
        with open("/proc/stat", encoding="ascii") as file:
            fields = file.readline().split()[1:9]
    except OSError:
        return 0.0
    ticks = sum(int(field) for place, field in enumerate(fields) if place not in (3, 4))  # idle, waiting
    return ticks / os.sysconf("SC_CLK_TCK")


def connections() -> int:
    """Return the TCP connections that this process has now."""
    open_ = set(_descriptors())
    return sum(f"socket:[{inode}]" in open_ for inode in _established())


def _descriptors() -> Iterator[str]:
    for name in os.listdir("/proc/self/fd"):
        try:
            yield os.readlink(f"/proc/self/fd/{name}")  # noqa: PTH115
        except OSError:  # closed meanwhile, as that of the listing is
            continue


def _established() -> Iterator[str]:
    for table in ("tcp", "tcp6"):
        try:
            with open(f"/proc/self/net/{table}", encoding="ascii") as lines:
                rows = [line.split() for line in lines]
        except OSError:
            continue
        yield from (row[9] for row in rows if len(row) > 9 and row[3] == "01")


class Mode(NamedTuple):
    """A kind of input. `open` returns a fresh iterator; `before` prepares the page cache and is not timed."""

    name: str
    open: Callable[[], Any]
    before: Callable[[], None] = lambda: None
    after: Callable[[], None] = lambda: None
    pull: bool = False


Sync = Callable[[], None]


def window(mode: Mode, steps: int, sync: Sync, look: Optional[Callable[[Any, int], None]] = None) -> Feed:
    """Time `steps` steps, or with `pull` only their batches. Returns the window's line.

    Opening the iterator, its first batches and its end are excluded from the time; if it ends during the
    window it is opened again, which is excluded too. `look` receives the iterator and the number of its
    batches.
    """
    mode.before()
    source = _Source(mode)
    began = perf_counter()
    first = yield from source.step()
    first_seconds = perf_counter() - began
    for _ in range(LEAD - 1):
        if first:
            first = yield from source.step()
    lines: List[Dict[str, float]] = []
    done = 0
    connected = connections()
    while first and done < steps:
        sync()
        start = usage()
        fresh = source.given
        while done < steps and (yield from source.once()):
            done += 1
        sync()
        lines.append(usage().since(start))
        if source.given - fresh == 0 and source.barren:
            break
        if done < steps:
            first = yield from source.step()
    if look is not None and source.iterator is not None:
        look(source.iterator, source.given)
    connected = max(connected, connections())
    source.close()
    mode.after()
    summed = {name: round(sum(line[name] for line in lines), 6) for name in Usage._fields} if lines else {}
    return {
        "mode": mode.name,
        "steps": done,
        "first": round(first_seconds, 6),
        "opened": source.opened,
        "threads": _threads(),
        "connections": connected,
        **summed,
    }


def _threads() -> int:
    try:
        return len(os.listdir("/proc/self/task"))
    except OSError:
        return 0


class _Source:
    """The source of a window's batches. `given`: batches of the iterator that is open."""

    def __init__(self, mode: Mode) -> None:
        self._mode = mode
        self.iterator: Any = mode.open()
        self.opened = 1
        self.given = 0
        self.barren = False

    def once(self) -> Feed:
        """Run one step; returns False if the iterator had ended."""
        if self._mode.pull:
            made = next(self.iterator, None) is not None
        else:
            made = yield self.iterator
        self.given += bool(made)
        return bool(made)

    def step(self) -> Feed:
        """Run one step, on a new iterator if this one has ended; returns False if there is no batch."""
        if (yield from self.once()):
            return True
        self.close()
        self.iterator, self.given = self._mode.open(), 0
        self.opened += 1
        made = yield from self.once()
        self.barren = not made
        return made

    def close(self) -> None:
        self.iterator = None
