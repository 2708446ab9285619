"""The page of a sweep, and what `orch sweep status` prints: from the same facts."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.model.sweeps import Objective, Point, PointError, PointState, Sweep
from orchestrator.report.page import html_of, markdown_of, page_of_sweep
from orchestrator.report.page.model import Charts, State, Table
from orchestrator.report.sweep import point_line, sweep_text
from orchestrator.runs.curves import Curve
from orchestrator.session.project import Project
from orchestrator.sweep import book
from tests.unit.report.page.runs import HOSTILE
from tests.unit.report.page.test_browser import CHROMIUM, seen
from tests.unit.report.page.test_hostile import harmless


def point(lr: str, seed: str, loss: float | None, *, reason: str = "completed") -> Point:
    error = PointError("RunFailed", "it ended: status 1.\nmore", 6) if reason != "completed" else None
    metrics = {"loss": loss} if loss is not None else {}
    params = {"lr": lr, "seed": seed}
    return Point(f"toy-{lr}-{seed}", params, PointState.ENDED, reason, metrics, 90.0, 0.5, 1, "l1", error)


POINTS = (
    point("1e-1", "1", 3.0),
    point("1e-2", "1", 2.0),
    point("1e-3", "1", 1.0),
    point("1e-1", "2", 3.5),
    point("1e-2", "2", None, reason="failed"),
    Point("toy-open", {"lr": "1e-3", "seed": "2"}),
)
SWEEP = Sweep(
    "toy-1", "toy", "/p/orch.yaml", "/p/runs/toy-1", 2,
    {"lr": ["1e-1", "1e-2", "1e-3"], "seed": ["1", "2"]}, POINTS, began_at=1.79e9, usd=3.25, usd_hour=1.0,
)  # fmt: skip


def test_the_page_names_the_best_and_shows_every_point_and_what_parameters_do() -> None:
    page = page_of_sweep(
        SWEEP, [("best", [Curve("loss", "epoch", (1.0, 2.0), (2.0, 1.0))])], version="1", now=0.0
    )
    assert page.headline.sentence == "lr=1e-3 seed=1 has the lowest loss: 1. 2 of 6 runs did not succeed."
    assert page.headline.state is State.NOTE
    sections = {section.key: section for section in page.sections}
    (table,) = sections["points"].blocks
    assert isinstance(table, Table)
    assert [row.cells[0] for row in table.rows] == ["1e-3", "1e-2", "1e-1", "1e-1", "1e-2", "1e-3"]
    assert [row.state for row in table.rows[:1]] == [State.OK] and table.rows[4].state is State.BAD
    (charts,) = sections["parameters"].blocks
    assert isinstance(charts, Charts)
    by_lr = charts.items[0]
    assert (by_lr.title, by_lr.axis, by_lr.begin, by_lr.end) == (
        "loss by lr",
        "lr, as a power of ten",
        -3,
        -1,
    )
    assert [(line.name, line.ys) for line in by_lr.lines] == [
        ("seed=1", (1.0, 2.0, 3.0)),
        ("seed=2", (3.5,)),
    ]
    assert "orch rerun toy-1e-3-1" in html_of(page) and "best" in markdown_of(page)


def test_the_highest_is_the_best_where_the_objective_says_so() -> None:
    highest = replace(SWEEP, objective=Objective("loss", largest=True))
    page = page_of_sweep(highest, [], version="1", now=0.0)
    assert page.headline.sentence.startswith("lr=1e-1 seed=2 has the highest loss: 3.5.")


def test_metrics_of_which_none_is_a_loss_are_named_with_the_option_that_chooses() -> None:
    of = {"auc": 0.9, "lr": 0.1, "seconds": 3.0}
    named = replace(SWEEP, points=(replace(POINTS[0], metrics=of),))
    page = page_of_sweep(named, [], version="1", now=0.0)
    assert "Name one of auc, lr, seconds with --objective" in page.headline.sentence
    assert "there are: auc, lr, seconds. Name one: --objective" in sweep_text(named)
    absent = replace(named, objective=Objective("f1"))
    assert "No run recorded f1; there are: auc, lr, seconds" in sweep_text(absent)
    assert "with the metric f1" in page_of_sweep(absent, [], version="1", now=0.0).headline.sentence


def test_a_metric_with_the_name_of_a_column_has_its_own(tmp_path: Path) -> None:
    of = {"auc": 0.9, "lr": 0.25, "seconds": 3.0}
    book.write(Project.at(tmp_path), replace(SWEEP, points=(replace(POINTS[0], metrics=of),)))
    (row,) = csv.DictReader((tmp_path / "runs/toy-1/sweep.csv").open())
    assert (row["lr"], row["metric.lr"], row["auc"]) == ("1e-1", "0.25", "0.9")
    assert (row["seconds"], row["metric.seconds"]) == ("90.0", "3.0")


def test_the_table_in_a_terminal_says_what_is_left_and_what_failed() -> None:
    text = sweep_text(SWEEP, active=True)
    assert text.startswith("Sweep toy-1: 5 of 6 runs have ended, 1 failed\n")
    best = next(line for line in text.splitlines() if line.startswith("toy-1e-3-1"))
    assert best.split() == ["toy-1e-3-1", "1e-3", "1", "completed", "1", "90", "s", "$0.50", "best"]
    assert "Best: lr=1e-3 seed=1, with the lowest loss: 1\nlr=1e-2 seed=2: it ended: status 1.\n" in text
    assert "Its machines cost $3.25, and $1.00/h now; about 90 s left" in text
    assert "interrupted, the same command continues" in sweep_text(SWEEP)
    assert max(map(len, text.splitlines())) <= 100
    assert point_line(SWEEP, POINTS[4]) == (
        "5 of 6: lr=1e-2 seed=2: failed, 90 s, $0.50: it ended: status 1."
    )


def _hostile() -> Sweep:
    evil = Point(
        HOSTILE, {"lr": HOSTILE, "seed": "1"}, PointState.ENDED, HOSTILE, {"loss": 1.0}, lease=HOSTILE
    )
    return replace(SWEEP, sweep=HOSTILE, name=HOSTILE, points=(evil, *POINTS), left=(HOSTILE,))


def test_hostile_texts_make_no_element_and_no_escape() -> None:
    page = page_of_sweep(
        _hostile(), [(HOSTILE, [Curve(HOSTILE, "epoch", (1.0,), (2.0,))])], version="1", now=0.0
    )
    harmless(html_of(page))
    assert "\x1b" not in markdown_of(page)


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not here: apt-get install chromium")
@pytest.mark.parametrize("sweep", [SWEEP, _hostile()], ids=["plain", "hostile"])
def test_it_renders_without_a_word_in_the_console(tmp_path: Path, sweep: Sweep) -> None:
    page = tmp_path / "report.html"
    page.write_text(html_of(page_of_sweep(sweep, [], version="1", now=0.0)))
    done = seen(page, tmp_path / "home", "--dump-dom")
    assert "loss by lr" in done.stdout
    assert [line for line in done.stderr.splitlines() if "CONSOLE" in line] == []
