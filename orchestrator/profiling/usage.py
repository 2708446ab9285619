"""What the sampler recorded: totals of the whole run, and rates during training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from orchestrator.profiling.devices import Disk, Gpu, busiest_disk, gpus_of
from orchestrator.profiling.trace import Line, Trace, amount, number

ENOUGH_SECONDS = 0.2
"""Two samples must be so far apart for a meaningful rate."""


@dataclass(frozen=True)
class Usage:
    """Totals in bytes; `cpu` and `gpu` as shares of what there was; `waiting`, `throttled`, `busy` in cores.

    Rates, per second: `reading` (from a disk), `asked` (by read calls), `network` and `swapping` in bytes;
    `faults` in pages read back from disk; `read_calls`; `steal` in cores. `machine_busy`: cores that any
    program kept busy, of `machine_cores`. `available`: the least memory that was free; `swap`: the most of
    the job that was swapped out. `cache_hit`: share of the bytes read that did not come from a disk.
    `growing`: bytes a second by which the peak rose, if it rose in every quarter of the time; else None.
    """

    bytes_read: int | None = None
    bytes_written: int | None = None
    disk_read: int | None = None
    disk_written: int | None = None
    network_bytes: int | None = None
    peak_memory: int | None = None
    memory_limit: int | None = None
    cores: float | None = None
    busy: float | None = None
    cpu: float | None = None
    waiting: float | None = None
    throttled: float | None = None
    gpu: float | None = None
    reading: float | None = None
    network: float | None = None
    faults: float | None = None
    sampler_cpu: float | None = None
    asked: float | None = None
    read_calls: float | None = None
    cache_hit: float | None = None
    swapping: float | None = None
    swap: int | None = None
    steal: float | None = None
    machine_busy: float | None = None
    machine_cores: int | None = None
    available: int | None = None
    rtt_ms: float | None = None
    resent: int | None = None
    disk: Disk | None = None
    gpus: Sequence[Gpu] = ()
    growing: float | None = None

    @property
    def idle(self) -> float | None:
        """Cores that nobody used; other programs on the machine count as users if they were measured."""
        if self.cores is None or (self.busy is None and self.machine_busy is None):
            return None
        own = self.cores - (self.busy or 0.0)
        if self.machine_busy is None:
            return max(0.0, own)
        return max(0.0, min(own, (self.machine_cores or self.cores) - self.machine_busy))


def usage_of(trace: Trace, began: float | None, ended: float | None, memory: int | None = None) -> Usage:
    """Return totals of the run, and rates between `began` and `ended` if these are known, else of the whole
    run.

    A training too short for two samples has no rates: those of its start-up would not apply to it.

    `memory`: bytes of memory that its machine was created with, if known: a machine on a larger computer sees
    all the memory of that computer.
    """
    if not trace.samples:
        return Usage()
    last = trace.samples[-1]
    rates = _Rates(_between(trace.samples, began, ended))
    cores = number(trace.header, "cores") or None
    busy = rates.of("cpu_user", "cpu_system")
    limit = _limit(trace.header, memory)
    return Usage(
        bytes_read=_whole(max(amount(last, "asked_read"), amount(last, "read"))),
        bytes_written=_whole(max(amount(last, "asked_written"), amount(last, "written"))),
        disk_read=_whole(number(last, "read")),
        disk_written=_whole(number(last, "written")),
        network_bytes=_network(last),
        peak_memory=_whole(trace.peak or None),
        memory_limit=_whole(limit),
        cores=cores,
        busy=busy,
        cpu=None if busy is None or cores is None else round(min(1.0, busy / cores), 4),
        waiting=rates.of("waited"),
        throttled=rates.of("throttled"),
        gpu=_gpu(rates.samples),
        reading=rates.of("read"),
        network=rates.of("received", "sent"),
        faults=rates.of("major_faults"),
        sampler_cpu=_Rates(trace.samples).of("own_cpu"),
        asked=rates.of("asked_read"),
        read_calls=rates.of("read_calls"),
        cache_hit=_cache_hit(last),
        swapping=rates.of("swapped_in", "swapped_out"),
        swap=_whole(max((amount(line, "swap") for line in trace.samples), default=0) or None),
        steal=rates.of("steal"),
        machine_busy=_machine_busy(rates.samples),
        machine_cores=_machine_cores(rates.samples),
        available=_whole(_free(trace, limit)),
        rtt_ms=_middle(_known(rates.samples, "rtt_ms")),
        resent=_whole(number(last, "resent")),
        disk=busiest_disk(trace.header, rates.samples),
        gpus=gpus_of(trace.header, rates.samples),
        growing=_growing(rates.samples),
    )


def _known(samples: Sequence[Line], key: str) -> list[float]:
    return [value for line in samples if (value := number(line, key)) is not None]


def _limit(header: Line, memory: int | None) -> float | None:
    """Return the most bytes of memory that the run could have."""
    known = [bytes_ for bytes_ in (number(header, "memory"), memory) if bytes_]
    return min(known, default=None)


def _free(trace: Trace, limit: float | None) -> float | None:
    """Return the least memory that was free for the run: on the computer, and below its own limit."""
    stated, own = number(trace.header, "memory"), trace.header.get("memory_is_a_limit") is True
    limited = limit is not None and (own or stated is None or limit < stated)
    found = _known(trace.samples, "available")
    for line in trace.samples if limited else ():
        held = max(amount(line, "rss"), amount(line, "group_held") if own else 0.0)
        found.append(max(0.0, (limit or 0.0) - held))
    return min(found, default=None)


def _middle(values: Sequence[float]) -> float | None:
    return sorted(values)[len(values) // 2] if values else None


def _cache_hit(last: Line) -> float | None:
    """Return the share of the requested bytes that did not come from a disk."""
    asked, read = number(last, "asked_read"), number(last, "read")
    return None if not asked or read is None else round(max(0.0, 1 - read / asked), 4)


def _machine_busy(samples: Sequence[Line]) -> float | None:
    """Return the cores that were busy, for any program; each sample is for the time since the one before."""
    weighted = passed = 0.0
    for before, line in pairwise(samples):
        busy = line.get("busy")
        if isinstance(busy, list) and busy and all(isinstance(core, int | float) for core in busy):
            seconds = max(0.0, amount(line, "up") - amount(before, "up"))
            weighted += seconds * sum(min(100.0, max(0.0, core)) for core in busy) / 100
            passed += seconds
    return round(weighted / passed, 4) if passed >= ENOUGH_SECONDS else None


def _machine_cores(samples: Sequence[Line]) -> int | None:
    """Return the number of cores that samples report; it is more than the run has if a quota limits it."""
    told = [len(busy) for line in samples if isinstance(busy := line.get("busy"), list)]
    return max(told, default=0) or None


def _between(samples: Sequence[Line], began: float | None, ended: float | None) -> Sequence[Line]:
    """Return the samples of that time; all of them if it is not known."""
    if began is None or ended is None:
        return samples
    return [line for line in samples if began <= amount(line, "t") <= ended + 1]


class _Rates:
    """How fast totals grew from the first of the samples to the last."""

    def __init__(self, samples: Sequence[Line]) -> None:
        self.samples = samples
        self._seconds = amount(samples[-1], "up") - amount(samples[0], "up") if samples else 0.0

    def of(self, *keys: str) -> float | None:
        """Return the growth of the sum of these keys per second, None if it is not known."""
        if self._seconds < ENOUGH_SECONDS:
            return None
        if any(number(line, key) is None for line in (self.samples[0], self.samples[-1]) for key in keys):
            return None
        grown = sum(amount(self.samples[-1], key) - amount(self.samples[0], key) for key in keys)
        return round(max(0.0, grown) / self._seconds, 4)


_QUARTERS = 4
_EVENLY = 0.5
"""Memory counts as growing if it grew in each quarter by at least this share of the average growth of a
quarter.
"""


def _growing(samples: Sequence[Line]) -> float | None:
    if len(samples) < 2 * _QUARTERS:
        return None
    marks = [samples[place * (len(samples) - 1) // _QUARTERS] for place in range(_QUARTERS + 1)]
    grown = [
        (amount(after, "peak") - amount(before, "peak"))
        / max(1e-3, amount(after, "up") - amount(before, "up"))
        for before, after in pairwise(marks)
    ]
    mean = sum(grown) / _QUARTERS
    return round(mean) if mean > 0 and min(grown) >= _EVENLY * mean else None


def _network(last: Line) -> int | None:
    received, sent = number(last, "received"), number(last, "sent")
    return None if received is None or sent is None else int(received + sent)


def _gpu(samples: Sequence[Line]) -> float | None:
    values = [
        value
        for line in samples
        if isinstance(line.get("gpus"), list)
        for gpu in line["gpus"]
        if isinstance(gpu, dict) and (value := number(gpu, "utilisation")) is not None
    ]
    return round(min(1.0, sum(values) / len(values)), 4) if values else None


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)
