"""What the sampler saw: totals of the whole run, and rates while it trained."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator.profiling.trace import Line, Trace, amount, number

ENOUGH_SECONDS = 0.2
"""Two samples must lie so far apart for a rate between them to mean anything."""


@dataclass(frozen=True)
class Usage:
    """Totals in bytes; `cpu` and `gpu` as shares of what there was; `waiting`, `throttled`, `busy` in cores.

    `reading` (from a disk) and `network` in bytes, `faults` in pages read back from disk, each a second.
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


def usage_of(trace: Trace, began: float | None, ended: float | None) -> Usage:
    """Totals of the run; rates between `began` and `ended` where these are known, else of the whole run."""
    if not trace.samples:
        return Usage()
    last = trace.samples[-1]
    rates = _Rates(_between(trace.samples, began, ended))
    cores = number(trace.header, "cores") or None
    busy = rates.of("cpu_user", "cpu_system")
    limit = number(trace.header, "memory")
    return Usage(
        bytes_read=_whole(max(amount(last, "asked_read"), amount(last, "read"))),
        bytes_written=_whole(max(amount(last, "asked_written"), amount(last, "written"))),
        disk_read=_whole(number(last, "read")),
        disk_written=_whole(number(last, "written")),
        network_bytes=_network(last),
        peak_memory=_whole(max(amount(line, "peak") for line in trace.samples) or None),
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
    )


def _between(samples: Sequence[Line], began: float | None, ended: float | None) -> Sequence[Line]:
    """The samples of that time, or all where too few are."""
    if began is None or ended is None:
        return samples
    inside = [line for line in samples if began <= amount(line, "t") <= ended + 1]
    return inside if len(inside) > 1 else samples


class _Rates:
    """How fast totals grew from the first of the samples to the last."""

    def __init__(self, samples: Sequence[Line]) -> None:
        self.samples = samples
        self._seconds = amount(samples[-1], "up") - amount(samples[0], "up")

    def of(self, *keys: str) -> float | None:
        """Growth of the sum of these keys a second, None where it is not known."""
        if self._seconds < ENOUGH_SECONDS:
            return None
        if any(number(line, key) is None for line in (self.samples[0], self.samples[-1]) for key in keys):
            return None
        grown = sum(amount(self.samples[-1], key) - amount(self.samples[0], key) for key in keys)
        return round(max(0.0, grown) / self._seconds, 4)


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
