"""The content of a page as data: sections of blocks. All text is plain; the renderers escape it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

SCHEMA = "orch.report/1"


class State(StrEnum):
    """How good something is. NONE: neither good nor bad."""

    OK = "ok"
    NOTE = "note"
    BAD = "bad"
    BUSY = "busy"
    NONE = "none"


class Mark(StrEnum):
    """The result of comparing one stage of one step."""

    EQUAL = "equal"
    ROUNDING = "rounding"
    DIFFERS = "differs"
    UNKNOWN = "not compared"


class Unit(StrEnum):
    """The unit of the values of a chart."""

    NUMBER = "number"
    CORES = "cores"
    BYTES = "bytes"
    RATE = "bytes/s"
    SHARE = "share"


class Align(StrEnum):
    """The alignment of a column."""

    TEXT = "text"
    NUMBER = "number"
    CODE = "code"


@dataclass(frozen=True)
class Headline:
    """The verdict: a word or two, and one sentence."""

    state: State
    label: str
    sentence: str


@dataclass(frozen=True)
class Figure:
    """One important number, shown large."""

    label: str
    value: str
    note: str = ""
    state: State = State.NONE


@dataclass(frozen=True)
class Figures:
    items: tuple[Figure, ...]


@dataclass(frozen=True)
class Line:
    """The points of one curve; `tone` is the number of its colour. A NaN interrupts the line."""

    name: str
    xs: tuple[float, ...]
    ys: tuple[float, ...]
    tone: int = 0
    dashed: bool = False


@dataclass(frozen=True)
class Chart:
    """`begin` and `end` are the limits of the x axis. `limit`: the available amount, drawn as a line.
    `filled`: the area below is coloured.
    """

    title: str
    lines: tuple[Line, ...]
    unit: Unit = Unit.NUMBER
    axis: str = ""
    begin: float = 0.0
    end: float = 1.0
    limit: float | None = None
    limit_name: str = ""
    filled: bool = False
    note: str = ""
    log: bool = False


@dataclass(frozen=True)
class Charts:
    """Charts beside each other if there is room. `linked`: they share one time axis."""

    items: tuple[Chart, ...]
    linked: bool = False


@dataclass(frozen=True)
class Part:
    """One part of a whole: its share and its label."""

    name: str
    key: str
    share: float
    value: str
    meaning: str = ""


@dataclass(frozen=True)
class Parts:
    """One bar, divided into parts."""

    title: str
    items: tuple[Part, ...]


@dataclass(frozen=True)
class Layer:
    """One layer of a stacked chart: its share in each time span."""

    name: str
    key: str
    shares: tuple[float, ...]


@dataclass(frozen=True)
class Stacked:
    """Shares over time that add up to 1 in each span. `edges`: the limits of the spans in seconds, one
    more than there are spans.
    """

    title: str
    edges: tuple[float, ...]
    layers: tuple[Layer, ...]
    marks: tuple[tuple[float, str], ...] = ()


@dataclass(frozen=True)
class Cell:
    """One stage of one step. `first`: the first difference is here."""

    mark: Mark
    text: str = ""
    hint: str = ""
    first: bool = False


@dataclass(frozen=True)
class Rungs:
    """The comparison by stage (`rows`) and step (`steps`), with a cell for each."""

    steps: tuple[str, ...]
    stages: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    caption: str = ""
    first: str = ""


@dataclass(frozen=True)
class Column:
    name: str
    align: Align = Align.TEXT


@dataclass(frozen=True)
class Row:
    cells: tuple[str, ...]
    state: State = State.NONE


@dataclass(frozen=True)
class Table:
    """`more`: a note about rows that were left out. `states`: a symbol before each row."""

    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    title: str = ""
    more: str = ""
    states: bool = False


@dataclass(frozen=True)
class Note:
    """A labelled paragraph."""

    label: str
    text: str
    state: State = State.NONE
    code: bool = False


@dataclass(frozen=True)
class Notes:
    items: tuple[Note, ...]


@dataclass(frozen=True)
class Commands:
    """Shell commands to copy; `title` says what they do."""

    title: str
    lines: tuple[str, ...]


@dataclass(frozen=True)
class Output:
    """What a program printed; collapsed unless `open`."""

    title: str
    text: str
    open: bool = False


Block = Figures | Chart | Charts | Parts | Stacked | Rungs | Table | Notes | Commands | Output


@dataclass(frozen=True)
class Section:
    """`key` is its anchor. `damaged`: this part of the record cannot be read."""

    key: str
    title: str
    blocks: tuple[Block, ...]
    lead: str = ""
    state: State = State.NONE
    damaged: bool = False


@dataclass(frozen=True)
class Page:
    """One page. `subtitle`: when and where; `made`: a sentence with the version of orch and the time."""

    title: str
    subtitle: str
    headline: Headline
    figures: Figures
    sections: tuple[Section, ...]
    made: str = ""
    runs: tuple[str, ...] = ()
    facts: Mapping[str, str] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Return a block as JSON values; NaN becomes null."""
        found = asdict(self)
        for section, one in zip(found["sections"], self.sections, strict=True):
            for block, typed in zip(section["blocks"], one.blocks, strict=True):
                block["kind"] = type(typed).__name__.lower()
        clean: dict[str, Any] = _finite(found)
        return clean


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return None
    return value
