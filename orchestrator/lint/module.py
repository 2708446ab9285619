"""Index one Python program text: its calls, names, scopes and the values bound to names."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cached_property

from orchestrator.lint.names import canonical, imported, modules_of
from orchestrator.lint.parse import Parsed, parse
from orchestrator.lint.source import Snippet

_SCOPES = (ast.Module, ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
_DEPTH = 12
Function = ast.FunctionDef | ast.AsyncFunctionDef


class Module:
    """A parsed Python snippet. Parsing never fails: text that is not Python is in `parsed.faults`."""

    def __init__(self, snippet: Snippet) -> None:
        self.snippet = snippet
        self.parsed: Parsed = parse(snippet.code, fragment=snippet.fragment)
        self.tree = self.parsed.tree
        self._parents: dict[int, ast.AST] = {}
        self._scopes: dict[int, ast.AST] = {}
        self._called: dict[int, str] = {}
        self.nodes = list(self._walk())
        self.calls = [node for node in self.nodes if isinstance(node, ast.Call)]
        self.imports = [node for node in self.nodes if isinstance(node, ast.Import | ast.ImportFrom)]
        self.aliases = imported(self.imports)
        self.functions = {node.name: node for node in self.nodes if isinstance(node, Function)}
        self.classes = {node.name: node for node in self.nodes if isinstance(node, ast.ClassDef)}

    def _walk(self) -> Iterator[ast.AST]:
        """Yield every node, in the order of the text."""
        todo: list[ast.AST] = [self.tree]
        while todo:
            node = todo.pop()
            yield node
            children = list(ast.iter_child_nodes(node))
            for child in children:
                self._parents[id(child)] = node
            todo.extend(reversed(children))

    # ------------------------------------------------------------ around a node

    def parent(self, node: ast.AST) -> ast.AST | None:
        return self._parents.get(id(node))

    def above(self, node: ast.AST) -> Iterator[ast.AST]:
        """Yield the nodes that enclose `node`, nearest first."""
        found = self.parent(node)
        while found is not None:
            yield found
            found = self.parent(found)

    def scope(self, node: ast.AST) -> ast.AST:
        """Return the function, class or module that contains `node`."""
        found = self._scopes.get(id(node))
        if found is None:
            found = next((each for each in self.above(node) if isinstance(each, _SCOPES)), self.tree)
            self._scopes[id(node)] = found
        return found

    def statement(self, node: ast.AST) -> ast.stmt | None:
        if isinstance(node, ast.stmt):
            return node
        return next((each for each in self.above(node) if isinstance(each, ast.stmt)), None)

    @property
    def statements(self) -> Iterator[tuple[int, int]]:
        """Yield (last line, first line) of each multi-line statement that contains no other one."""
        for node in self.nodes:
            if not isinstance(node, ast.stmt) or isinstance(node, ast.Match) or hasattr(node, "body"):
                continue
            if node.end_lineno and node.end_lineno > node.lineno:
                yield node.end_lineno, node.lineno

    def top_level(self, node: ast.AST) -> bool:
        """Whether `node` runs when the module is loaded, rather than when a function is called."""
        return isinstance(self.scope(node), ast.Module)

    # ------------------------------------------------------------ what names mean

    def dotted(self, node: ast.AST | None, depth: int = _DEPTH) -> str:
        """Return the canonical dotted name of an expression, such as "keras.Sequential"; "" if unknown.

        A name that is not bound here is assumed to be a builtin.
        """
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name):
            return ""
        base = self._root(node, depth)
        return canonical(".".join([base, *reversed(parts)])) if base else ""

    def _root(self, name: ast.Name, depth: int) -> str:
        bound = self.bound(name)
        if not bound:
            return self.aliases.get(name.id) or ("" if name.id in self._defined else name.id)
        only = bound[0] if len(bound) == 1 else None
        if depth and isinstance(only, ast.Attribute | ast.Name):
            return self.dotted(only, depth - 1)
        return self.aliases.get(name.id, "")

    def called(self, node: ast.AST | None) -> str:
        """Return the dotted name of the callee; "" if the node is no call, or its callee is unknown."""
        if not isinstance(node, ast.Call):
            return ""
        name = self._called.get(id(node))
        if name is None:
            name = self._called[id(node)] = self.dotted(node.func)
        return name

    @cached_property
    def _defined(self) -> set[str]:
        names = {node.name for node in self.nodes if isinstance(node, Function | ast.ClassDef)}
        names |= {node.arg for node in self.nodes if isinstance(node, ast.arg)}
        return names | {node.id for node in self.nodes if _stored(node)}  # type: ignore[attr-defined]

    @cached_property
    def binds(self) -> set[str]:
        """Return every name that is bound here, in any scope."""
        handlers = {node.name for node in self.nodes if isinstance(node, ast.ExceptHandler) and node.name}
        return self._defined | set(self.aliases) | handlers

    # ------------------------------------------------------------ what names hold

    @cached_property
    def _bindings(self) -> dict[tuple[int, str], list[ast.expr]]:
        found: dict[tuple[int, str], list[ast.expr]] = {}
        for node in self.nodes:
            for name, value in _bound_by(node):
                scope = node if isinstance(node, Function | ast.Lambda) else self.scope(node)
                found.setdefault((id(scope), name), []).append(value)
        return found

    def bound(self, name: ast.Name) -> list[ast.expr]:
        """Return the expressions that may be the value of `name` there, from the nearest scope that binds
        it.
        """
        scope: ast.AST | None = self.scope(name)
        while scope is not None:
            if (id(scope), name.id) in self._bindings:
                return self._reaching(self._bindings[id(scope), name.id], name, scope)
            scope = None if scope is self.tree else self.scope(scope)
        return []

    def _reaching(self, values: list[ast.expr], name: ast.Name, scope: ast.AST) -> list[ast.expr]:
        """Return those of several values of one scope that are not overwritten before a use below them."""
        if len(values) < 2 or self.scope(name) is not scope:
            return values
        own = self.statement(name)
        at = (name.lineno, name.col_offset)
        above = [v for v in values if self.statement(v) is not own and (v.lineno, v.col_offset) < at]
        certain = [n for n, v in enumerate(above) if self._unconditional(v, scope)]
        return (above[certain[-1] :] if certain else above) or values

    def _unconditional(self, value: ast.expr, scope: ast.AST) -> bool:
        statement = self.statement(value)
        return statement is scope or (statement is not None and self.parent(statement) is scope)

    def value(self, node: ast.AST | None) -> ast.AST | None:
        """Return an expression's value, with a name resolved, if only one expression is assigned to it."""
        for _ in range(_DEPTH):
            if not isinstance(node, ast.Name):
                break
            bound = self.bound(node)
            if len(bound) != 1:
                break
            node = bound[0]
        return node

    @cached_property
    def _loads(self) -> dict[str, list[ast.Name]]:
        found: dict[str, list[ast.Name]] = {}
        for node in self.nodes:
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                found.setdefault(node.id, []).append(node)
        return found

    def loads(self, name: str) -> list[ast.Name]:
        """Return where `name` is read, in any scope."""
        return self._loads.get(name, [])

    @cached_property
    def loaded(self) -> set[str]:
        """Return every module that an import here may load, relative ones with their dots."""
        return {name for statement in self.imports for name in modules_of(statement)}

    def imports_any(self, *roots: str) -> bool:
        return any(name.split(".")[0] in roots for name in self.loaded)


def _stored(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store | ast.Del)


def _bound_by(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """Yield (name, value) of an assignment, a default of a parameter, a `with … as`."""
    if isinstance(node, ast.Assign):
        for target in node.targets:
            yield from _pairs(target, node.value)
    elif isinstance(node, ast.AnnAssign | ast.NamedExpr | ast.AugAssign):
        if isinstance(node.target, ast.Name) and node.value is not None:
            yield node.target.id, node.value
    elif isinstance(node, ast.withitem) and isinstance(node.optional_vars, ast.Name):
        yield node.optional_vars.id, node.context_expr
    elif isinstance(node, Function | ast.Lambda):
        yield from _defaults(node.args)


def _pairs(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    if isinstance(target, ast.Name):
        yield target.id, value
        return
    if isinstance(target, ast.Tuple | ast.List) and isinstance(value, ast.Tuple | ast.List):
        pairs = zip(target.elts, value.elts, strict=False) if len(target.elts) == len(value.elts) else ()
        for left, right in pairs:
            yield from _pairs(left, right)


def _defaults(arguments: ast.arguments) -> Iterator[tuple[str, ast.expr]]:
    positional = [*arguments.posonlyargs, *arguments.args]
    given = positional[len(positional) - len(arguments.defaults) :]
    for argument, default in zip(given, arguments.defaults, strict=True):
        yield argument.arg, default
    for argument, kw_default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        if kw_default is not None:
            yield argument.arg, kw_default
