"""Find where a module reads environment variables."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from orchestrator.lint.module import Module
from orchestrator.lint.program import Program
from orchestrator.lint.values import argument, texts

Read = tuple[Module, ast.AST, str]
_READERS = ("os.getenv", "os.environ.get", "os.environ.pop", "os.environ.setdefault")


def read_variables(program: Program) -> Iterator[Read]:
    """Yield (module, node, variable) of each read of a variable that the program has not set before."""
    for module in program.modules:
        for node in module.nodes:
            for name in texts(module, _key(module, node)):
                if not _is_set_before(program, module, node, name):
                    yield module, node, name


def _key(module: Module, node: ast.AST) -> ast.AST | None:
    """Return the expression that names the variable which `node` reads; None if it reads none."""
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
        return node.slice if module.dotted(node.value) == "os.environ" else None
    if isinstance(node, ast.Call) and module.called(node) in _READERS:
        return argument(node, 0) or next((each.value for each in node.keywords if each.arg == "key"), None)
    if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.In | ast.NotIn):
        return node.left if module.dotted(node.comparators[0]) == "os.environ" else None
    return None


def _is_set_before(program: Program, module: Module, read: ast.AST, name: str) -> bool:
    for setter, node, *_ in program.variables(name):
        if module.called(node) == "os.environ.setdefault":
            continue
        if setter is not module or getattr(node, "lineno", 0) < getattr(read, "lineno", 0):
            return True
    return False
