"""What the step clock saw: how many steps, how fast, and how long they waited for input."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator.profiling.trace import Line, Trace, amount, number

ENOUGH_PROBES = 3
"""Steps that must have been looked at for their share of waiting to be told."""

ENOUGH_PULLS = 3


@dataclass(frozen=True)
class Steps:
    """`began` and `ended` bound the training, in seconds since 1970, start-up and first step left out.

    `process` names the process that trains.
    """

    count: int | None = None
    per_second: float | None = None
    input_wait: float | None = None
    began: float | None = None
    ended: float | None = None
    process: str | None = None


def steps_of(trace: Trace) -> Steps:
    """Of the process that took the most steps: workers that only feed it are not training."""
    by_process: dict[str, list[Line]] = {}
    for line in trace.clock:
        by_process.setdefault(str(line.get("pid")), []).append(line)
    process = max(by_process, key=lambda pid: _count(by_process[pid]), default=None)
    lines = by_process[process] if process is not None else []
    windows = [line for line in lines if line.get("event") == "steps"]
    moments = [moment for line in lines if (moment := number(line, "t")) is not None]
    count = _count(lines)
    return Steps(
        count=count or None,
        per_second=_per_second(windows),
        input_wait=_input_wait(windows, [line for line in lines if line.get("event") == "pulls"]),
        began=min(moments, default=None) if len(moments) > 1 else None,
        ended=max(moments, default=None) if len(moments) > 1 else None,
        process=process,
    )


def _count(lines: Sequence[Line]) -> int:
    """By the totals that the lines hold; older traces have none, and their lines are added up."""
    steps = [line for line in lines if line.get("event") in ("steps", "first_step")]
    totals: dict[str, float] = {}
    for line in steps:
        source = str(line.get("source"))
        totals[source] = max(totals.get(source, 0.0), amount(line, "total"))
    if steps and all(totals[str(line.get("source"))] for line in steps):
        return int(sum(totals.values()))
    return int(sum(amount(line, "n") for line in steps))


def _per_second(windows: Sequence[Line]) -> float | None:
    """From the median time between the starts of steps, over all windows, each weighing as its calls."""
    periods = sorted(
        (period, amount(line, "calls")) for line in windows if (period := number(line, "period_p50"))
    )
    half = sum(weight for _, weight in periods) / 2
    passed = 0.0
    for period, weight in periods:
        passed += weight
        if passed >= half and weight:
            return round(1 / period, 3)
    return None


def _input_wait(windows: Sequence[Line], pulls: Sequence[Line]) -> float | None:
    """By the steps that were probed in `fit`; in custom loops, by what pulling batches took."""
    probed = sum(amount(line, "probed") for line in windows)
    if probed >= ENOUGH_PROBES:
        whole = sum(
            amount(line, "probed_wall") + amount(line, "probed") * amount(line, "gap_p50") for line in windows
        )
        return _share(sum(amount(line, "wait") for line in windows), whole)
    if sum(amount(line, "n") for line in pulls) >= ENOUGH_PULLS:
        return _share(
            sum(amount(line, "wait") for line in pulls), sum(amount(line, "span") for line in pulls)
        )
    return None


def _share(part: float, whole: float) -> float | None:
    return round(min(1.0, part / whole), 4) if whole > 0 else None
