"""Disks and GPUs during training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.profiling.trace import Line, amount, number

HOLDING_DOWN = frozenset({"hardware slowdown", "thermal, by software", "thermal, by hardware", "power brake"})
"""Reasons for low clocks that are a problem; a power cap and application clocks are settings."""

_READS, _READ, _READ_MS, _WRITES, _WRITTEN, _, _BUSY_MS = range(7)
_COUNTERS = 7


@dataclass(frozen=True)
class Disk:
    """The disk that moved most bytes. `rate` and `ops`: bytes and operations a second; `read_ms`:
    milliseconds of a read.

    `cap`: the share of the disk's limit that was used, of bytes or of operations, whichever is higher;
    `basis` says how the limit is known. `busy`: the share of time in which the disk was working.
    """

    name: str
    rate: float
    ops: float
    busy: float
    read_ms: float | None = None
    cap: float | None = None
    basis: str | None = None
    rotational: bool | None = None


@dataclass(frozen=True)
class Gpu:
    """One GPU during training: share of time in use, most memory in use (bytes), mean power (W) and its
    limit.

    `held_down`: share of the samples in which heat, power or the hardware reduced its clocks.
    """

    name: str
    utilisation: float | None = None
    memory: int | None = None
    memory_total: int | None = None
    power: float | None = None
    power_limit: float | None = None
    held_down: float | None = None


def busiest_disk(header: Line, samples: Sequence[Line]) -> Disk | None:
    """The disk that moved most bytes between the first sample and the last; None if no disk was reported."""
    if len(samples) < 2:
        return None
    first, last = samples[0], samples[-1]
    seconds = amount(last, "up") - amount(first, "up")
    if seconds <= 0:
        return None
    moved = {name: _grown(_counters(first, name), after) for name, after in _disks(last).items()}
    name = max(moved, key=lambda disk: moved[disk][_READ] + moved[disk][_WRITTEN], default=None)
    return None if name is None else _disk(name, moved[name], seconds, _facts(header, name))


def gpus_of(header: Line, samples: Sequence[Line]) -> tuple[Gpu, ...]:
    """Return the facts of each GPU that any sample reports."""
    listed = [line["gpus"] for line in samples if isinstance(line.get("gpus"), list)]
    names = header.get("gpus")
    known = [name for name in names if isinstance(name, str)] if isinstance(names, list) else []
    count = max(map(len, listed), default=0)
    return tuple(
        _gpu(
            known[index] if index < len(known) else "GPU",
            [gpus[index] for gpus in listed if len(gpus) > index and isinstance(gpus[index], dict)],
        )
        for index in range(min(count, 64))
    )


def _disk(name: str, moved: Sequence[float], seconds: float, facts: Line) -> Disk:
    rate = (moved[_READ] + moved[_WRITTEN]) / seconds
    ops = (moved[_READS] + moved[_WRITES]) / seconds
    found = facts.get("limits")
    limits: Line = found if isinstance(found, dict) else {}
    shares = [
        value / limit for value, key in ((rate, "bytes_s"), (ops, "ops_s")) if (limit := number(limits, key))
    ]
    rotates = facts.get("rotational")
    return Disk(
        name=name,
        rate=round(rate, 1),
        ops=round(ops, 1),
        busy=round(min(1.0, moved[_BUSY_MS] / 1000 / seconds), 4),
        read_ms=round(moved[_READ_MS] / moved[_READS], 3) if moved[_READS] else None,
        cap=round(max(shares), 4) if shares else None,
        basis=str(limits["basis"]) if shares and "basis" in limits else None,
        rotational=rotates if isinstance(rotates, bool) else None,
    )


def _disks(line: Line) -> Mapping[str, Sequence[float]]:
    found = line.get("disks")
    if not isinstance(found, dict):
        return {}
    return {name: counters for name in found if (counters := _counters(line, name))}


def _counters(line: Line, name: str) -> Sequence[float]:
    """Return a disk's seven totals; () if the line has no valid ones."""
    found = line.get("disks")
    values = found.get(name) if isinstance(found, dict) else None
    if not isinstance(values, list) or len(values) != _COUNTERS:
        return ()
    numbers = [number({"value": value}, "value") for value in values]
    return () if None in numbers else [value or 0.0 for value in numbers]


def _grown(before: Sequence[float], after: Sequence[float]) -> Sequence[float]:
    start = before or [0.0] * _COUNTERS
    return [max(0.0, now - then) for then, now in zip(start, after, strict=True)]


def _facts(header: Line, name: str) -> Line:
    disks = header.get("disks")
    facts = disks.get(name) if isinstance(disks, dict) else None
    return facts if isinstance(facts, dict) else {}


def _gpu(name: str, seen: Sequence[Line]) -> Gpu:
    return Gpu(
        name=name,
        utilisation=_mean(seen, "utilisation", 1.0),
        memory=_most(seen, "memory"),
        memory_total=_most(seen, "memory_total"),
        power=_mean(seen, "power"),
        power_limit=_mean(seen, "power_limit"),
        held_down=_held_down(seen),
    )


def _mean(seen: Sequence[Line], key: str, most: float = float("inf")) -> float | None:
    values = [value for gpu in seen if (value := number(gpu, key)) is not None]
    return round(min(most, sum(values) / len(values)), 4) if values else None


def _most(seen: Sequence[Line], key: str) -> int | None:
    values = [value for gpu in seen if (value := number(gpu, key)) is not None]
    return int(max(values)) if values else None


def _held_down(seen: Sequence[Line]) -> float | None:
    told: list[list[Any]] = [gpu["throttled"] for gpu in seen if isinstance(gpu.get("throttled"), list)]
    down = [any(isinstance(reason, str) and reason in HOLDING_DOWN for reason in reasons) for reasons in told]
    return round(sum(down) / len(down), 4) if down else None
