"""Render a page as a Markdown summary for CI jobs: the verdict, the numbers, and the problems."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator

from orchestrator.model.plain import plain
from orchestrator.report.page.model import (
    Align,
    Block,
    Charts,
    Commands,
    Mark,
    Notes,
    Output,
    Page,
    Parts,
    Rungs,
    Section,
    State,
    Table,
)
from orchestrator.report.page.words import digits

_SIGNS = {State.OK: "✅", State.NOTE: "⚠️", State.BAD: "❌", State.BUSY: "⏳", State.NONE: ""}
_MARKS = {Mark.EQUAL: "=", Mark.ROUNDING: "≈", Mark.DIFFERS: "**≠**", Mark.UNKNOWN: "·"}
_ROWS = 12
_LINES = 40
_SPECIAL = re.compile(r"([\\`*_{}\[\]|~]|^[#+=>-])")
_NUMBERED = re.compile(r"^(\d{1,9})([.)])(?=\s|$)")
"""What would begin a numbered list. A backslash before a digit would be shown."""
_LINKS = {"://": "&#58;//", "@": "&#64;", "www.": "www&#46;"}
"""Text that GitHub and similar sites would turn into a link or a mention."""
_FOLDED = frozenset(("stack", "results", "cost", "output"))


def markdown_of(page: Page) -> str:
    """Return the summary. Text from a machine is escaped, so it creates no link, image, mention or HTML."""
    lines = [
        f"## {_SIGNS[page.headline.state]} {_text(page.title)}: {_text(page.headline.label)}".replace(
            "  ", " "
        ),
        "",
        f"**{_text(page.headline.sentence)}**",
        "",
    ]
    if page.figures.items:
        lines += _table(
            [figure.label for figure in page.figures.items],
            [[_value(f.value, f.note) for f in page.figures.items]],
        )
    for section in page.sections:
        lines += _section(section)
    lines += [f"<sub>{_text(page.made)}</sub>", ""]
    return "\n".join(lines)


def _value(value: str, note: str) -> str:
    return f"{value} ({note})" if note else value


def _section(section: Section) -> Iterator[str]:
    folded = section.key in _FOLDED and section.state in (State.OK, State.NONE)
    yield f"<details><summary>{_text(section.title)}</summary>" if folded else f"### {_text(section.title)}"
    yield ""
    if section.lead:
        yield from (_text(section.lead), "")
    for block in section.blocks:
        yield from _block(block)
    if folded:
        yield from ("</details>", "")


def _block(block: Block) -> Iterator[str]:
    match block:
        case Notes():
            yield from (
                f"- {f'**{_text(note.label)}**: ' if note.label else ''}{_text(note.text)}"
                for note in block.items
            )
            yield ""
        case Table():
            heads = [column.name for column in block.columns]
            code = [column.align == Align.CODE for column in block.columns]
            rows = [
                [_code(cell) if is_code else cell for cell, is_code in zip(row.cells, code, strict=False)]
                for row in block.rows[:_ROWS]
            ]
            yield from _table(heads, rows)
            if len(block.rows) > _ROWS:
                yield from (f"{len(block.rows) - _ROWS:,} more rows are in the HTML report.", "")
        case Parts():
            yield " · ".join(f"{_text(part.name)} **{_text(part.value)}**" for part in block.items)
            yield ""
        case Rungs():
            yield from _rungs(block)
        case Charts():
            yield from _charts(block)
        case Commands():
            yield from ("```sh", *(plain(line).replace("```", "'''") for line in block.lines), "```", "")
        case Output():
            tail = plain(block.text).replace("```", "'''").split("\n")[-_LINES:]
            yield from ("```text", *tail, "```", "")
        case _:
            return


def _rungs(rungs: Rungs) -> Iterator[str]:
    if rungs.first:
        yield from (f"❌ **{_text(rungs.first)}**", "")
    rows = [
        [stage, *(_Ready(f"{_MARKS[cell.mark]} {_text(cell.text)}".strip()) for cell in row)]
        for stage, row in zip(rungs.stages, rungs.rows, strict=True)
    ]
    yield from _table(["stage", *rungs.steps], rows)


def _charts(charts: Charts) -> Iterator[str]:
    """Return the first and last value of each curve over epochs or steps; curves over seconds are in the
    HTML only.
    """
    rows = [
        [line.name, digits(line.ys[0], 4), digits(line.ys[-1], 4), f"{chart.axis} {digits(line.xs[-1])}"]
        for chart in charts.items
        if chart.axis != "s"
        for line in chart.lines
        if line.ys
    ]
    if rows:
        yield from _table(["curve", "first", "last", "at"], rows)


class _Ready(str):
    """A table cell that is Markdown already."""

    __slots__ = ()


def _table(heads: list[str], rows: list[list[str]]) -> list[str]:
    return [_cells(heads), "|" + " --- |" * len(heads), *map(_cells, rows), ""]


def _cells(cells: list[str]) -> str:
    return "| " + " | ".join(cell if isinstance(cell, _Ready) else _text(cell) for cell in cells) + " |"


def _code(text: str) -> str:
    """Format text as code, so that no character has a special meaning."""
    shown = _text(text)
    return _Ready(f"<code>{shown}</code>") if shown else _Ready("")


def _text(text: str) -> str:
    """Escape text for Markdown and HTML, on one line."""
    one = " ".join(plain(text).split())
    safe = html.escape(_NUMBERED.sub(r"\1\\\2", _SPECIAL.sub(r"\\\1", one)), quote=False)
    for said, shown in _LINKS.items():
        safe = safe.replace(said, shown)
    return safe
