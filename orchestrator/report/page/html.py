"""Render a page as one HTML file that sends no request, and in which nothing written by a machine is
executed.
"""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from importlib.resources import files

from orchestrator.report.page import charts
from orchestrator.report.page.elements import Attributes, Markup, el, joined, raw
from orchestrator.report.page.model import (
    Align,
    Block,
    Cell,
    Chart,
    Charts,
    Column,
    Commands,
    Figure,
    Figures,
    Headline,
    Mark,
    Note,
    Notes,
    Output,
    Page,
    Parts,
    Row,
    Rungs,
    Section,
    Stacked,
    State,
    Table,
)

_SIGNS = {
    State.OK: "M4 11.5 9 16.5 18 6.5",
    State.NOTE: "M11 4.5V12.5M11 16.2V17",
    State.BAD: "M5.5 5.5 16.5 16.5M16.5 5.5 5.5 16.5",
    State.BUSY: "M11 5V11L15 13.5",
    State.NONE: "M6 11H16",
}
_NAMES = {
    State.OK: "good",
    State.NOTE: "to be looked at",
    State.BAD: "bad",
    State.BUSY: "going on",
    State.NONE: "",
}
_MARKS = {
    Mark.EQUAL: ("=", "equal to the last bit"),
    Mark.ROUNDING: ("≈", "differs by rounding"),
    Mark.DIFFERS: ("≠", "differs"),
    Mark.UNKNOWN: ("·", "not compared"),
}


def html_of(page: Page) -> str:
    """Return the complete file."""
    style, program = _asset("style.css"), _asset("page.js")
    policy = (
        f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(program)}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    head = el(
        "head",
        None,
        el("meta", {"charset": "utf-8"}),
        el("meta", {"http-equiv": "Content-Security-Policy", "content": policy}),
        el("meta", {"name": "viewport", "content": "width=device-width, initial-scale=1"}),
        el("meta", {"name": "color-scheme", "content": "light dark"}),
        el("meta", {"name": "referrer", "content": "no-referrer"}),
        el("link", {"rel": "icon", "href": "data:,"}),
        el("title", None, f"{page.title} — {page.headline.label}"),
        el("style", None, raw(style)),
    )
    body = el(
        "body",
        None,
        _header(page),
        el("main", None, *map(_section, page.sections)),
        _footer(page),
        el("script", None, raw(program)),
    )
    return f"<!doctype html>\n{el('html', {'lang': 'en'}, head, body)}\n"


@cache
def _asset(name: str) -> str:
    return files("orchestrator.report.page").joinpath(name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


# ---------------------------------------------------------------- the frame


def _header(page: Page) -> Markup:
    links = [el("a", {"href": f"#{section.key}"}, section.title) for section in page.sections]
    return el(
        "header",
        None,
        el("div", {"class": "top"}, el("h1", None, page.title), el("p", {"class": "sub"}, page.subtitle)),
        _verdict(page.headline),
        _figures(page.figures) if len(page.figures.items) > 1 else Markup(""),
        el("nav", {"aria-label": "Sections"}, *links),
    )


def _verdict(headline: Headline) -> Markup:
    words = el(
        "div",
        None,
        el("p", {"class": "label"}, headline.label),
        el("p", {"class": "sentence"}, headline.sentence),
    )
    return el("div", {"class": f"verdict s-{headline.state}"}, _sign(headline.state, 40), words)


def _sign(state: State, size: int) -> Markup:
    """Return a symbol for a state that can be recognised without its colour."""
    drawn = joined(
        [
            el("circle", {"cx": 11, "cy": 11, "r": 11, "class": "disc"}),
            el("path", {"d": _SIGNS[state], "class": "sign"}),
        ]
    )
    attributes: Attributes = {
        "class": f"state s-{state}",
        "viewBox": "0 0 22 22",
        "width": size,
        "height": size,
        "role": "img",
    }
    return el("svg", {**attributes, "aria-label": _NAMES[state] or "neutral"}, drawn)


def _footer(page: Page) -> Markup:
    return el("footer", None, el("p", None, page.made))


def _section(section: Section) -> Markup:
    sign = _sign(section.state, 20) if section.state != State.NONE else Markup("")
    lead = el("p", {"class": "lead"}, section.lead) if section.lead else Markup("")
    blocks = [_block(block) for block in section.blocks]
    return el("section", {"id": section.key}, el("h2", None, section.title, sign), lead, *blocks)


def _block(block: Block) -> Markup:
    match block:
        case Figures():
            return _figures(block)
        case Chart():
            return charts.chart(block)
        case Charts():
            return el(
                "div",
                {"class": "charts" + (" linked" if block.linked else "")},
                *map(charts.chart, block.items),
            )
        case Parts():
            return charts.parts(block)
        case Stacked():
            return charts.stacked(block)
        case Rungs():
            return _rungs(block)
        case Table():
            return _table(block)
        case Notes():
            return el("dl", {"class": "notes"}, *map(_note, block.items))
        case Commands():
            return joined(
                [
                    el("h3", None, block.title),
                    el("pre", {"class": "shell", "tabindex": 0}, "\n".join(block.lines)),
                ]
            )
        case Output():
            return _output(block)


# ---------------------------------------------------------------- blocks


def _figures(figures: Figures) -> Markup:
    return el("ul", {"class": "figures"}, *map(_figure, figures.items))


def _figure(figure: Figure) -> Markup:
    note = el("small", None, figure.note) if figure.note else Markup("")
    return el("li", None, el("span", {"class": "label"}, figure.label), el("b", None, figure.value), note)


def _note(note: Note) -> Markup:
    sign = _sign(note.state, 14) if note.state in (State.BAD, State.NOTE) else Markup("")
    text = el("code", None, note.text) if note.code else note.text
    return joined([el("dt", None, note.label), el("dd", None, sign, text)])


def _table(table: Table) -> Markup:
    signs = [el("th", {"class": "st"}, el("span", {"class": "hidden"}, "state"))] if table.states else []
    head = el(
        "tr",
        None,
        *signs,
        *(el("th", {"class": _kind(column), "scope": "col"}, column.name) for column in table.columns),
    )
    rows = [_row(row, table) for row in table.rows]
    title = el("h3", None, table.title) if table.title else Markup("")
    more = el("p", {"class": "note"}, table.more) if table.more else Markup("")
    narrow = len(table.columns) == 2 and table.columns[1].align == Align.NUMBER
    drawn = el(
        "table", {"class": "narrow" if narrow else None}, el("thead", None, head), el("tbody", None, *rows)
    )
    label = table.title or ", ".join(column.name for column in table.columns)
    return joined(
        [
            title,
            el("div", {"class": "scroll", "tabindex": 0, "role": "region", "aria-label": label}, drawn),
            more,
        ]
    )


def _row(row: Row, table: Table) -> Markup:
    signs = []
    if table.states:
        signs = [el("td", {"class": "st"}, _sign(row.state, 14) if row.state != State.NONE else Markup(""))]
    cells = [
        el("td", {"class": _kind(column)}, cell)
        for column, cell in zip(table.columns, row.cells, strict=False)
    ]
    return el("tr", {"class": f"s-{row.state}" if row.state != State.NONE else None}, *signs, *cells)


def _kind(column: Column) -> str:
    return {Align.TEXT: "t", Align.NUMBER: "n", Align.CODE: "c"}[column.align]


def _rungs(rungs: Rungs) -> Markup:
    head = el(
        "tr",
        None,
        el("th", {"scope": "col"}, "stage"),
        *(el("th", {"scope": "col"}, step) for step in rungs.steps),
    )
    rows = [
        el("tr", None, el("th", {"scope": "row"}, stage), *map(_cell, row))
        for stage, row in zip(rungs.stages, rungs.rows, strict=True)
    ]
    seen = {cell.mark for row in rungs.rows for cell in row}
    keys = [
        el("span", {"class": "key"}, el("span", {"class": f"m m-{mark.name.lower()}"}, sign), words)
        for mark, (sign, words) in _MARKS.items()
        if mark in seen
    ]
    first = el("p", {"class": "first"}, _sign(State.BAD, 16), rungs.first) if rungs.first else Markup("")
    drawn = el("table", {"class": "ladder"}, el("thead", None, head), el("tbody", None, *rows))
    said = " ".join(part for part in ("Read down each step, then on to the next.", rungs.caption) if part)
    caption = el("p", {"class": "note"}, said)
    scroll = el(
        "div", {"class": "scroll", "tabindex": 0, "role": "region", "aria-label": "ladder of parity"}, drawn
    )
    return el("div", {"class": "rungs"}, first, scroll, el("p", {"class": "legend"}, *keys), caption)


def _cell(cell: Cell) -> Markup:
    sign, words = _MARKS[cell.mark]
    hint = f"{words}: {cell.hint}" if cell.hint else words
    first = [el("span", {"class": "here"}, "first difference")] if cell.first else []
    inner = el(
        "div",
        {"class": f"m m-{cell.mark.name.lower()}" + (" first" if cell.first else ""), "title": hint},
        el("b", None, sign),
        el("span", None, cell.text),
        *first,
    )
    return el("td", None, inner)


def _output(output: Output) -> Markup:
    return el(
        "details",
        {"open": output.open},
        el("summary", None, output.title),
        el("pre", {"tabindex": 0}, output.text),
    )
