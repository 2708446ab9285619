"""Loss and metrics: curves over the training, and the final values."""

from __future__ import annotations

import math
from collections.abc import Sequence

from orchestrator.report.page import safe
from orchestrator.report.page.model import Align, Block, Chart, Charts, Column, Line, Row, Section, Table
from orchestrator.report.page.words import digits
from orchestrator.runs.curves import Curve
from orchestrator.runs.details import RunDetails

_CHARTS = 8
_ROWS = 60


def section(details: RunDetails) -> Section | None:
    charts = charts_of([("", details.curves)])
    table = _table(details)
    blocks: list[Block] = [*([Charts(charts)] if charts else []), *([table] if table else [])]
    lead = (
        ""
        if charts
        else "The run left no metric over time: neither a file of metrics nor lines with loss and epoch."
    )
    return Section("metrics", "Loss and metrics", tuple(blocks), lead) if blocks else None


def charts_of(runs: Sequence[tuple[str, Sequence[Curve]]]) -> tuple[Chart, ...]:
    """Return one chart for each metric with its validation; with several runs, their curves share the
    charts.
    """
    groups: dict[tuple[str, str], list[tuple[str, Curve]]] = {}
    for name, curves in runs:
        for curve in curves:
            groups.setdefault((_base(curve.name), curve.axis), []).append((name, curve))
    ordered = sorted(groups.items(), key=lambda one: _rank(one[0][0]))
    return tuple(_chart(base, axis, members) for (base, axis), members in ordered[:_CHARTS])


def _base(name: str) -> str:
    """Return the metric that a name belongs to: `val_loss`, `eval/loss` and `train_loss` belong to `loss`."""
    for start in (
        "val_",
        "valid_",
        "validation_",
        "eval_",
        "test_",
        "train_",
        "val/",
        "eval/",
        "train/",
        "test/",
    ):
        if name.lower().startswith(start) and len(name) > len(start):
            return name[len(start) :]
    return name


def _rank(base: str) -> tuple[int, str]:
    for place, word in enumerate(("loss", "acc", "auc", "f1", "mae", "mse", "rmse")):
        if word in base.lower():
            return place, base
    return (99 if "lr" in base.lower() or "rate" in base.lower() else 50), base


def _chart(base: str, axis: str, members: Sequence[tuple[str, Curve]]) -> Chart:
    lines = []
    names = list(dict.fromkeys(name for name, _ in members))
    for number, (name, curve) in enumerate(members[:6]):
        validation = curve.name != base and not curve.name.lower().startswith("train")
        tone = names.index(name) if len(names) > 1 else number
        label = " ".join(part for part in (name, curve.name.replace("_", " ")) if part)
        lines.append(Line(label, tuple(curve.xs), tuple(curve.ys), tone, dashed=validation))
    xs = [x for line in lines for x in line.xs]
    finite = [y for line in lines for y in line.ys if not math.isnan(y)]
    low, high = min(finite, default=0.0), max(finite, default=0.0)
    broken = any(math.isnan(y) for line in lines for y in line.ys)
    return Chart(
        base.replace("_", " "),
        tuple(lines),
        axis=axis if axis != "row" else "record",
        begin=min(xs),
        end=max(xs),
        log="loss" in base.lower() and low > 0 and high / low > 100,
        note="It was no finite number where the line is broken." if broken else "",
    )


def _table(details: RunDetails) -> Table | None:
    numbers = [
        (safe.line(name, 80), safe.number(value))
        for name, value in safe.mapping(details.record.metrics).items()
    ]
    rows = [Row((name, digits(value, 7))) for name, value in numbers if value is not None]
    if not rows:
        return None
    more = f"{len(rows) - _ROWS:,} more are in run.json." if len(rows) > _ROWS else ""
    return Table((Column("metric"), Column("at the end", Align.NUMBER)), tuple(rows[:_ROWS]), "", more)
