"""The results of a run: files with hashes, the model check, and what was not downloaded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from orchestrator.model import RunRecord
from orchestrator.model.counted import counted
from orchestrator.report.models import model_lines
from orchestrator.report.page import safe
from orchestrator.report.page.model import Align, Block, Column, Note, Notes, Row, Section, State, Table
from orchestrator.report.units import size

_ROWS = 100


def section(record: RunRecord) -> Section | None:
    files = _files(record)
    notes = (*_checks(record), *_absent(record))
    blocks: list[Block] = [block for block in (Notes(notes) if notes else None, files) if block]
    if not blocks:
        return None
    total = sum(safe.count(each.get("bytes")) or 0 for each in record.artifacts)
    here = "verified against the machine's hashes" if record.machine else "on this computer"
    lead = f"{counted(len(record.artifacts), 'file')}, {size(total)}, {here}." if record.artifacts else ""
    states = [note.state for note in notes]
    state = State.BAD if State.BAD in states else State.NOTE if State.NOTE in states else State.OK
    return Section("results", "Results", tuple(blocks), lead, state)


def _checks(record: RunRecord) -> Iterator[Note]:
    if record.unchecked:
        yield Note(
            "model check",
            f"Not done: orch was ended before. Next: orch pull {safe.line(record.run_id)}",
            State.NOTE,
        )
    if record.model_check:
        bad = any(_state(each) == State.BAD for each in _judged(record))
        for number, said in enumerate(model_lines(record.model_check)):
            yield Note(
                "" if number else "model check",
                safe.text(said),
                State.BAD if bad and not number else State.NONE,
            )


def _judged(record: RunRecord) -> list[Mapping[str, Any]]:
    check = safe.mapping(record.model_check)
    return list(safe.mappings(check.get("files"))) or ([check] if check else [])


def _state(file: Mapping[str, Any]) -> State:
    if file.get("not_checked"):
        return State.NONE
    return State.OK if file.get("loaded") and file.get("equal") else State.BAD


def _files(record: RunRecord) -> Table | None:
    checked = {safe.line(each.get("path"), 1000): each for each in _judged(record)}
    rows = [_row(each, checked) for each in record.artifacts[:_ROWS]]
    if not rows:
        return None
    more = f"{len(record.artifacts) - _ROWS:,} more are in run.json." if len(record.artifacts) > _ROWS else ""
    columns = (
        Column("file", Align.CODE),
        Column("size", Align.NUMBER),
        Column("SHA-256", Align.CODE),
        Column("check"),
    )
    return Table(columns, tuple(rows), "", more)


def _row(artifact: Mapping[str, Any], checked: Mapping[str, Mapping[str, Any]]) -> Row:
    path = safe.line(artifact.get("path"), 300)
    found = checked.get(path.removeprefix("outputs/"))
    state = _state(found) if found else State.NONE
    said = {State.OK: "same here", State.BAD: "NOT the same here", State.NONE: "not checked" if found else ""}
    return Row(
        (path, size(safe.number(artifact.get("bytes"))), safe.line(artifact.get("sha256"), 64), said[state]),
        state,
    )


def _absent(record: RunRecord) -> Iterator[Note]:
    for number, each in enumerate(safe.mappings(record.unwritten, 20)):
        near = f"; the nearest that it wrote: {safe.line(each.get('nearest'))}" if each.get("nearest") else ""
        said = f"{safe.line(each.get('pattern'))}: nothing at {safe.line(each.get('looked_for'))}{near}"
        yield Note("" if number else "never written", said, State.BAD)
    for number, each in enumerate(safe.mappings(record.not_fetched, 20)):
        said = f"{safe.line(each.get('path'))}: {safe.line(each.get('detail') or each.get('reason'))}"
        yield Note("" if number else "stayed there", said, State.NOTE)
    if len(record.not_fetched) > 20:
        yield Note("", f"{len(record.not_fetched) - 20:,} more are named in run.json.")
