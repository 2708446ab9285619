"""The time of a training that was no step: validation, callbacks, first batches, the script between steps."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator.profiling.trace import Line, Trace, amount, number


@dataclass(frozen=True)
class Pauses:
    """Shares of the time from the first step to the last; None: not known.

    `opening`: what the first batches of epochs took beyond others, as when a shuffle buffer fills. `script`:
    time between two steps, without callbacks and pulling; for `fit` that is Keras' own loop. `thread`: share
    of the time in which the training thread had a core or waited for one. `source` of the steps: fit, batch
    (train_on_batch), function or eager. `passes`: epochs that were begun.
    """

    validation: float | None = None
    callbacks: float | None = None
    opening: float | None = None
    script: float | None = None
    thread: float | None = None
    source: str | None = None
    passes: int = 0


def pauses_of(trace: Trace, process: str | None, began: float | None, ended: float | None) -> Pauses:
    """Return the pauses of the process that trains; none if it trained for no time, or its step clock is
    an older one.
    """
    if began is None or ended is None or ended <= began:
        return Pauses()
    told = [line for line in trace.pauses if str(line.get("pid")) == process]
    windows = [line for line in trace.clock if str(line.get("pid")) == process]
    steps = [line for line in windows if line.get("event") == "steps"]
    pulls = [line for line in windows if line.get("event") == "pulls"]
    if not told or not steps:
        return Pauses()
    span = ended - began
    source = str(max(steps, key=lambda line: amount(line, "n")).get("source"))
    callbacks, waiting = _sum(told, "callbacks"), _sum(pulls, "wait")
    between = sum(amount(line, "calls") * amount(line, "gap_p50") for line in steps)
    return Pauses(
        validation=_share(_sum(told, "validation"), span),
        callbacks=_share(callbacks, span),
        opening=_share(_opening(steps, "wall", "calls") + _opening_pulls(told, pulls), span),
        script=None if source == "eager" else _share(between - callbacks - waiting, span),
        thread=_thread(told),
        source=source,
        passes=int(_sum(steps, "opened") + _sum(told, "opened")),
    )


def _opening(lines: Sequence[Line], whole: str, count: str) -> float:
    """Return the seconds of calls that opened an iterator, beyond what as many others took; 0 if all of
    them did.
    """
    opened, opening = _sum(lines, "opened"), _sum(lines, "opening")
    others = _sum(lines, count) - opened
    return opening - opened * (_sum(lines, whole) - opening) / others if opened and others > 0 else 0.0


def _opening_pulls(told: Sequence[Line], pulls: Sequence[Line]) -> float:
    opened, opening = _sum(told, "opened"), _sum(told, "opening")
    others = _sum(pulls, "n") - opened
    return opening - opened * (_sum(pulls, "wait") - opening) / others if opened and others > 0 else 0.0


def _thread(told: Sequence[Line]) -> float | None:
    """Return the median of the measurements, so that one during which the whole computer was stopped does
    not count.
    """
    known = [line for line in told if number(line, "span")]
    shares = [_share(amount(line, "ran") + amount(line, "queued"), amount(line, "span")) for line in known]
    return statistics.median(shares) if shares else None


def _sum(lines: Sequence[Line], key: str) -> float:
    return sum(amount(line, key) for line in lines)


def _share(part: float, whole: float) -> float:
    return round(min(1.0, max(0.0, part / whole)), 4)
