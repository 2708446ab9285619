"""What the step clock recorded: how many steps, how fast, and how long they waited for input."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator.profiling.trace import Line, Trace, amount, number

ENOUGH_PROBES = 3
"""Steps that must have been measured before their share of waiting is reported."""

ENOUGH_PULLS = 3


@dataclass(frozen=True)
class Steps:
    """The steps of a training. `began` and `ended` bound it, in Unix seconds, without start-up and first
    step.

    `process` names the process that trains, `processes` counts those that do. `gap`: the median of the
    seconds between two calls of the step. `probes`: steps whose wait was measured; `wait_error`: standard
    error of the share `input_wait`, None if it is not known. `calls`: of the step; one call may take several
    steps.
    """

    count: int | None = None
    per_second: float | None = None
    input_wait: float | None = None
    began: float | None = None
    ended: float | None = None
    process: str | None = None
    processes: int = 0
    gap: float | None = None
    calls: int = 0
    probes: int = 0
    wait_error: float | None = None

    @property
    def seconds(self) -> float | None:
        """Seconds of training."""
        return None if self.began is None or self.ended is None else self.ended - self.began

    @property
    def step(self) -> float | None:
        """Seconds from one step to the next."""
        return 1 / self.per_second if self.per_second else None


def steps_of(trace: Trace) -> Steps:
    """Return the steps of the process that took the most: workers that only feed it are not training."""
    by_process: dict[str, list[Line]] = {}
    for line in trace.clock:
        by_process.setdefault(str(line.get("pid")), []).append(line)
    process = max(by_process, key=lambda pid: _count(by_process[pid]), default=None)
    lines = by_process[process] if process is not None else []
    windows = [line for line in lines if line.get("event") == "steps"]
    moments = [moment for line in lines if (moment := number(line, "t")) is not None]
    period = _median(windows, "period_p50")
    return Steps(
        count=_count(lines) or None,
        per_second=round(1 / period, 3) if period else None,
        input_wait=_input_wait(windows, [line for line in lines if line.get("event") == "pulls"]),
        began=min(moments, default=None) if len(moments) > 1 else None,
        ended=max(moments, default=None) if len(moments) > 1 else None,
        process=process,
        processes=sum(1 for pid in by_process if _count(by_process[pid]) > 1),
        gap=_median(windows, "gap_p50"),
        calls=int(sum(amount(line, "calls") for line in windows)),
        probes=int(sum(amount(line, "probed") for line in windows)),
        wait_error=_wait_error(windows),
    )


def _count(lines: Sequence[Line]) -> int:
    """Return the number of steps by the totals in the lines; older traces have none, and their lines are
    added up.
    """
    steps = [line for line in lines if line.get("event") in ("steps", "first_step")]
    totals: dict[str, float] = {}
    for line in steps:
        source = str(line.get("source"))
        totals[source] = max(totals.get(source, 0.0), amount(line, "total"))
    if steps and all(totals[str(line.get("source"))] for line in steps):
        return int(sum(totals.values()))
    return int(sum(amount(line, "n") for line in steps))


def _median(windows: Sequence[Line], key: str) -> float | None:
    """Return the median of the windows' medians, each weighted by its calls."""
    found = sorted(
        (value, amount(line, "calls")) for line in windows if (value := number(line, key)) is not None
    )
    half = sum(weight for _, weight in found) / 2
    passed = 0.0
    for value, weight in found:
        passed += weight
        if passed >= half and weight:
            return value
    return None


def _input_wait(windows: Sequence[Line], pulls: Sequence[Line]) -> float | None:
    """Return the share by the steps that were probed in `fit`; in custom loops, by the time that pulling
    batches took.
    """
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


def _wait_error(windows: Sequence[Line]) -> float | None:
    """Return the standard error of the ratio of sums, from the differences between single probes."""
    told = [line.get("squares") or () for line in windows if amount(line, "probed")]
    count = sum(amount(line, "probed") for line in windows)
    wall = sum(amount(line, "probed_wall") for line in windows)
    if count < ENOUGH_PROBES or wall <= 0 or not all(_three(squares) for squares in told):
        return None
    waits, both, walls = (sum(squares[place] for squares in told) for place in range(3))
    ratio = sum(amount(line, "wait") for line in windows) / wall
    spread = max(0.0, waits - 2 * ratio * both + ratio * ratio * walls)
    return round(math.sqrt(spread * count / (count - 1)) / wall, 4)


def _three(value: object) -> bool:
    return (
        isinstance(value, list) and len(value) == 3 and all(isinstance(part, int | float) for part in value)
    )


def _share(part: float, whole: float) -> float | None:
    return round(min(1.0, part / whole), 4) if whole > 0 else None
