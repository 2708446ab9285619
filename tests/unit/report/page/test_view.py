"""What a page says, as data."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from orchestrator.model.outcomes import Stage
from orchestrator.parity.rungs import Rung
from orchestrator.report.page import markdown_of, page_of, page_of_two
from orchestrator.report.page.model import (
    Charts,
    Commands,
    Mark,
    Note,
    Notes,
    Output,
    Page,
    Parts,
    Rungs,
    Section,
    Stacked,
    State,
    Table,
)
from orchestrator.report.page.two import Comparison
from orchestrator.runs.details import RunDetails
from tests.unit.report.page.runs import DIFFERENCE, details, read_back, record

DIVERGENT = {
    "verdict": "DIVERGENT",
    "steps": 2,
    "compared": 60,
    "step": 2,
    "stage": "gradient",
    "tensor": "dense/kernel",
    "relative": 0.02,
    "summary": "The runs first differ in step 2, in the gradients.",
    "cause": "Confirmed: OMP_NUM_THREADS is 2 here and 4 there.",
    "confirmed": True,
    "fix": "Set it on both sides.",
    "candidates": [
        {
            "words": "threads",
            "outcome": "confirmed",
            "why": "with it equal",
            "kind": "probe",
            "topic": "",
            "seconds": 1,
        },
        {"words": "locale", "outcome": "cleared", "why": "tried", "kind": "probe", "topic": "", "seconds": 1},
    ],
}


def made(found: RunDetails) -> Page:
    return page_of(found, version="0.2.0", now=1_790_000_100.0)


def section(page: Page, key: str) -> Section:
    return next(each for each in page.sections if each.key == key)


def block(of: Section, kind: type) -> Any:
    return next(each for each in of.blocks if isinstance(each, kind))


def notes(of: Section) -> dict[str, Note]:
    return {note.label: note for each in of.blocks if isinstance(each, Notes) for note in each.items}


def test_a_proven_run_says_so_in_one_sentence() -> None:
    page = made(details())
    assert (page.headline.state, page.headline.label) == (State.OK, "Trained, and proven the same")
    assert page.headline.sentence == (
        "It trained to the end in 12 s on g5.xlarge of aws; its first 3 steps are equal on both sides to the "
        "last bit; and the model does here what it did there."
    )
    assert [(each.label, each.value) for each in page.figures.items] == [
        ("accuracy", "0.9889"),
        ("loss", "0.0397"),
        ("time", "12 s"),
        ("steps", "540"),
        ("cost", "$1.87"),
        ("limited by", "cpu"),
    ]
    assert not any(each.damaged for each in page.sections)


@pytest.mark.parametrize(
    ("changed", "state", "words"),
    [
        ({"parity": None}, State.OK, "It trained to the end"),
        ({"parity": DIVERGENT}, State.NOTE, "not those of this computer"),
        (
            {"model_check": {"files": [{"path": "m", "loaded": True, "equal": False}]}},
            State.BAD,
            "does not do here",
        ),
        (
            {"exit": {"reason": "preempted", "code": None, "signal": None}},
            State.BAD,
            "The machine was taken back",
        ),
        ({"exit": {"reason": "cancelled", "code": None, "signal": None}}, State.NOTE, "Cancelled"),
        ({"exit": {"reason": "running", "code": None, "signal": None}}, State.BUSY, "still running"),
        (
            {"exit": {"reason": "not_started", "code": None, "signal": None}, "parity": DIVERGENT},
            State.BAD,
            "No step was trained: the two sides differ from step 2 on, first in ",
        ),
        (
            {"exit": {"reason": "of a later version", "code": None, "signal": None}},
            State.BAD,
            "of a later version",
        ),
        (
            {"unwritten": [{"pattern": "out", "looked_for": "/w/out", "nearest": None, "no_other": True}]},
            State.NOTE,
            "never written",
        ),
        (
            {
                "exit": {
                    "reason": "completed",
                    "code": 0,
                    "signal": None,
                    "noticed": [{"what": "not_finite", "detail": "Its loss is no finite number (nan)."}],
                }
            },
            State.NOTE,
            "its loss became NaN or infinite",
        ),
    ],
)
def test_what_went_wrong_comes_first(changed: dict[str, Any], state: State, words: str) -> None:
    page = made(details(**changed))
    assert page.headline.state == state
    assert words in page.headline.sentence
    assert not any(each.damaged for each in page.sections)


def test_a_model_that_was_not_checked_is_not_called_proven() -> None:
    left = {"files": [{"path": "m", "loaded": False, "equal": None, "not_checked": "would-run-code"}]}
    page = made(details(model_check=left))
    assert page.headline.label == "Trained, with the same first steps"
    assert page.headline.sentence.endswith("to the last bit; and the model file was not checked.")


def test_files_of_values_are_not_called_a_model() -> None:
    arrays = [{"path": f"{n}.npy", "loaded": True, "equal": True, "predicted": False} for n in range(2)]
    for files, said in ((arrays[:1], "its results hold"), (arrays, "all 2 files of results hold")):
        page = made(details(model_check={"files": files}))
        assert page.headline.sentence.endswith(f"to the last bit; and {said} the same values here.")


def test_a_failed_run_ends_its_sentence_with_its_error_and_shows_its_output_first(tmp_path: Any) -> None:
    ended = {"code": 1, "signal": None, "reason": "failed", "detail": "The command ended with status 1."}
    page = made(read_back(tmp_path, record(exit=ended), log="Traceback\nValueError: no such column\n"))
    assert page.headline.sentence.endswith("status 1, after 12 s and 540 steps: ValueError: no such column")
    assert page.sections[0].key == "output"
    assert block(page.sections[0], Output).open


def test_the_ladder_has_the_first_difference_on_it() -> None:
    rungs = [
        Rung(
            step,
            stage,
            4,
            differing=2 if (step, stage) >= (2, Stage.GRADIENT) else 0,
            relative=0.02,
            tensor="dense/kernel",
        )
        for step in (1, 2)
        for stage in (Stage.BATCH, Stage.LOSS, Stage.GRADIENT)
    ]
    page = made(RunDetails(record(parity=DIVERGENT), rungs=tuple(rungs)))
    grid = block(section(page, "parity"), Rungs)
    assert grid.steps == ("step 1", "step 2")
    assert grid.stages == ("batch", "loss", "gradients")
    firsts = [
        (row, column)
        for row, cells in enumerate(grid.rows)
        for column, cell in enumerate(cells)
        if cell.first
    ]
    assert firsts == [(2, 1)]
    assert grid.rows[2][1].mark == Mark.DIFFERS
    assert grid.rows[2][1].text == "2 of 4 · 2.0e-02"
    assert grid.first == "First difference: step 2, gradients"


def test_the_ladder_of_a_record_alone_ends_at_the_first_difference() -> None:
    grid = block(section(made(details(parity=DIVERGENT)), "parity"), Rungs)
    marks = {
        (stage, step): cell.mark
        for stage, row in zip(grid.stages, grid.rows, strict=True)
        for step, cell in zip(grid.steps, row, strict=True)
    }
    assert marks["gradients", "step 1"] == Mark.EQUAL
    assert marks["loss", "step 2"] == Mark.EQUAL
    assert marks["gradients", "step 2"] == Mark.DIFFERS
    assert marks["updated weights", "step 2"] == Mark.UNKNOWN


def test_a_long_ladder_shows_the_steps_around_the_first_difference() -> None:
    rungs = tuple(Rung(step, Stage.LOSS, 1, differing=int(step >= 80)) for step in range(1, 101))
    page = made(RunDetails(record(parity={**DIVERGENT, "step": 80, "stage": "loss"}), rungs=rungs))
    grid = block(section(page, "parity"), Rungs)
    assert "step 1" in grid.steps and "step 80" in grid.steps
    assert len(grid.steps) <= 12
    assert grid.caption == f"Shown: {len(grid.steps)} of 100 steps."


def test_the_cause_is_told_as_the_verdict_tells_it() -> None:
    cause = notes(section(made(details(parity=DIVERGENT)), "parity"))["Cause"].text
    assert cause == "Confirmed: OMP_NUM_THREADS is 2 here and 4 there."


def test_an_undeclared_difference_is_marked_and_comes_first() -> None:
    differences = [*record().stack["differences"], DIFFERENCE]  # type: ignore[index]
    found = section(made(details(stack={**record().stack, "differences": differences})), "stack")  # type: ignore[dict-item]
    table = block(found, Table)
    assert [(row.cells[1], row.state) for row in table.rows] == [("numpy", State.BAD), ("LANG", State.NONE)]
    assert found.state == State.BAD


def test_files_have_their_hash_and_what_the_model_check_found() -> None:
    table = block(section(made(details()), "results"), Table)
    assert table.rows[0].cells == ("outputs/out/model.keras", "1.2 MiB", "9" * 64, "same here")


def test_time_adds_up_and_is_drawn_over_time(tmp_path: Any) -> None:
    found = section(made(read_back(tmp_path, record())), "time")
    parts = block(found, Parts)
    assert [part.key for part in parts.items] == ["input", "compute", "host", "idle"]
    assert sum(part.share for part in parts.items) == pytest.approx(1.0)
    stacked = block(found, Stacked)
    assert all(
        sum(layer.shares[n] for layer in stacked.layers) == pytest.approx(1, abs=1e-3)
        for n in range(len(stacked.edges) - 1)
    )
    assert [chart.title for chart in block(found, Charts).items] == [
        "CPU",
        "Memory",
        "Disk",
        "Network of the machine",
    ]


def test_start_up_comes_before_what_limited_the_steps() -> None:
    seen = {**details().record.profile, "startup_s": 9.96, "mostly_startup": True, "limited_by": "input"}
    page = made(details(profile=seen))
    figure = next(each for each in page.figures.items if each.label == "limited by")
    assert (figure.value, figure.note) == ("start-up", "83% of the run")
    assert section(page, "time").lead == (
        "Limited by start-up. 83% of the run was imports and set-up, before its first step. The steps were "
        "limited by input. The cores were busy."
    )


def test_curves_of_the_output_are_charts_by_epoch(tmp_path: Any) -> None:
    charts = block(section(made(read_back(tmp_path, record())), "metrics"), Charts).items
    loss = next(chart for chart in charts if chart.title == "loss")
    assert [(line.name, line.ys, line.dashed) for line in loss.lines] == [
        ("loss", (1.609, 0.3, 0.1), False),
        ("val loss", (1.2, 0.4, 0.2), True),
    ]
    assert loss.axis == "epoch"


def test_a_run_of_several_attempts_lists_them() -> None:
    first = {"number": 1, "reason": "preempted", "started_at": 1.0, "ended_at": 61.0, "usd": 0.1, "steps": 50}
    second = {
        **first,
        "number": 2,
        "reason": "completed",
        "resumed_from": {"attempt": 1, "seq": 3, "taken_at": 5.0},
    }
    table = block(section(made(details(attempts=[first, second])), "attempts"), Table)
    assert [row.cells[:2] for row in table.rows] == [("1", "preempted"), ("2", "completed")]
    assert table.rows[1].cells[5] == "checkpoint of attempt 1"


def test_it_says_how_to_repeat_the_run() -> None:
    found = section(made(details()), "repeat")
    commands = [line for each in found.blocks if isinstance(each, Commands) for line in each.lines]
    assert commands == ["orch rerun digits-1"]
    older = section(made(details(code=None)), "repeat")
    assert [line for each in older.blocks if isinstance(each, Commands) for line in each.lines] == [
        "orch up PROFILE.yaml",
        "orch train --local-parity",
        "orch down",
        "orch compare digits-1 NEW_RUN",
    ]
    assert {row.cells[0] for row in block(found, Table).rows} >= {
        "command",
        "code",
        "data",
        "packages",
        "lock",
    }


def test_a_hostile_id_is_one_word_of_the_command() -> None:
    found = section(made(details(run_id="x; rm -rf ~")), "repeat")
    commands = [line for each in found.blocks if isinstance(each, Commands) for line in each.lines]
    assert commands == ["orch rerun 'x; rm -rf ~'"]


def test_the_least_record_has_a_page() -> None:
    page = made(
        RunDetails(
            record(
                **dict.fromkeys(
                    (
                        "command",
                        "code",
                        "parity",
                        "stack",
                        "data",
                        "profile",
                        "model_check",
                        "machine",
                        "cost",
                    )
                ),
                metrics={},
                artifacts=(),
                timings={},
                attempts=(),
            )
        )
    )
    assert page.headline.sentence == "It trained to the end on this computer."
    assert [each.key for each in page.sections] == ["cost", "repeat"]


def test_two_runs_lie_beside_each_other(tmp_path: Any) -> None:
    a = read_back(tmp_path / "a", record())
    b = read_back(tmp_path / "b", record(run_id="digits-2", metrics={"accuracy": 0.5}))
    verdict = {
        "verdict": "DIVERGENT",
        "cause": "Suspected: the data differ.",
        "step": 1,
        "stage": "batch",
        "compared": 3,
        "steps": 1,
    }
    page = page_of_two(a, b, Comparison(verdict), version="0.2.0", now=0.0)
    assert page.headline.sentence == "digits-1 and digits-2 are not the same: suspected: the data differ."
    table = block(section(page, "facts"), Table)
    assert {row.cells[0]: row.state for row in table.rows}["metric accuracy"] == State.NOTE
    charts = block(section(page, "metrics"), Charts).items
    assert [line.name for line in charts[0].lines] == [
        "digits-1 loss",
        "digits-1 val loss",
        "digits-2 loss",
        "digits-2 val loss",
    ]


def test_a_model_that_was_not_checked_is_not_said_to_be_the_same() -> None:
    files = [
        {"path": "out/scaler.pkl", "loaded": True, "equal": True},
        {"path": "out/model.pkl", "not_checked": "would run code"},
    ]
    page = made(details(model_check={"files": files}))
    assert page.headline.sentence.endswith("and 1 of 2 model files does the same here (1 was not checked).")
    files[1] = {"path": "out/model.pkl", "loaded": True, "equal": True}
    page = made(details(model_check={"files": files}))
    assert page.headline.sentence.endswith("and all 2 model files do here what they did there.")


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("4.386", "4.386"),
        ("4.7 s", "4.7 s"),
        ("3. third", r"3\. third"),
        ("12) of", r"12\) of"),
        ("7.", r"7\."),
    ],
)
def test_a_number_in_markdown_is_no_list_and_has_no_backslash(said: str, shown: str) -> None:
    page = made(details())
    note = Section("note", "Note", (Notes((Note("", said),)),))
    assert f"\n- {shown}\n" in markdown_of(replace(page, sections=(note,)))
