"""Stack and data: what was equal on both sides, and every difference."""

from __future__ import annotations

from collections.abc import Iterator

from orchestrator.model import RunRecord
from orchestrator.model.counted import counted
from orchestrator.report.page import safe
from orchestrator.report.page.model import Align, Block, Column, Note, Notes, Row, Section, State, Table
from orchestrator.report.run import data_line, stack_line

_ROWS = 200


def section(record: RunRecord) -> Section | None:
    notes = tuple(_notes(record))
    differences = _differences(record)
    inherited = _inherited(record)
    blocks: list[Block] = [
        block for block in (Notes(notes) if notes else None, differences, inherited) if block
    ]
    if not blocks:
        return None
    undeclared = [
        each
        for each in safe.mappings(safe.mapping(record.stack).get("differences"))
        if not each.get("declared")
    ]
    state = State.BAD if undeclared or safe.mapping(record.data).get("altered") else State.OK
    return Section("stack", "Stack and data", tuple(blocks), state=state)


def _notes(record: RunRecord) -> Iterator[Note]:
    if record.stack:
        yield Note("stack", safe.text(stack_line(record.stack)))
    if record.data and data_line(record.data):
        yield Note("data", safe.text(data_line(record.data)))
    for each in safe.items(safe.mapping(record.data).get("altered"), 20):
        yield Note("written meanwhile", safe.line(each), State.BAD)


def _differences(record: RunRecord) -> Table | None:
    found = list(safe.mappings(safe.mapping(record.stack).get("differences")))
    rows = [
        Row(
            (
                safe.line(each.get("kind"), 40),
                safe.line(each.get("name"), 120),
                safe.line(each.get("here"), 200) or "absent",
                safe.line(each.get("there"), 200) or "absent",
                safe.line(each.get("reason"), 200)
                or ("expected" if each.get("declared") else "not declared"),
            ),
            State.NONE if each.get("declared") else State.BAD,
        )
        for each in sorted(found, key=lambda one: bool(one.get("declared")))
    ]
    if not rows:
        return None
    columns = (
        Column("kind"),
        Column("name", Align.CODE),
        Column("on this computer"),
        Column("on the machine"),
        Column("why"),
    )
    title = f"{counted(len(rows), 'difference')} between the two sides"
    more = f"{len(rows) - _ROWS:,} more are in run.json." if len(rows) > _ROWS else ""
    return Table(columns, tuple(rows[:_ROWS]), title, more, states=True)


def _inherited(record: RunRecord) -> Table | None:
    found = safe.mapping(safe.mapping(record.stack).get("inherited"))
    rows = tuple(
        Row((safe.line(name, 120), safe.line(value, 200))) for name, value in list(found.items())[:_ROWS]
    )
    columns = (Column("variable", Align.CODE), Column("value", Align.CODE))
    return Table(columns, rows, "Variables of the shell here that the run got too") if rows else None
