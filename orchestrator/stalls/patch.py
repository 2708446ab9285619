"""Apply a fix to the script's text, found by the line of the call, and show it as a diff."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from orchestrator.model.syntax import tree_of

Edit = Mapping[str, Any]
"""{file, line, call} and one of `keyword` ("name=value"), `after` (what to append to the call), `before` (a
line to write before its statement)."""

_PLACES = {("map", "num_parallel_calls"): 1, ("interleave", "num_parallel_calls"): 3}
"""Position of an argument that may also be given by name."""


def change_call(source: str, edits: Sequence[Edit]) -> str | None:
    """Return the text with all edits applied; None if a call was not found."""
    try:
        tree = tree_of(source)
    except SyntaxError:
        return None
    text = source.encode()
    starts = _line_starts(text)
    changes: list[tuple[int, int, bytes]] = []
    for edit in edits:
        call = _call(tree, str(edit["call"]), int(edit["line"]))
        if call is None:
            return None
        changes.append(_change(tree, call, edit, text, starts))
    for begin, end, new in sorted(changes, key=lambda each: each[:2], reverse=True):
        text = text[:begin] + new + text[end:]
    return text.decode()


def diff(name: str, source: str, edits: Sequence[Edit]) -> str | None:
    """Return a unified diff of one file; None if nothing can be shown."""
    new = change_call(source, edits)
    if new is None or new == source:
        return None
    lines = difflib.unified_diff(source.splitlines(True), new.splitlines(True), name, name, n=1)
    return "".join(line if line.endswith("\n") else f"{line}\n" for line in lines)


def _call(tree: ast.AST, name: str, line: int) -> ast.Call | None:
    """Return the call of this name on this line; of several, the shortest."""
    found = [call for call in _calls(tree, name) if call.lineno <= line <= (call.end_lineno or line)]
    exact = [call for call in found if call.func.end_lineno == line]
    return min(exact or found, key=lambda call: (call.end_lineno or 0) - call.lineno, default=None)


def _calls(tree: ast.AST, name: str) -> Iterator[ast.Call]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            function = node.func
            said = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", None)
            if said == name:
                yield node


def _line_starts(text: bytes) -> list[int]:
    starts = [0]
    for line in text.splitlines(True):
        starts.append(starts[-1] + len(line))
    return starts


def _change(
    tree: ast.AST, call: ast.Call, edit: Edit, text: bytes, starts: Sequence[int]
) -> tuple[int, int, bytes]:
    """Return one edit as (begin, end, new bytes)."""
    end = _end(call, starts)
    if "after" in edit:
        return end, end, str(edit["after"]).encode()
    if "before" in edit:
        begin = starts[_statement(tree, call).lineno - 1]
        line = text[begin:]
        indent = line[: len(line) - len(line.lstrip(b" \t"))]
        return begin, begin, indent + str(edit["before"]).encode() + b"\n"
    name, _, value = str(edit["keyword"]).partition("=")
    given = _argument(call, name)
    if given is not None:
        return _begin(given, starts), _end(given, starts), value.encode()
    inside = text[:end].rstrip()[:-1].rstrip()
    comma = b"" if inside.endswith((b",", b"(")) else b","
    space = b" " if comma or inside.endswith(b",") else b""
    return len(inside), len(inside), comma + space + str(edit["keyword"]).encode()


def _argument(call: ast.Call, name: str) -> ast.expr | None:
    for keyword in call.keywords:
        if keyword.arg == name:
            return keyword.value
    said = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    place = _PLACES.get((said, name))
    return call.args[place] if place is not None and len(call.args) > place else None


def _statement(tree: ast.AST, call: ast.Call) -> ast.stmt:
    """Return the innermost statement around a call."""
    around = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.stmt) and node.lineno <= call.lineno and (node.end_lineno or 0) >= call.lineno
    ]
    return max(around, key=lambda node: node.lineno)


def _begin(node: ast.expr, starts: Sequence[int]) -> int:
    return starts[node.lineno - 1] + node.col_offset


def _end(node: ast.expr, starts: Sequence[int]) -> int:
    return starts[(node.end_lineno or node.lineno) - 1] + (node.end_col_offset or 0)
