"""The cost of a run, its machine and attempts, and a cheaper machine that would have been sufficient."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from orchestrator.model import RunRecord
from orchestrator.model.plain import moment
from orchestrator.report.page import safe
from orchestrator.report.page.model import Align, Block, Column, Note, Notes, Row, Section, State, Table
from orchestrator.report.page.words import sentence
from orchestrator.report.run import cost_line
from orchestrator.report.units import duration, money, size
from orchestrator.report.where import machine_notes

_DETAILS = ("cpus", "memory", "accelerator", "tier")


def section(record: RunRecord) -> Section | None:
    notes = (*_machine(record), *_cost(record), *_right(record))
    timings = _timings(record)
    blocks: list[Block] = [block for block in (Notes(notes) if notes else None, timings) if block]
    return Section("cost", "Cost and machine", tuple(blocks)) if blocks else None


def _machine(record: RunRecord) -> Iterator[Note]:
    machine = safe.mapping(record.machine)
    if not machine:
        yield Note("machine", "This computer.")
        return
    detail = safe.mapping(machine.get("detail"))
    facts = [safe.line(machine.get(key), 80) for key in ("instance_type", "zone", "provider", "id")]
    facts += [_detail(key, detail[key]) for key in _DETAILS if detail.get(key)]
    yield Note("machine", " · ".join(dict.fromkeys(fact for fact in facts if fact)))


def _detail(key: str, value: object) -> str:
    found = safe.number(value)
    if key == "memory" and found:
        return size(found)
    return (
        f"{safe.line(value, 60)} {'cores' if key == 'cpus' else ''}".strip()
        if key == "cpus"
        else safe.line(value, 80)
    )


def _cost(record: RunRecord) -> Iterator[Note]:
    if record.cost:
        yield Note("cost", safe.text(cost_line(record.cost)))


def _right(record: RunRecord) -> Iterator[Note]:
    seen = safe.mapping(record.profile)
    told = (
        [
            safe.line(text, 500)
            for _, text in machine_notes(
                seen, safe.line(record.run_id, 80), safe.line(record.profile_path, 400)
            )
        ]
        if seen
        else []
    )
    if told:
        yield Note("the right machine", sentence(*told))


def _timings(record: RunRecord) -> Table | None:
    rows = [
        Row((safe.line(name, 60).removesuffix("_s").replace("_", " "), duration(seconds)))
        for name, value in safe.mapping(record.timings).items()
        if (seconds := safe.number(value)) is not None
    ]
    columns = (Column("what orch did"), Column("took", Align.NUMBER))
    return Table(columns, tuple(rows[:40])) if rows else None


# ---------------------------------------------------------------- attempts


def attempts(record: RunRecord) -> Section | None:
    """Return a section with the attempts; None if there was only one."""
    if len(record.attempts) < 2:
        return None
    rows = tuple(_attempt(each) for each in safe.mappings(list(record.attempts)[-50:]))
    columns = (
        Column("attempt", Align.NUMBER),
        Column("ended"),
        Column("began"),
        Column("took", Align.NUMBER),
        Column("machine"),
        Column("from"),
        Column("steps", Align.NUMBER),
        Column("cost", Align.NUMBER),
        Column("changed before it"),
    )
    return Section("attempts", "Attempts", (Table(columns, rows, states=True),))


def _attempt(each: Mapping[str, Any]) -> Row:
    began, ended = safe.number(each.get("started_at")), safe.number(each.get("ended_at"))
    saved = safe.mapping(each.get("resumed_from"))
    steps, usd = safe.count(each.get("steps")), safe.number(each.get("usd"))
    reason = safe.line(each.get("reason"), 40)
    place = [safe.line(each.get(key), 60) for key in ("instance_type", "zone")]
    cells = (
        safe.line(each.get("number"), 10),
        reason.replace("_", " "),
        moment(began) if began and began < 1e11 else "",
        duration(ended - began) if began and ended and ended >= began else "",
        " · ".join(dict.fromkeys(part for part in place if part)),
        f"checkpoint of attempt {safe.line(saved.get('attempt'), 10)}" if saved else "the beginning",
        f"{steps:,}" if steps else "",
        money(usd) if usd is not None else "",
        "; ".join(safe.line(one, 200) for one in safe.items(each.get("changed"), 10)),
    )
    return Row(cells, State.OK if reason == "completed" else State.NOTE)
