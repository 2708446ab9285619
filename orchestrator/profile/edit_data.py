"""Add entries to a profile's `data:` and keep the rest of its text.

An addition that might change anything else is refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from orchestrator.profile.edit import NotEditable
from orchestrator.profile.load import to_data
from orchestrator.profile.tree import ListNode, MapNode, Refused, ScalarNode, read_tree

_PLAIN = re.compile(r"[A-Za-z0-9_./~][A-Za-z0-9_./~+@=-]*")
_NO_TEXT = frozenset(("null", "true", "false", "yes", "no", "on", "off", "~"))


@dataclass(frozen=True)
class NewData:
    """One entry: `source` as the profile writes it; a `target` of None is its default."""

    source: str
    target: str | None = None

    def as_data(self) -> dict[str, str]:
        """Return the entry as plain data."""
        return {"source": self.source} | ({"target": self.target} if self.target else {})


def with_data(text: str, entries: Sequence[NewData]) -> str:
    """Return `text` with further entries of data. For a source that it already has without a target, the
    target is added; otherwise such an entry is skipped.

    Raises NotEditable, and Refused if the text is no profile.
    """
    before = to_data(read_tree(text.encode(), "the profile"))
    data = before.get("data") if isinstance(before, dict) else None
    listed = [item if isinstance(item, dict) else {} for item in data] if isinstance(data, tuple) else []
    places = {item.get("source"): number for number, item in enumerate(listed)}
    new = [entry for entry in entries if entry.source not in places]
    moved = {places[entry.source]: entry for entry in entries if entry.source in places and entry.target}
    moved = {number: entry for number, entry in moved.items() if not listed[number].get("target")}
    if not new and not moved:
        return text
    for entry in (*new, *moved.values()):
        if not _is_utf8(entry.source + (entry.target or "")):
            raise NotEditable(f"the name {entry.source!r} is not UTF-8, as a profile is; rename it")
    result = _targeted(text, moved)
    result = _added(result, new) if new else result
    assert isinstance(before, dict)
    wanted: list[object] = [
        {**item, **moved[number].as_data()} if number in moved else item for number, item in enumerate(listed)
    ]
    _require_nothing_else(result, {**before, "data": [*wanted, *(entry.as_data() for entry in new)]})
    return result


def _require_nothing_else(text: str, wanted: Mapping[str, object]) -> None:
    """Raise NotEditable unless `text` parses to exactly `wanted`."""
    try:
        after = to_data(read_tree(text.encode(), "the profile"))
    except Refused as error:
        raise NotEditable(str(error)) from None
    if _listed(after) != _listed(dict(wanted)):
        raise NotEditable("it would change something else")


def _is_utf8(text: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in text)


def _listed(value: object) -> object:
    """Convert tuples to lists."""
    if isinstance(value, dict):
        return {key: _listed(item) for key, item in value.items()}
    return [_listed(item) for item in value] if isinstance(value, (list, tuple)) else value


def _targeted(text: str, moved: Mapping[int, NewData]) -> str:
    """Add the targets of entries, by their numbers, each on a line below its source."""
    root = read_tree(text.encode(), "the profile")
    node = root.items.get("data") if isinstance(root, MapNode) else None
    lines = text.splitlines(keepends=True)
    for number in sorted(moved, reverse=True):
        item = node.items[number] if isinstance(node, ListNode) else None
        if not isinstance(item, MapNode):
            raise NotEditable("an entry of data is not a mapping")
        place = item.keys["source"]
        begin = re.match(r"( *(?:- +)?)source:", lines[place.line - 1])
        if begin is None:
            raise NotEditable("an entry of data is written in brackets")
        if not lines[place.line - 1].endswith("\n"):
            lines[place.line - 1] += "\n"
        lines.insert(place.line, f"{' ' * len(begin[1])}target: {scalar(moved[number].target or '')}\n")
    return "".join(lines)


def _added(text: str, entries: Sequence[NewData]) -> str:
    root = read_tree(text.encode(), "the profile")
    if not isinstance(root, MapNode):
        raise NotEditable("the profile is not a mapping")
    lines = text.splitlines(keepends=True)
    if lines and not lines[-1].endswith("\n"):
        lines[-1] += "\n"
    if "data" not in root.items:
        return "".join([*lines, "data:\n", *_written(entries, "  ")])
    key, node = root.keys["data"], root.items["data"]
    number = key.line - 1
    if isinstance(node, ScalarNode) and node.value is None:
        return "".join([*lines[: number + 1], *_written(entries, "  "), *lines[number + 1 :]])
    if not isinstance(node, ListNode):
        raise NotEditable(f"data is not a list, at {node.place}")
    if not node.items:
        lines[number : number + 1] = _opened(lines[number], entries)
        return "".join(lines)
    return _after_last(lines, node, entries)


def _opened(line: str, entries: Sequence[NewData]) -> list[str]:
    """Convert `data: []` to a list of lines; its comment stays."""
    found = re.fullmatch(r"(data:)\s*\[\s*\]([ \t]*)(#.*)?\n", line)
    if found is None:
        raise NotEditable("its empty list of data is not written on one line")
    comment = f"  {found[3]}" if found[3] else ""
    return [f"data:{comment}\n", *_written(entries, "  ")]


def _after_last(lines: list[str], node: ListNode, entries: Sequence[NewData]) -> str:
    """Insert below the last entry of a list of lines."""
    first = lines[node.items[0].place.line - 1]
    dash = re.match(r"( *)- ", first)
    if dash is None:
        raise NotEditable("its list of data is written in brackets")
    end = node.items[-1].place.line
    while end < len(lines) and _belongs(lines[end], len(dash[1])):
        end += 1
    return "".join([*lines[:end], *_written(entries, dash[1]), *lines[end:]])


def _belongs(line: str, indent: int) -> bool:
    """Whether a line continues an entry whose dash is at this column."""
    return bool(line.strip()) and len(line) - len(line.lstrip(" ")) > indent


def _written(entries: Sequence[NewData], indent: str) -> list[str]:
    lines = []
    for entry in entries:
        lines.append(f"{indent}- source: {scalar(entry.source)}\n")
        if entry.target:
            lines.append(f"{indent}  target: {scalar(entry.target)}\n")
    return lines


def scalar(text: str) -> str:
    """Return a text as a YAML scalar: unchanged if it is plain, else in quotes."""
    plain = _PLAIN.fullmatch(text) and text.lower() not in _NO_TEXT and not re.fullmatch(r"[\d._e+-]+", text)
    return text if plain else json.dumps(text, ensure_ascii=False)
