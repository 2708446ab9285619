"""The page of a sweep: its best run, every point, how each parameter bears on the metric, and curves."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from orchestrator.model.plain import moment
from orchestrator.model.sweeps import Point, PointState, Sweep
from orchestrator.report.page import safe
from orchestrator.report.page.metrics import charts_of
from orchestrator.report.page.model import (
    Align,
    Chart,
    Charts,
    Column,
    Commands,
    Figure,
    Figures,
    Headline,
    Line,
    Page,
    Row,
    Section,
    State,
    Table,
)
from orchestrator.report.page.words import digits
from orchestrator.report.units import duration, money
from orchestrator.runs.curves import Curve

_NAMED = 8
_ROWS = 200
_LINES = 6
_DECADE = 10.0


def page_of_sweep(
    sweep: Sweep, curves: Sequence[tuple[str, Sequence[Curve]]], *, version: str, now: float
) -> Page:
    """Return the page. `curves`: of the best runs, by their parameters. `version`: of orch; `now`: Unix
    seconds.
    """
    found = (_points(sweep), _bearings(sweep), _curves(curves), _repeat(sweep))
    return Page(
        safe.line(sweep.sweep, 120),
        _subtitle(sweep),
        _headline(sweep),
        Figures(tuple(_figures(sweep))),
        tuple(section for section in found if section is not None),
        f"Made by orch {version} on {moment(now)} from sweep.json and the files of its runs.",
        tuple(safe.line(point.run_id, 120) for point in sweep.points),
    )


def params_of(point: Point) -> str:
    """Return the parameters of a point on one line."""
    return " ".join(f"{safe.line(name, 40)}={safe.line(value, 40)}" for name, value in point.params.items())


def _subtitle(sweep: Sweep) -> str:
    begun = moment(sweep.began_at) if sweep.began_at and 0 < sweep.began_at < 1e11 else ""
    chosen = f"{sweep.search} runs chosen by Optuna" if sweep.search else f"{sweep.total} combinations"
    return " — ".join(part for part in (begun, f"{chosen} of {', '.join(sweep.matrix)}") if part)


def _headline(sweep: Sweep) -> Headline:
    best, metric = sweep.best, sweep.objective.of(sweep.points)
    if best is None or metric is None:
        state = State.BAD if sweep.failed else State.NOTE
        return Headline(state, "No best run", _without_best(sweep))
    value = digits(best.metrics[metric], 5)
    missing = sweep.total - sum(point.succeeded for point in sweep.points)
    rest = f" {missing} of {sweep.total} runs did not succeed." if missing else ""
    text = f"{params_of(best)} has the {sweep.objective.goal} {safe.line(metric, 60)}: {value}.{rest}"
    return Headline(State.NOTE if missing else State.OK, "Swept" if not missing else "Swept in part", text)


def _without_best(sweep: Sweep) -> str:
    if not sweep.recorded or sweep.objective.metric:
        wanted = (
            f"the metric {safe.line(sweep.objective.metric, 60)}" if sweep.objective.metric else "a metric"
        )
        return f"None of {sweep.total} runs has succeeded with {wanted}."
    names = ", ".join(safe.line(name, 40) for name in sweep.recorded[:_NAMED])
    return f"No metric says which run is best. Name one of {names} with --objective, as NAME:max or NAME:min."


def _figures(sweep: Sweep) -> Iterator[Figure]:
    ended = sweep.count(PointState.ENDED)
    failed = f"{len(sweep.failed)} failed" if sweep.failed else ""
    yield Figure("runs", f"{ended} of {sweep.total}", failed, State.BAD if sweep.failed else State.NONE)
    best, metric = sweep.best, sweep.objective.of(sweep.points)
    if best is not None and metric is not None:
        yield Figure(f"best {safe.line(metric, 40)}", digits(best.metrics[metric], 5), params_of(best))
    took = [point.seconds for point in sweep.points if point.seconds]
    if took:
        yield Figure("time of a run", duration(sorted(took)[len(took) // 2]), "median")
    if sweep.usd is not None:
        yield Figure("machines", money(sweep.usd), f"at most {sweep.machines} at a time")


def _points(sweep: Sweep) -> Section:
    metric, best = sweep.objective.of(sweep.points), sweep.best
    columns = (
        *(Column(safe.line(name, 40)) for name in sweep.matrix),
        Column(safe.line(metric, 60) or "metric", Align.NUMBER),
        Column("end"),
        Column("time", Align.NUMBER),
        Column("cost", Align.NUMBER),
        Column("run", Align.CODE),
    )
    ordered = sorted(sweep.points, key=lambda point: _rank(sweep, point, metric))
    rows = tuple(_row(sweep, point, metric, point is best) for point in ordered[:_ROWS])
    more = f"{len(ordered) - _ROWS:,} more are in sweep.csv." if len(ordered) > _ROWS else ""
    return Section("points", "Every run, the best first", (Table(columns, rows, "", more, states=True),))


def _rank(sweep: Sweep, point: Point, metric: str | None) -> tuple[bool, float]:
    value = _value(point, metric)
    if value is None:
        return True, 0.0
    return False, -value if sweep.objective.largest else value


def _row(sweep: Sweep, point: Point, metric: str | None, best: bool) -> Row:
    value = _value(point, metric)
    state = State.OK if best else State.BAD if point in sweep.failed else State.NONE
    return Row(
        (
            *(safe.line(point.params.get(name), 60) for name in sweep.matrix),
            "" if value is None else digits(value, 6),
            safe.line(point.reason or point.state, 40).replace("_", " "),
            "" if point.seconds is None else duration(point.seconds),
            "" if point.usd is None else money(point.usd),
            safe.line(point.run_id, 120),
        ),
        state,
    )


def _value(point: Point, metric: str | None) -> float | None:
    return safe.number(point.metrics.get(metric)) if metric and point.succeeded else None


def _bearings(sweep: Sweep) -> Section | None:
    """How the metric follows each parameter that is a number; one line for each value of the others."""
    metric = sweep.objective.of(sweep.points)
    charts = [chart for name in sweep.matrix if (chart := _bearing(sweep, name, metric)) is not None]
    if not charts:
        return None
    lead = "One point for each run that succeeded; a line joins runs that are equal in the other parameters."
    return Section("parameters", "What each parameter does", (Charts(tuple(charts)),), lead)


def _bearing(sweep: Sweep, name: str, metric: str | None) -> Chart | None:
    groups: dict[str, list[tuple[float, float]]] = {}
    for point in sweep.points:
        x, y = _as_number(point.params.get(name, "")), _value(point, metric)
        if x is not None and y is not None:
            others = " ".join(f"{key}={value}" for key, value in point.params.items() if key != name)
            groups.setdefault(safe.line(others, 60), []).append((x, y))
    xs = sorted({x for pairs in groups.values() for x, _ in pairs})
    if len(xs) < 2 or metric is None:
        return None
    if len(groups) > _LINES:  # too many lines: the best of each value
        pick = max if sweep.objective.largest else min
        every = [pair for pairs in groups.values() for pair in pairs]
        groups = {"": [(x, pick(y for at, y in every if at == x)) for x in xs]}
    powers = xs[0] > 0 and xs[-1] / xs[0] > _DECADE
    lines = tuple(_line(others, pairs, tone, powers) for tone, (others, pairs) in enumerate(groups.items()))
    axis = f"{name}, as a power of ten" if powers else name
    begin, end = (math.log10(xs[0]), math.log10(xs[-1])) if powers else (xs[0], xs[-1])
    note = "Of each value, the best run." if len(groups) == 1 and len(sweep.matrix) > 1 else ""
    title = f"{safe.line(metric, 40)} by {safe.line(name, 40)}"
    return Chart(title, lines, axis=safe.line(axis, 60), begin=begin, end=end, note=note)


def _line(others: str, pairs: Sequence[tuple[float, float]], tone: int, powers: bool) -> Line:
    ordered = sorted(pairs)
    xs = tuple(math.log10(x) if powers else x for x, _ in ordered)
    return Line(others, xs, tuple(y for _, y in ordered), tone)


def _as_number(text: str) -> float | None:
    try:
        return safe.number(float(text))
    except ValueError:
        return None


def _curves(curves: Sequence[tuple[str, Sequence[Curve]]]) -> Section | None:
    charts = charts_of(curves)
    if not charts:
        return None
    lead = "The best runs by the metric above, over their training."
    return Section("metrics", "Loss and metrics of the best runs", (Charts(charts),), lead)


def _repeat(sweep: Sweep) -> Section | None:
    best = sweep.best
    if best is None:
        return None
    lines = (f"orch report {best.run_id}", f"orch rerun {best.run_id}")
    return Section("repeat", "The best run", (Commands("Its page, and once more from its record", lines),))
