"""Parity: the comparison of the first steps, the first difference, its cause, and what was tried."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from orchestrator.model.counted import counted
from orchestrator.model.outcomes import Conclusion, Stage
from orchestrator.parity.rungs import Rung
from orchestrator.report.page import safe
from orchestrator.report.page.model import (
    Block,
    Cell,
    Column,
    Mark,
    Note,
    Notes,
    Row,
    Rungs,
    Section,
    State,
    Table,
)
from orchestrator.report.page.words import OUTCOMES, STAGES

_COLUMNS = 12
_CANDIDATES = 40

STATES: Mapping[str, State] = {
    Conclusion.IDENTICAL: State.OK,
    Conclusion.EQUIVALENT: State.OK,
    Conclusion.NOT_COMPARED: State.NOTE,
    Conclusion.UNSTABLE: State.BAD,
    Conclusion.DIVERGENT: State.BAD,
}
_LEADS: Mapping[str, str] = {
    Conclusion.IDENTICAL: "Every tensor that was compared is equal to the last bit.",
    Conclusion.EQUIVALENT: "The two sides differ by no more than rounding does to this model.",
    Conclusion.DIVERGENT: "The two sides do not compute the same.",
    Conclusion.UNSTABLE: "The script differs from itself on one machine, so no machine can be blamed.",
    Conclusion.NOT_COMPARED: "The two sides could not be compared.",
}
_LEADS_OF_RECORDS = {
    **_LEADS,
    Conclusion.IDENTICAL: "The same job with the same results; no tensors were compared.",
    Conclusion.DIVERGENT: "Their inputs or results differ; no tensors were compared.",
    Conclusion.NOT_COMPARED: "No tensors were compared, and their records do not settle it.",
}


def section(parity: Mapping[str, Any] | None, rungs: Sequence[Rung]) -> Section | None:
    """Return the parity of a run, or of two. Without `rungs`, the record's summary is shown."""
    if not parity:
        return None
    found = safe.mapping(parity)
    verdict = safe.line(found.get("verdict"), 40)
    grid = _grid(found, rungs)
    blocks: list[Block] = [*([grid] if grid else []), Notes(_notes(found))]
    tried = _candidates(found)
    recorded = _recorded(found)
    blocks += [*([recorded] if recorded else []), *([tried] if tried else [])]
    title, leads = "Parity of the first steps", _LEADS
    if recorded:
        title, leads = "What their records tell", _LEADS_OF_RECORDS
    lead = f"{verdict}. {leads.get(verdict, '')}".strip()
    return Section("parity", title, tuple(blocks), lead, STATES.get(verdict, State.NOTE))


# ---------------------------------------------------------------- the ladder


def _grid(found: Mapping[str, Any], rungs: Sequence[Rung]) -> Rungs | None:
    cells = {(rung.step, rung.stage): _cell(rung) for rung in rungs} or _told(found)
    first = _first(found, rungs)
    if first in cells:
        known = cells[first]
        cells[first] = Cell(_differing(known.mark), known.text, known.hint, first=True)
    elif first:
        cells[first] = Cell(Mark.DIFFERS, "differs", safe.line(found.get("tensor"), 120), first=True)
    if not cells:
        return None
    every = sorted({step for step, _ in cells})
    steps = _chosen(every, first[0] if first else None)
    stages = [stage for stage in STAGES if any((step, stage) in cells for step in every)]
    rows = tuple(tuple(cells.get((step, stage), Cell(Mark.UNKNOWN)) for step in steps) for stage in stages)
    left = f"Shown: {len(steps)} of {counted(len(every), 'step')}." if len(every) > len(steps) else ""
    said = f"First difference: step {first[0]}, {STAGES.get(first[1], first[1])}" if first else ""
    return Rungs(
        tuple(f"step {step}" for step in steps), tuple(STAGES[stage] for stage in stages), rows, left, said
    )


def _differing(mark: Mark) -> Mark:
    return mark if mark == Mark.ROUNDING else Mark.DIFFERS


def _cell(rung: Rung) -> Cell:
    if not rung.differing:
        return Cell(
            Mark.EQUAL,
            f"{rung.compared:,}",
            "fingerprints" if rung.light else counted(rung.compared, "tensor"),
        )
    mark = Mark.ROUNDING if rung.rounding else Mark.DIFFERS
    size = f" · {rung.relative:.1e}" if rung.relative else ""
    return Cell(mark, f"{rung.differing:,} of {rung.compared:,}{size}", safe.line(rung.tensor, 120))


def _told(found: Mapping[str, Any]) -> dict[tuple[int, Stage], Cell]:
    """Build the comparison from the record if the recordings are not here: all before the first
    difference was equal.
    """
    steps = min(safe.count(found.get("steps")) or 0, 10_000)
    if not safe.count(found.get("compared")):
        return {}
    first = _first(found, ())
    cells: dict[tuple[int, Stage], Cell] = {}
    for step in range(1, min(steps, _COLUMNS) + 1):
        for stage in STAGES:
            if first and (step, _place(stage)) >= (first[0], _place(first[1])):
                return cells
            cells[step, stage] = Cell(Mark.EQUAL, "equal")
    return cells


def _place(stage: Stage) -> int:
    return list(STAGES).index(stage) if stage in STAGES else 0


def _first(found: Mapping[str, Any], rungs: Sequence[Rung]) -> tuple[int, Stage] | None:
    """Return where the first difference is according to the record; for files, where they were first
    noticed.
    """
    shown = safe.mapping(found.get("shows")) if found.get("stage") == Stage.FILES else found
    step, stage = safe.count(shown.get("step")), safe.line(shown.get("stage"), 20)
    if step is not None and stage in [str(each) for each in STAGES]:
        return step, Stage(stage)
    if found.get("verdict") in (Conclusion.DIVERGENT, Conclusion.EQUIVALENT):
        return next(
            ((rung.step, rung.stage) for rung in rungs if rung.differing and rung.stage in STAGES), None
        )
    return None


def _chosen(steps: Sequence[int], first: int | None) -> list[int]:
    """Choose the steps that fit: the first ones, and those around the first difference."""
    if len(steps) <= _COLUMNS:
        return list(steps)
    if first is None or first not in steps or steps.index(first) < _COLUMNS - 2:
        return list(steps[:_COLUMNS])
    at = steps.index(first)
    return sorted({*steps[:4], *steps[max(4, at - 4) : at + _COLUMNS - 8]})[:_COLUMNS]


# ---------------------------------------------------------------- in words


def _notes(found: Mapping[str, Any]) -> tuple[Note, ...]:
    summary = safe.text(found.get("summary") or found.get("detail"))
    cause = safe.text(found.get("cause"))
    unseen = "; ".join(safe.line(each) for each in safe.items(found.get("not_compared"), 20))
    band = safe.mapping(found.get("band"))
    flips = ", ".join(safe.line(each, 80) for each in safe.items(band.get("flips"), 12))
    told = (
        ("Finding", summary, State.NONE),
        ("How much", safe.text(found.get("difference")), State.NONE),
        ("Cause", cause, State.NOTE),
        ("What to do", safe.text(found.get("fix")), State.NONE),
        ("Left open", safe.text(found.get("untried")), State.NONE),
        ("Rounding", f"Measured by changes that only round otherwise: {flips}." if flips else "", State.NONE),
        ("Not compared", f"{unseen}." if unseen else "", State.NONE),
        ("Not sent", _undeclared(found), State.BAD),
    )
    return tuple(Note(label, text, state) for label, text, state in told if text)


def _undeclared(found: Mapping[str, Any]) -> str:
    names = [
        safe.line(each.get("name") or each.get("path"), 200)
        for each in safe.mappings(found.get("undeclared"), 12)
    ]
    return f"The run reads here, and the machine was not sent: {', '.join(names)}." if names else ""


def _candidates(found: Mapping[str, Any]) -> Table | None:
    rows = [
        Row(
            (safe.line(each.get("words")), safe.line(each.get("outcome"), 40), safe.line(each.get("why"))),
            OUTCOMES.get(safe.line(each.get("outcome"), 40), State.NONE),
        )
        for each in safe.mappings(found.get("candidates"))
    ]
    if not rows:
        return None
    more = f"{len(rows) - _CANDIDATES} more are in run.json." if len(rows) > _CANDIDATES else ""
    columns = (Column("looked into as the cause"), Column("outcome"), Column("how that is known"))
    return Table(columns, tuple(rows[:_CANDIDATES]), "What was looked into", more, states=True)


def _recorded(found: Mapping[str, Any]) -> Table | None:
    rows = [
        Row(
            (
                safe.line(each.get("name"), 80),
                safe.line(each.get("a"), 120) or "not recorded",
                safe.line(each.get("b"), 120) or "not recorded",
            ),
            _equality(each),
        )
        for each in safe.mappings(found.get("recorded"))
    ]
    columns = (Column("fact"), Column("first run"), Column("second run"))
    return Table(columns, tuple(rows), "What the two records hold", states=True) if rows else None


def _equality(fact: Mapping[str, Any]) -> State:
    if fact.get("equal") is None:
        return State.NONE
    return State.OK if fact["equal"] else State.BAD if fact.get("decisive") else State.NOTE
