"""`orch rerun` and `orch report A B` say one thing about the results of two runs."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.api.rerunning import Rerun
from orchestrator.model import RunRecord, Verdict
from orchestrator.model.outcomes import Conclusion
from orchestrator.report.page import State, html_of, page_of_two
from orchestrator.report.page.model import Headline, Table
from orchestrator.report.page.two import Comparison
from orchestrator.report.rerun import rerun_text
from orchestrator.runs.details import RunDetails
from orchestrator.runs.outputs import ComparedMetric, ComparedOutput, ComparedResults, Sameness
from tests.unit.report.page.runs import record

MODEL = "outputs/out/model.keras"
TENSORS = Verdict(Conclusion.IDENTICAL, steps=3, compared=60)
RECORDS = Verdict(Conclusion.NOT_COMPARED)
SAME = ComparedOutput(MODEL, Sameness.CONTENT)
OTHER = ComparedOutput(MODEL, Sameness.DIFFERENT, ("config.json",), True)


def runs() -> tuple[RunRecord, RunRecord]:
    return record(), record(run_id="digits-2", artifacts=[{"path": MODEL, "sha256": "8" * 64, "bytes": 9}])


def page(verdict: Verdict, results: ComparedResults) -> Any:
    one, other = (RunDetails(each) for each in runs())
    return page_of_two(one, other, Comparison(verdict.as_json(), (), results), version="", now=0.0)


def headline(verdict: Verdict, results: ComparedResults) -> Headline:
    found = page(verdict, results)
    assert isinstance(found.headline, Headline)
    return found.headline


def verb(verdict: Verdict, results: ComparedResults) -> str:
    one, other = runs()
    found = Rerun(one, other, results.conclusion, results.outputs, results.metrics, verdict)
    return rerun_text(one, other, found.as_json())


@pytest.mark.parametrize("verdict", [TENSORS, RECORDS])
def test_a_model_with_other_settings_and_the_same_weights_is_named_by_both(verdict: Verdict) -> None:
    results = ComparedResults(Conclusion.DIVERGENT, (OTHER,), ())
    said = headline(verdict, results)
    words = f"{MODEL}: other bytes in config.json; the weights are the same"
    assert (said.state, said.label) == (State.BAD, "DIVERGENT")
    assert f"digits-1 and digits-2 are not the same: 1 of 1 output file differs ({words}); " in said.sentence
    text = verb(verdict, results)
    assert "digits-1 and digits-2: not the same" in text and words in text


@pytest.mark.parametrize("verdict", [TENSORS, RECORDS])
def test_a_model_that_was_saved_at_another_time_is_the_same_for_both(verdict: Verdict) -> None:
    results = ComparedResults(Conclusion.IDENTICAL, (SAME,), ())
    said = headline(verdict, results)
    assert (said.state, said.label) == (State.OK, "IDENTICAL")
    assert said.sentence.startswith("digits-1 and digits-2 are the same: ")
    assert "the output file has the same content" in said.sentence
    assert "digits-1 and digits-2: the same" in verb(verdict, results)


def test_other_metrics_are_not_the_same_either() -> None:
    results = ComparedResults(Conclusion.DIVERGENT, (SAME,), (ComparedMetric("loss", 0.5, 0.25),))
    assert "are not the same: the metric loss differs; every tensor" in headline(TENSORS, results).sentence
    assert "not the same" in verb(TENSORS, results)


@pytest.mark.parametrize(
    ("output", "cell", "state"),
    [
        (SAME, "888888888888: the same content", State.OK),
        (OTHER, "888888888888: other bytes in config.json; the weights are the same", State.NOTE),
        (ComparedOutput(MODEL, Sameness.DIFFERENT), "888888888888", State.NOTE),
    ],
)
def test_the_table_of_files_says_it_too(output: ComparedOutput, cell: str, state: State) -> None:
    found = page(TENSORS, ComparedResults(Conclusion.DIVERGENT, (output,), ()))
    (table,) = next(each for each in found.sections if each.key == "results").blocks
    assert isinstance(table, Table)
    assert [(row.cells[2], row.state) for row in table.rows] == [(cell, state)]


def test_names_that_a_run_chose_are_text_and_are_cut() -> None:
    evil = tuple(f"<iframe>\x1b]0;t\x07{'x' * 9_000}{number}" for number in range(9))
    results = ComparedResults(
        Conclusion.DIVERGENT, (ComparedOutput(MODEL, Sameness.DIFFERENT, evil, False),), ()
    )
    assert "<iframe" not in html_of(page(TENSORS, results))
    text = verb(TENSORS, results)
    assert "\x1b" not in text and "and 6 more; the weights are not the same" in text and len(text) < 5_000
