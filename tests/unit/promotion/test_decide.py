"""The rules of a gate, on records alone."""

from __future__ import annotations

import math
from typing import Any

import pytest

from orchestrator.model import RunRecord
from orchestrator.model.acceptance import (
    Accept,
    How,
    Limit,
    Margin,
    ModelHistory,
    Promotion,
    Refusal,
    RefusalReason,
)
from orchestrator.model.outcomes import Conclusion
from orchestrator.promotion.decide import refusals_of
from orchestrator.promotion.words import refusal_from, refusal_text

R = RefusalReason
BOTH = (Conclusion.IDENTICAL, Conclusion.EQUIVALENT)
CURRENT = Promotion("r0", 1.0, How.ACCEPTED, {"accuracy": 0.95, "loss": 0.2}, "n")


def record(metrics: dict[str, float] | None = None, **facts: Any) -> RunRecord:
    given = {"accuracy": 0.95, "loss": 0.2} if metrics is None else metrics
    return RunRecord("r1", "runs/r1", {"reason": "completed"}, metrics=given, **facts)


def reasons(accept: Accept, told: RunRecord, current: Promotion | None = CURRENT) -> list[tuple[str, str]]:
    return [(str(each.reason), each.subject) for each in refusals_of(accept, told, current)]


@pytest.mark.parametrize(
    ("limit", "value", "broken"),
    [
        (Limit(low=0.9), 0.9, None),
        (Limit(low=0.9), 0.8999, R.TOO_LOW),
        (Limit(low=0.9, exclusive=True), 0.9, R.TOO_LOW),
        (Limit(high=0.3), 0.3, None),
        (Limit(high=0.3), 0.31, R.TOO_HIGH),
        (Limit(high=0.3, exclusive=True), 0.3, R.TOO_HIGH),
        (Limit(0.1, 0.3), 0.2, None),
        (Limit(0.1, 0.3), 0.05, R.TOO_LOW),
        (Limit(low=0.9), math.nan, R.NOT_FINITE),
        (Limit(low=0.9), math.inf, R.NOT_FINITE),
    ],
)
def test_limits(limit: Limit, value: float, broken: RefusalReason | None) -> None:
    found = reasons(Accept(metrics={"accuracy": limit}), record({"accuracy": value}))
    assert found == ([(str(broken), "accuracy")] if broken else [])


def test_a_metric_that_the_run_lacks_is_named_once_with_those_it_has() -> None:
    accept = Accept(metrics={"acc": Limit(low=0.9)}, not_worse={"acc": Margin(0.01, True)})
    (refusal,) = refusals_of(accept, record(), CURRENT)
    assert refusal.reason is R.NO_METRIC and list(refusal.known) == ["accuracy", "loss"]
    assert refusal_text(refusal) == "the run wrote no metric acc (its metrics: accuracy, loss)"


@pytest.mark.parametrize(
    ("name", "margin", "value", "broken"),
    [
        ("accuracy", Margin(0.01, True), 0.94, False),  # 0.95 - 0.94 is not 0.01 to the bit
        ("accuracy", Margin(0.01, True), 0.93, True),
        ("accuracy", Margin(0.0, True), 0.95, False),
        ("accuracy", Margin(0.0, True), 0.9499, True),
        ("accuracy", Margin(0.01, True), 0.99, False),
        ("loss", Margin(0.05, False), 0.25, False),
        ("loss", Margin(0.05, False), 0.26, True),
        ("loss", Margin(0.05, False), 0.01, False),
    ],
)
def test_margins(name: str, margin: Margin, value: float, broken: bool) -> None:
    accept = Accept(not_worse={name: margin})
    assert reasons(accept, record({name: value})) == ([("worse", name)] if broken else [])
    assert reasons(accept, record({name: value}), None) == []  # the first model has nothing to be worse than


@pytest.mark.parametrize(
    ("accepted", "verdict", "found"),
    [
        ((), None, []),
        ((), "DIVERGENT", []),
        (BOTH, "IDENTICAL", []),
        (BOTH, "EQUIVALENT", []),
        (BOTH[:1], "EQUIVALENT", [("parity", "EQUIVALENT")]),
        (BOTH, "DIVERGENT", [("parity", "DIVERGENT")]),
        (BOTH, "NOT COMPARED", [("parity", "NOT COMPARED")]),
        (BOTH, None, [("no_parity", "")]),
    ],
)
def test_parity(accepted: tuple[Conclusion, ...], verdict: str | None, found: list[tuple[str, str]]) -> None:
    told = record(parity={"verdict": verdict} if verdict else None)
    assert reasons(Accept(parity=accepted), told) == found


SAME = {"path": "a.keras", "loaded": True, "equal": True, "not_checked": None}
WRONG = {"path": "b.keras", "loaded": True, "equal": False, "not_checked": None}
UNLOADED = {"path": "c.keras", "loaded": False, "equal": None, "not_checked": None}
UNCHECKED = {"path": "d.pkl", "loaded": False, "equal": None, "not_checked": "would run code"}


@pytest.mark.parametrize(
    ("files", "asked", "found"),
    [
        ([SAME], True, []),
        ([SAME, WRONG], False, [("model_differs", "b.keras")]),
        ([UNLOADED], False, [("model_differs", "c.keras")]),
        ([SAME, UNCHECKED], False, []),
        ([SAME, UNCHECKED], True, [("model_not_checked", "d.pkl")]),
        ([], False, []),
        ([], True, [("no_model", "")]),
    ],
)
def test_models(files: list[dict[str, Any]], asked: bool, found: list[tuple[str, str]]) -> None:
    told = record(model_check={**files[0], "files": files} if files else None)
    assert reasons(Accept(model_check=asked), told) == found


@pytest.mark.parametrize(
    ("verdict", "found"),
    [("EXACT", []), ("NOT EXACT", [("resume", "NOT EXACT")]), (None, [("no_resume_proof", "")])],
)
def test_resume(verdict: str | None, found: list[tuple[str, str]]) -> None:
    told = record(resume_proof={"verdict": verdict} if verdict else None)
    assert reasons(Accept(resume_proof=True), told) == found


@pytest.mark.parametrize("reason", list(RefusalReason))
def test_every_reason_has_words_and_survives_the_record(reason: RefusalReason) -> None:
    refusal = Refusal(reason, "accuracy", 0.5, 0.9, "r0", ("loss",))
    text = refusal_text(refusal)
    assert text and "{" not in text and not text.endswith(".")
    assert refusal_text(refusal_from(refusal.as_json())) == text


def history(*steps: str) -> ModelHistory:
    """`a`: accepted; `<a`: rolled back to."""
    made = [
        Promotion(step.lstrip("<"), float(n), How.ROLLBACK if step[0] == "<" else How.ACCEPTED, {}, str(n))
        for n, step in enumerate(steps)
    ]
    return ModelHistory("current", tuple(made))


@pytest.mark.parametrize(
    ("steps", "leads_to"),
    [
        ("", None),
        ("a", None),
        ("a b", "a"),
        ("a b c", "b"),
        ("a b c <b", "a"),
        ("a b c <b <a", None),
        ("a b c <b d", "b"),
        ("a b c <a <c", "a"),
        ("a b <a b2", "a"),
    ],
)
def test_where_a_rollback_leads(steps: str, leads_to: str | None) -> None:
    previous = history(*steps.split()).previous()
    assert (previous.run_id if previous else None) == leads_to
