"""The output of `orch sweep` and `orch sweep status`: a table of its points, the best one, its cost."""

from __future__ import annotations

import statistics

from orchestrator.model.plain import plain
from orchestrator.model.sweeps import Point, PointState, Sweep
from orchestrator.report.units import duration, money

_LONGEST = 24
_LONGEST_ERROR = 160
_MOST_ROWS = 60
_MOST_ERRORS = 5


def sweep_text(sweep: Sweep, *, active: bool = False) -> str:
    """Return the table of a sweep, its best run and its cost. `active`: a process carries it out now."""
    parts = [
        _heading(sweep, active),
        *_table(sweep),
        *_best(sweep),
        *_errors(sweep),
        *_cost(sweep),
        *sweep.left,
    ]
    return "\n".join(
        [*parts, f"Record: {sweep.path}/sweep.json and sweep.csv. Page: orch report {sweep.sweep}"]
    )


def point_line(sweep: Sweep, point: Point) -> str:
    """Return one line about a point that has ended."""
    metric = sweep.objective.of(sweep.points)
    facts = [
        f"{_params(point)}: {point.reason}",
        f"{metric} {point.metrics[metric]:.5g}" if metric in point.metrics else "",
        duration(point.seconds) if point.seconds is not None else "",
        money(point.usd) if point.usd else "",
    ]
    why = f": {_first_line(point.error.message)}" if point.error else ""
    done = f"{sweep.count(PointState.ENDED)} of {sweep.total}"
    return f"{done}: {', '.join(fact for fact in facts if fact)}{why}"


def _heading(sweep: Sweep, active: bool) -> str:
    counts = [
        f"{sweep.count(PointState.ENDED)} of {sweep.total} runs have ended",
        f"{len(sweep.failed)} failed" if sweep.failed else "",
        f"{running} running" if (running := sweep.count(PointState.RUNNING)) else "",
        f"{queued} queued" if (queued := sweep.count(PointState.QUEUED)) else "",
        f"{stopped} not started" if (stopped := sweep.count(PointState.STOPPED)) else "",
    ]
    going_on = sweep.ended_at is None and not active
    without = (
        "detached, the same command collects" if sweep.detached else "interrupted, the same command continues"
    )
    state = f"; {without}" if going_on else ""
    return f"Sweep {sweep.sweep}: {', '.join(count for count in counts if count)}{state}"


def _table(sweep: Sweep) -> list[str]:
    metric, best = sweep.objective.of(sweep.points), sweep.best
    shown = sweep.points[:_MOST_ROWS]
    rows = [["run", *sweep.matrix, "state", metric or "metric", "time", "cost"]]
    rows += [_row(sweep, point, metric) for point in shown]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
    if best in shown:
        lines[shown.index(best) + 1] += "  best"
    more = len(sweep.points) - len(shown)
    return [*lines, *([f"… and {more} more, in sweep.csv"] if more else [])]


def _row(sweep: Sweep, point: Point, metric: str | None) -> list[str]:
    value = point.metrics.get(metric) if metric else None
    return [
        point.run_id,
        *(_cut(point.params[name]) for name in sweep.matrix),
        _cut(point.reason or point.state),
        "-" if value is None else f"{value:.5g}",
        "-" if point.seconds is None else duration(point.seconds),
        "-" if point.usd is None else money(point.usd),
    ]


def _best(sweep: Sweep) -> list[str]:
    best, metric = sweep.best, sweep.objective.of(sweep.points)
    if best is not None and metric is not None:
        value = f"{best.metrics[metric]:.5g}"
        return [f"Best: {_params(best)}, with the {sweep.objective.goal} {metric}: {value}"]
    if metric is not None or not sweep.recorded:
        return []
    names = ", ".join(map(_cut, sweep.recorded))
    if sweep.objective.metric:
        return [f"No run recorded {_cut(sweep.objective.metric)}; there are: {names}"]
    return [
        f"No metric says which run is best; there are: {names}. Name one: --objective NAME:max or NAME:min"
    ]


def _errors(sweep: Sweep) -> list[str]:
    failed = [
        f"{_params(point)}: {_first_line(point.error.message)}" for point in sweep.failed if point.error
    ]
    more = len(failed) - _MOST_ERRORS
    return [*failed[:_MOST_ERRORS], *([f"… and {more} more errors, in sweep.json"] if more > 0 else [])]


def _cost(sweep: Sweep) -> list[str]:
    if sweep.usd is None:
        return []
    hour = f", and {money(sweep.usd_hour)}/h now" if sweep.usd_hour else ""
    left = _seconds_left(sweep)
    return [
        f"Its machines cost {money(sweep.usd)}{hour}" + (f"; about {duration(left)} left" if left else "")
    ]


def _seconds_left(sweep: Sweep) -> float | None:
    """Estimate the time to the sweep's end by the median time of its runs. None if it is not known."""
    took = [point.seconds for point in sweep.points if point.seconds]
    to_do = sweep.total - sweep.count(PointState.ENDED) - sweep.count(PointState.STOPPED)
    if not took or not to_do:
        return None
    return statistics.median(took) * -(-to_do // sweep.machines)


def _params(point: Point) -> str:
    return " ".join(f"{name}={_cut(value)}" for name, value in point.params.items())


def _first_line(text: str) -> str:
    return _cut(text.splitlines()[0] if text else "", _LONGEST_ERROR)


def _cut(text: str, longest: int = _LONGEST) -> str:
    line = " ".join(plain(text).split())
    return line if len(line) <= longest else f"{line[: longest - 1]}…"
