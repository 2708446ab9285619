"""Paths of this computer that a project's code names in plain text, defaults of options among them."""

from __future__ import annotations

import ast
import glob
import os
import posixpath
from collections.abc import Iterator
from pathlib import Path

from orchestrator.api.opened import Opened
from orchestrator.api.undeclared import is_secret

MOST_FILES = 300
LARGEST = 1 << 20
LONGEST = 300
"""Files of code that are read, bytes of one, and characters of a path."""


def named_paths(project: Path, code: frozenset[str]) -> Opened:
    """Find existing paths among the string literals of a project's `code`. No file is executed."""
    files: dict[str, str] = {}
    folders: dict[str, None] = {}
    near = {project, *project.parents, Path.home()}
    for name in sorted(each for each in code if each.endswith(".py"))[:MOST_FILES]:
        for text in _strings(project / name):
            for base in {project, (project / name).parent}:
                place = Path(os.path.normpath(base / Path(text).expanduser()))
                if place in near:
                    continue
                if place.is_dir():
                    folders.setdefault(str(place))
                elif place.is_file() and not is_secret(place.name):
                    files.setdefault(str(place), "named")
    return Opened(files, tuple(folders), frozenset(), ())


def _strings(file: Path) -> Iterator[str]:
    try:
        if file.stat().st_size > LARGEST:
            return
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError):
        return
    for_people = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    texts = {_above_wildcards(_text(node)) for node in ast.walk(tree) if id(node) not in for_people}
    yield from sorted(text for text in texts if _may_be_path(text))


def _text(node: ast.AST) -> str:
    """Evaluate an expression to a path; if only its beginning is known, to the folder."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    if isinstance(node, ast.JoinedStr):
        first = _text(node.values[0]) if node.values else ""
        return posixpath.dirname(first)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
        left, right = _text(node.left), _text(node.right)
        return posixpath.join(left, right) if left and right else ""
    if isinstance(node, ast.Call) and node.args:
        parts = [_text(part) for part in node.args]
        called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        return posixpath.join(*parts) if all(parts) and called in ("Path", "join", "joinpath") else ""
    return ""


def _may_be_path(text: str) -> bool:
    if len(text) > LONGEST or "\n" in text or "\0" in text or "://" in text:
        return False
    return bool(text.strip("./ "))


def _above_wildcards(text: str) -> str:
    """`data` of `data/*.csv`."""
    while glob.has_magic(text):
        text = posixpath.dirname(text)
    return text
