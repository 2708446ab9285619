"""A sweep: one profile trained once for each combination of parameter values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import Annotated, Any

from .answers import Most
from .outcomes import ExitReason

SWEEP_SCHEMA = "orch.sweep/1"

LOSSES = ("val_loss", "loss")
"""The metrics that are minimised if none is named; the first that was recorded."""

_Word = Annotated[str, Most(10_000)]


class PointState(StrEnum):
    """`queued`: it waits on its machine for the runs before it. `stopped`: it was not started, because the
    budget is used up or no machine was left.
    """

    WAITING = "waiting"
    QUEUED = "queued"
    RUNNING = "running"
    ENDED = "ended"
    STOPPED = "stopped"


@dataclass(frozen=True)
class PointError:
    """The error of a point, as `--json` prints errors."""

    kind: _Word
    message: _Word
    exit_code: int
    next_command: _Word | None = None


@dataclass(frozen=True)
class Point:
    """One combination of parameter values, and its run. What is not known is None.

    `reason`: how the run ended. `seconds` and `usd` (US dollars) of all its attempts. `lease`: where it ran.
    """

    run_id: _Word
    params: Annotated[dict[str, str], Most(100)]
    state: PointState = PointState.WAITING
    reason: _Word | None = None
    metrics: Annotated[dict[str, float], Most(1000)] = field(default_factory=dict)
    seconds: float | None = None
    usd: float | None = None
    attempts: int = 0
    lease: _Word | None = None
    error: PointError | None = None

    @property
    def succeeded(self) -> bool:
        return self.state is PointState.ENDED and self.reason == ExitReason.COMPLETED


@dataclass(frozen=True)
class Objective:
    """The metric by which points are compared. None: the loss, of validation data if it was recorded."""

    metric: _Word | None = None
    largest: bool = False

    @property
    def goal(self) -> str:
        return "highest" if self.largest else "lowest"

    def of(self, points: Sequence[Point]) -> str | None:
        """Return the name of the metric among those that `points` recorded."""
        names = (self.metric,) if self.metric else LOSSES
        return next((name for name in names if any(name in each.metrics for each in points)), None)

    def best(self, points: Sequence[Point]) -> Point | None:
        """Return the succeeded point with the best finite value; the first of equal ones."""
        metric = self.of(points)
        values = [
            (each.metrics[metric], each)
            for each in points
            if metric is not None and each.succeeded and math.isfinite(each.metrics.get(metric, math.nan))
        ]
        if not values:
            return None
        return (max if self.largest else min)(values, key=lambda pair: pair[0])[1]


@dataclass(frozen=True)
class Sweep:
    """A sweep, as its sweep.json holds it. Times are Unix seconds, `usd` is US dollars.

    `usd`: the cost of its machines so far, None if it is not known; `usd_hour`: what they cost now. `left`:
    a sentence on each machine that still runs, and why. `machines`: how many may run at a time. `profile`:
    the file's path. `search`: how many points are chosen one after the other, None for
    all combinations; `drawn`: all are known. `detached`: its runs were queued on the machines.
    """

    sweep: _Word
    name: _Word
    profile: _Word
    path: _Word
    machines: int
    matrix: Annotated[dict[str, list[str]], Most(100)]
    points: Annotated[tuple[Point, ...], Most(100_000)]
    objective: Objective = Objective()
    search: int | None = None
    drawn: bool = True
    began_at: float | None = None
    ended_at: float | None = None
    usd: float | None = None
    usd_hour: float | None = None
    left: Annotated[tuple[str, ...], Most(1000)] = ()
    leases: Annotated[tuple[str, ...], Most(10_000)] = ()
    detached: bool = False

    @property
    def best(self) -> Point | None:
        return self.objective.best(self.points)

    @property
    def recorded(self) -> tuple[str, ...]:
        """The names of the metrics that its points recorded."""
        return tuple(dict.fromkeys(name for point in self.points for name in point.metrics))

    @property
    def failed(self) -> tuple[Point, ...]:
        """The points that ended without success."""
        return tuple(each for each in self.points if each.state is PointState.ENDED and not each.succeeded)

    @property
    def succeeded(self) -> bool:
        return self.drawn and all(each.succeeded for each in self.points)

    @property
    def total(self) -> int:
        """How many points there are to be; a search that chooses one twice has fewer in the end."""
        return len(self.points) if self.drawn else self.search or 0

    def count(self, state: PointState) -> int:
        return sum(each.state is state for each in self.points)

    @property
    def going_on(self) -> tuple[Point, ...]:
        """The points that are on a machine and have not ended, as far as was seen."""
        return tuple(each for each in self.points if each.state in (PointState.QUEUED, PointState.RUNNING))

    def with_point(self, point: Point) -> Sweep:
        """Return the sweep with `point` in the place of the one with its run id, or as its last one."""
        others = tuple(point if each.run_id == point.run_id else each for each in self.points)
        return replace(self, points=others if point in others else (*others, point))

    def as_json(self) -> dict[str, Any]:
        best = self.best
        return {
            "schema": SWEEP_SCHEMA,
            **asdict(self),
            "metric": self.objective.of(self.points),
            "best": best.run_id if best else None,
        }
