"""Parse YAML text to a tree in which every key and value has its place. Strict, bounded, YAML 1.2 scalars.

It reads the parser's events, so depth and size are limited while reading. Values that YAML 1.1 readers
convert (`no`, `on`, `1:30`, `0777`, `1_000`, dates) stay text. Aliases, anchors, tags, merge keys and
duplicate keys are refused.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import Any

import yaml
from yaml import events
from yaml.error import MarkedYAMLError
from yaml.reader import ReaderError

MAX_BYTES = 256 << 10
MAX_DEPTH = 20
MAX_NODES = 10_000
MAX_REFERENCES = 8

Data = str | int | float | bool | None | dict[str, "Data"] | tuple["Data", ...]
"""A tree without its places; lists are tuples."""


@dataclass(frozen=True)
class Place:
    """Where something was written: a file with line and column from 1, or a source without them."""

    source: str
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        return f"{self.source}:{self.line}:{self.column}" if self.line else self.source

    @property
    def order(self) -> tuple[bool, int, int, str]:
        return (not self.line, self.line, self.column, self.source)


@dataclass(frozen=True)
class Problem:
    """One problem, at one place, in one sentence. `is_cause`: others may be consequences of it. `fix`: the
    next command, None if the text says what to write.
    """

    place: Place
    text: str
    is_cause: bool = False
    fix: str | None = None

    @property
    def order(self) -> tuple[bool, bool, int, int, str]:
        return (not self.is_cause, *self.place.order)


class Refused(Exception):
    """The text is refused. `problems` has at least one entry."""

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__("; ".join(f"{problem.place}: {problem.text}" for problem in problems))
        self.problems = problems


@dataclass(frozen=True)
class ScalarNode:
    """One value. `text` is as written, without quotes; `value` is its value in YAML 1.2."""

    text: str
    value: str | int | float | bool | None
    place: Place


@dataclass(frozen=True)
class ListNode:
    place: Place
    items: list[Node] = field(default_factory=list)


@dataclass(frozen=True)
class MapNode:
    """`keys` has the place of each key, `items` its value."""

    place: Place
    items: dict[str, Node] = field(default_factory=dict)
    keys: dict[str, Place] = field(default_factory=dict)


Node = ScalarNode | ListNode | MapNode

_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]{0,17})")
_FLOAT = re.compile(r"[-+]?((0|[1-9][0-9]{0,17})(\.[0-9]{0,30})?|\.[0-9]{1,30})([eE][-+]?[0-9]{1,3})?")
_WORDS: dict[str, bool | None] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}


def plain_value(text: str) -> str | int | float | bool | None:
    """Return the value of an unquoted scalar: null, true/false, a decimal number, else the text itself."""
    if text in _WORDS:
        return _WORDS[text]
    if _INTEGER.fullmatch(text):
        return int(text)
    if _FLOAT.fullmatch(text):
        number = float(text)
        return number if math.isfinite(number) else text
    return text


def read_tree(raw: bytes, source: str) -> Node:
    """Return the one document in `raw`. Raises Refused with all problems of its form."""
    if len(raw) > MAX_BYTES:
        size = f"is larger than {MAX_BYTES >> 10} KiB, the limit of a profile"
        raise Refused([Problem(Place(source, 1, 1), f"the document {size}")])
    return _Builder(source).build(_decoded(raw, source))


def _decoded(raw: bytes, source: str) -> str:
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = raw[: error.start].decode("utf-8", "replace")
        where = Place(source, before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1)
        raise Refused([Problem(where, f"byte 0x{raw[error.start]:02x} is not UTF-8 text")]) from None


@dataclass
class _Open:
    """A list or mapping that is being read. `key`: the key whose value comes next."""

    node: ListNode | MapNode
    key: tuple[str, Place] | None = None


class _Builder:
    """Convert parser events to nodes, collect problems, and stop if reading cannot go on."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.problems: list[Problem] = []
        self.stack: list[_Open] = []
        self.root: Node | None = None
        self.documents = 0
        self.nodes = 0
        self.references: list[Place] = []

    def build(self, text: str) -> Node:
        self._consume(text)
        if self.problems:
            raise Refused(self.problems)
        if self.root is None:
            return ScalarNode("", None, Place(self.source, 1, 1))
        return self.root

    def _consume(self, text: str) -> None:
        loader = None
        try:
            loader = yaml.SafeLoader(text)
            while (event := loader.get_event()) is not None:  # type: ignore[no-untyped-call]
                self._take(event)
        except MarkedYAMLError as error:
            self._stop(self._place(error.problem_mark or error.context_mark), _syntax(error))
        except ReaderError as error:
            before = text[: error.position]
            column = len(before) - (before.rfind("\n") + 1) + 1
            place = Place(self.source, before.count("\n") + 1, column)
            self._stop(place, f"the character U+{_code(error):04X} is not allowed in a profile")
        except (ValueError, OverflowError) as error:  # an escape beyond Unicode, a version beyond int
            place = self._place(loader.get_mark() if loader else None)
            self._stop(place, f"not valid YAML here ({error})")

    def _stop(self, place: Place, text: str) -> None:
        raise Refused([*self.problems, Problem(place, text)]) from None

    def _place(self, mark: Any) -> Place:
        return Place(self.source, mark.line + 1, mark.column + 1) if mark else Place(self.source, 1, 1)

    def _wrong(self, place: Place, text: str) -> None:
        self.problems.append(Problem(place, text))

    def _refer(self, place: Place, text: str) -> None:
        """Refuse an anchor or an alias; many of them are reported in one line."""
        self.references.append(place)
        if len(self.references) > MAX_REFERENCES:
            many = f"more than {MAX_REFERENCES} anchors and aliases; all are refused"
            raise Refused([Problem(self.references[0], f"{many}: write each value where it is used")])
        self._wrong(place, text)

    def _take(self, event: events.Event) -> None:
        place = self._place(event.start_mark)
        if isinstance(event, events.DocumentStartEvent):
            self._start_document(place)
        elif isinstance(event, events.AliasEvent):
            self._refer(place, f"the alias *{event.anchor} is refused: write the value where it is used")
            self._add(ScalarNode("", None, place))
        elif isinstance(event, events.NodeEvent):
            self._check_properties(event, place)
            self._start_node(event, place)
        elif isinstance(event, events.CollectionEndEvent):
            self.stack.pop()

    def _start_document(self, place: Place) -> None:
        self.documents += 1
        if self.documents > 1:
            self._stop(place, "a second document starts here; a profile has only one")

    def _check_properties(self, event: events.NodeEvent, place: Place) -> None:
        if event.anchor is not None:
            self._refer(place, f"the anchor &{event.anchor} is refused: references are not allowed")
        tag = getattr(event, "tag", None)
        if tag is not None:
            self._wrong(place, f"the tag {_short(tag)} is refused: write the plain value")

    def _start_node(self, event: events.NodeEvent, place: Place) -> None:
        self.nodes += 1
        if self.nodes > MAX_NODES:
            self._stop(place, f"more than {MAX_NODES} values, the limit of a profile")
        if isinstance(event, events.ScalarEvent):
            self._scalar(event, place)
        else:
            self._collection(event, place)

    def _scalar(self, event: events.ScalarEvent, place: Place) -> None:
        text = event.value
        if (odd := refused_character(text)) is not None:
            self._wrong(place, f"the value holds the control character U+{ord(odd):04X}")
        plain = event.style is None
        if plain and text == "<<" and self._awaits_key():
            self._wrong(place, "the merge key << is refused: write its keys here")
        self._add(ScalarNode(text, plain_value(text) if plain else text, place))

    def _collection(self, event: events.NodeEvent, place: Place) -> None:
        if len(self.stack) >= MAX_DEPTH:
            self._stop(place, f"nested more than {MAX_DEPTH} levels deep")
        if self._awaits_key():
            self._stop(place, "a key must be plain text, not a list or a mapping")
        node = ListNode(place) if isinstance(event, events.SequenceStartEvent) else MapNode(place)
        self._add(node)
        self.stack.append(_Open(node))

    def _awaits_key(self) -> bool:
        return bool(self.stack) and isinstance(self.stack[-1].node, MapNode) and self.stack[-1].key is None

    def _add(self, node: Node) -> None:
        if not self.stack:
            self.root = node
            return
        top = self.stack[-1]
        if isinstance(top.node, ListNode):
            top.node.items.append(node)
        elif top.key is None:
            assert isinstance(node, ScalarNode)
            top.key = (node.text, node.place)
        else:
            self._add_pair(top.node, *top.key, node)
            top.key = None

    def _add_pair(self, into: MapNode, key: str, place: Place, node: Node) -> None:
        if key in into.keys:
            first = into.keys[key]
            self._wrong(place, f"the key '{_short(key)}' is given twice, first in line {first.line}")
            return
        into.keys[key] = place
        into.items[key] = node


_HINTS = {
    "mapping values are not allowed here": "an unquoted value contains ': ', or the indentation is wrong",
    "found character '\\t' that cannot start any token": "a tab is here; YAML indents with spaces",
    "found unexpected end of stream": "a quote or bracket that was opened is never closed",
    "could not find expected ':'": "a key needs a ':' after it",
}


def _syntax(error: MarkedYAMLError) -> str:
    problem = error.problem or "unreadable"
    return f"not valid YAML: {_HINTS.get(problem, problem)}"


def _code(error: ReaderError) -> int:
    character = error.character
    return character if isinstance(character, int) else ord(character)


def refused_character(text: str) -> str | None:
    """Return the first character in `text` that no value may contain: a control other than tab and newline,
    or half a surrogate pair.
    """
    return next((c for c in text if (c < " " and c not in "\t\n") or "\ud800" <= c <= "\udfff"), None)


def _short(text: str) -> str:
    return text if len(text) <= 60 else text[:57] + "…"
