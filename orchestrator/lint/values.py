"""Evaluate expressions without running them, as far as possible: texts, numbers, arguments of calls."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from orchestrator.lint.module import Module

UNKNOWN = "\x00"
"""Placeholder for an unknown part of a text."""
_DEPTH = 7
_MAX_TEXTS = 16
_SAME_TEXT = {"str", "os.fspath", "os.path.abspath", "os.path.realpath", "os.path.normpath", "pathlib.Path"}
JOINS = {"os.path.join", "pathlib.Path", "pathlib.PurePath", "pathlib.PosixPath", "tensorflow.io.gfile.join"}


def argument(call: ast.Call, position: int, *names: str) -> ast.expr | None:
    """Return the argument of `call` at `position` (from 0; -1: by name only) or by one of `names`."""
    named = next((k.value for k in call.keywords if k.arg in names), None)
    if named is not None:
        return named
    if 0 <= position < len(call.args) and not any(
        isinstance(a, ast.Starred) for a in call.args[: position + 1]
    ):
        return call.args[position]
    return None


def unclear(call: ast.Call) -> bool:
    """Whether `call` has arguments that the text does not show: *args or **options."""
    return any(k.arg is None for k in call.keywords) or any(isinstance(a, ast.Starred) for a in call.args)


def truth(module: Module, node: ast.AST | None) -> bool | None:
    """Return True or False if that is written literally, otherwise None."""
    found = module.value(node)
    return found.value if isinstance(found, ast.Constant) and isinstance(found.value, bool) else None


def is_none(node: ast.AST | None) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def number(module: Module, node: ast.AST | None) -> int | None:
    """Return the whole number to which an expression evaluates; None if it is not certain."""
    found = module.value(node)
    if isinstance(found, ast.Constant) and type(found.value) is int:
        return found.value
    return None


def texts(module: Module, node: ast.AST | None, depth: int = _DEPTH) -> list[str]:
    """Return the texts that an expression may be, with UNKNOWN for unknown parts; [] if it is no text."""
    if node is None or depth <= 0:
        return []
    return list(dict.fromkeys(_texts(module, node, depth)))[:_MAX_TEXTS]


def _texts(module: Module, node: ast.AST, depth: int) -> Iterator[str]:
    if isinstance(node, ast.Constant):
        if isinstance(node.value, str):
            yield node.value
    elif isinstance(node, ast.JoinedStr):
        parts = [v.value if isinstance(v, ast.Constant) else UNKNOWN for v in node.values]
        yield "".join(str(part) for part in parts)
    elif isinstance(node, ast.Name):
        for value in module.bound(node)[:3]:
            yield from texts(module, value, depth - 1)
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Div | ast.Mod):
        yield from _operated(module, node, depth)
    elif isinstance(node, ast.IfExp):
        yield from texts(module, node.body, depth - 1)
        yield from texts(module, node.orelse, depth - 1)
    elif isinstance(node, ast.BoolOp):
        for value in node.values:
            yield from texts(module, value, depth - 1)
    elif isinstance(node, ast.Call):
        yield from _called(module, node, depth)
    elif isinstance(node, ast.Subscript):
        for value in _held(module, node):
            yield from texts(module, value, depth - 1)
    elif isinstance(node, ast.Attribute):
        for value in _of_class(module, node):
            yield from texts(module, value, depth - 1)


def _held(module: Module, node: ast.Subscript) -> list[ast.expr]:
    """Return what a literal dictionary holds under a key, or under any key if the key is unknown."""
    table = module.value(node.value)
    if not isinstance(table, ast.Dict):
        return []
    wanted = texts(module, node.slice, 2)
    pairs = [(key, value) for key, value in zip(table.keys, table.values, strict=True) if key is not None]
    return [value for key, value in pairs if not wanted or getattr(key, "value", None) in wanted]


def _of_class(module: Module, node: ast.Attribute) -> list[ast.expr]:
    """Return the value of `Paths.ROOT`, for a class here with `ROOT = …` in its body."""
    found = module.classes.get(node.value.id) if isinstance(node.value, ast.Name) else None
    given: list[ast.expr] = []
    for statement in found.body if found else ():
        targets = (
            statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
        )
        value = getattr(statement, "value", None)
        if value is not None and any(isinstance(each, ast.Name) and each.id == node.attr for each in targets):
            given.append(value)
    return given


def _operated(module: Module, node: ast.BinOp, depth: int) -> Iterator[str]:
    left = texts(module, node.left, depth - 1)
    if isinstance(node.op, ast.Mod):
        yield from left
        return
    between = "/" if isinstance(node.op, ast.Div) else ""
    right = texts(module, node.right, depth - 1)
    if left or right:
        for first in left or [UNKNOWN]:
            for second in right or [UNKNOWN]:
                yield _joined([first, second]) if between else first + second


def _called(module: Module, node: ast.Call, depth: int) -> Iterator[str]:
    name = module.called(node)
    if name in JOINS and len(node.args) > 1:
        parts = [(texts(module, each, depth - 1) or [UNKNOWN])[0] for each in node.args]
        yield _joined(parts)
    elif name in _SAME_TEXT | JOINS and node.args:
        yield from texts(module, node.args[0], depth - 1)
    elif isinstance(node.func, ast.Attribute) and node.func.attr in ("format", "joinpath"):
        base = texts(module, node.func.value, depth - 1)
        more = [(texts(module, each, depth - 1) or [UNKNOWN])[0] for each in node.args]
        yield from (_joined([each, *more]) for each in base) if node.func.attr == "joinpath" else base


def _joined(parts: list[str]) -> str:
    """Join like os.path.join: an absolute part drops what precedes it."""
    result = ""
    for part in parts:
        result = part if part.startswith("/") or not result else f"{result.rstrip('/')}/{part}"
    return result


def shown(text: str) -> str:
    """Format `text` for users: short, with an ellipsis for the unknown."""
    plain = text.replace(UNKNOWN, "…")
    return plain if len(plain) <= 60 else f"{plain[:57]}…"


def source(node: ast.AST) -> str:
    """Return the code of `node` on one line, "" if it is nested too deeply."""
    try:
        return " ".join(ast.unparse(node).split())
    except (RecursionError, ValueError, AttributeError):
        return ""


def inside(node: ast.AST) -> Iterator[ast.AST]:
    """Yield `node` and everything below it."""
    return ast.walk(node)


def names_in(node: ast.AST) -> set[str]:
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}


def calls_in(node: ast.AST) -> Iterator[ast.Call]:
    return (each for each in ast.walk(node) if isinstance(each, ast.Call))
