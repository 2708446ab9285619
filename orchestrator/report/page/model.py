"""What a page holds, as data: sections of blocks. Every text is plain text; renderers escape it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

SCHEMA = "orch.report/1"


class State(StrEnum):
    """How good something is. NONE: it is neither good nor bad."""

    OK = "ok"
    NOTE = "note"
    BAD = "bad"
    BUSY = "busy"
    NONE = "none"


class Mark(StrEnum):
    """What became of one stage of one step."""

    EQUAL = "equal"
    ROUNDING = "rounding"
    DIFFERS = "differs"
    UNKNOWN = "not compared"


class Unit(StrEnum):
    """Of the values of a chart."""

    NUMBER = "number"
    CORES = "cores"
    BYTES = "bytes"
    RATE = "bytes/s"
    SHARE = "share"


class Align(StrEnum):
    """Of a column."""

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
    """One number that is worth a large letter."""

    label: str
    value: str
    note: str = ""
    state: State = State.NONE


@dataclass(frozen=True)
class Figures:
    items: tuple[Figure, ...]


@dataclass(frozen=True)
class Line:
    """Points of one curve; `tone` is its colour's number. A NaN interrupts it."""

    name: str
    xs: tuple[float, ...]
    ys: tuple[float, ...]
    tone: int = 0
    dashed: bool = False


@dataclass(frozen=True)
class Chart:
    """`begin` to `end` on the x axis. `limit`: what there was of it. `filled`: the area below is tinted."""

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
    """Beside each other where there is room. `linked`: they share one time axis."""

    items: tuple[Chart, ...]
    linked: bool = False


@dataclass(frozen=True)
class Part:
    """One part of a whole: its share, and what is said of it."""

    name: str
    key: str
    share: float
    value: str
    meaning: str = ""


@dataclass(frozen=True)
class Parts:
    """One bar, divided."""

    title: str
    items: tuple[Part, ...]


@dataclass(frozen=True)
class Layer:
    """One of the layers of a stack: its share in each span."""

    name: str
    key: str
    shares: tuple[float, ...]


@dataclass(frozen=True)
class Stacked:
    """Shares over time, that add up to 1 in each span. `edges`: seconds, one more than there are spans."""

    title: str
    edges: tuple[float, ...]
    layers: tuple[Layer, ...]
    marks: tuple[tuple[float, str], ...] = ()


@dataclass(frozen=True)
class Cell:
    """One stage of one step of the ladder. `first`: the first difference is here."""

    mark: Mark
    text: str = ""
    hint: str = ""
    first: bool = False


@dataclass(frozen=True)
class Rungs:
    """The ladder: `rows` by stage, a cell for each of `steps`."""

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
    """`more`: what is said of rows that were left out. `states`: rows have a mark before them."""

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
    """Lines for a shell, to be copied; `title` says what they do."""

    title: str
    lines: tuple[str, ...]


@dataclass(frozen=True)
class Output:
    """What a program printed; folded, unless `open`."""

    title: str
    text: str
    open: bool = False


Block = Figures | Chart | Charts | Parts | Stacked | Rungs | Table | Notes | Commands | Output


@dataclass(frozen=True)
class Section:
    """`key` is its anchor. `damaged`: the record cannot be read there."""

    key: str
    title: str
    blocks: tuple[Block, ...]
    lead: str = ""
    state: State = State.NONE
    damaged: bool = False


@dataclass(frozen=True)
class Page:
    """One page. `subtitle`: when and where. `made`: by which version of orch and when, a sentence."""

    title: str
    subtitle: str
    headline: Headline
    figures: Figures
    sections: tuple[Section, ...]
    made: str = ""
    runs: tuple[str, ...] = ()
    facts: Mapping[str, str] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """The same, for programs; NaN becomes null."""
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
