"""Set values in a profile's text and keep everything else: comments, order and quotes.

An edit that might change anything else is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from orchestrator.profile.load import to_data
from orchestrator.profile.tree import MapNode, Node, Place, Refused, ScalarNode, read_tree

Keys = tuple[str, ...]


class NotEditable(ValueError):
    """The text has a form that cannot be edited safely; the message says where."""


def edited(text: str, changes: Mapping[Keys, str]) -> str:
    """Return `text` with plain scalars set at `changes`, which are addressed by their keys.

    Raises NotEditable, and Refused if the text is no profile.
    """
    result = text
    for keys, value in changes.items():
        result = _put(result, keys, value)
    wanted = to_data(read_tree(text.encode(), "the profile"))
    for keys, value in changes.items():
        wanted = _with(wanted, keys, to_data(read_tree(f"a: {value}".encode(), "a value")))
    try:
        done = to_data(read_tree(result.encode(), "the profile"))
    except Refused as error:
        raise NotEditable(str(error)) from None
    if done != wanted:
        raise NotEditable("it would change something else")
    return result


def _with(data: Any, keys: Keys, value: Any) -> Any:
    known = dict(data) if isinstance(data, dict) else {}
    first, *rest = keys
    known[first] = _with(known.get(first), tuple(rest), value) if rest else value["a"]
    return known


def _put(text: str, keys: Keys, value: str) -> str:
    node: Node = read_tree(text.encode(), "the profile")
    for depth, key in enumerate(keys):
        if not isinstance(node, MapNode):
            raise NotEditable(f"{'.'.join(keys[:depth])} is not a mapping")
        if key not in node.items:
            return _inserted(text, node, keys[depth:], value, top=depth == 0)
        found = node.items[key]
        if isinstance(found, ScalarNode) and found.value is None and depth < len(keys) - 1:
            return _below(text, node.keys[key], keys[depth + 1 :], value)
        node = found
    if not isinstance(node, ScalarNode):
        raise NotEditable(f"{'.'.join(keys)} is a mapping or a list, at {node.place}")
    return _replaced(text, node, value)


def _replaced(text: str, node: ScalarNode, value: str) -> str:
    lines = text.splitlines(keepends=True)
    number, column = node.place.line - 1, node.place.column - 1
    line = lines[number]
    for written in (node.text, f"'{node.text}'", f'"{node.text}"'):
        if node.text and line.startswith(written, column):
            after = line[column + len(written) :]
            if after.lstrip(" ").startswith("#"):  # the comment keeps its column
                after = " " * max(
                    1, len(written) - len(value) + len(after) - len(after.lstrip(" "))
                ) + after.lstrip(" ")
            lines[number] = line[:column] + value + after
            return "".join(lines)
    raise NotEditable(f"the value at {node.place} is not written on one line")


def _inserted(text: str, parent: MapNode, keys: Keys, value: str, *, top: bool) -> str:
    """Insert as the first of the parent's keys; at the end of the text if the parent is the document."""
    if top:
        end = "" if text.endswith("\n") or not text else "\n"
        return f"{text}{end}{_block(keys, value, 0)}"
    if not parent.keys:
        raise NotEditable(f"the mapping at {parent.place} is empty")
    first = min(parent.keys.values(), key=lambda place: place.order)
    lines = text.splitlines(keepends=True)
    number, column = first.line - 1, first.column - 1
    if lines[number][:column].strip():
        raise NotEditable(f"the mapping at {parent.place} is written on one line")
    lines.insert(number, _block(keys, value, column))
    return "".join(lines)


def _below(text: str, key: Place, keys: Keys, value: str) -> str:
    lines = text.splitlines(keepends=True)
    if not lines[key.line - 1].endswith("\n"):
        lines[key.line - 1] += "\n"
    lines.insert(key.line, _block(keys, value, key.column + 1))
    return "".join(lines)


def _block(keys: Keys, value: str, column: int) -> str:
    names = [f"{' ' * (column + 2 * depth)}{name}:" for depth, name in enumerate(keys)]
    return "\n".join(names) + f" {value}\n"
