"""The results of checks: rules as data, hits inside a text, findings for people and tools."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orchestrator.lint.source import Snippet


class Severity(StrEnum):
    """error: the run fails on another machine, or trains on other data; warning: results can differ; info: a
    hint.
    """

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


@dataclass(frozen=True)
class Rule:
    """One kind of hazard. `sees`: the code that it finds; `why`: the symptom on another machine; `fix`: what
    to do instead. `of_imports`: it is reported in modules that a checked script imports, too.
    """

    id: str
    name: str
    severity: Severity
    sees: str
    why: str
    fix: str
    of_imports: bool = False


@dataclass(frozen=True)
class Hit:
    """A hit of a rule in a snippet, at a line (from 1) and column (from 0) of the snippet's own code."""

    rule: Rule
    snippet: Snippet
    line: int
    column: int
    message: str
    severity: Severity
    fix: str


@dataclass(frozen=True, order=True)
class Finding:
    """A hazard at a place in a file: line and column from 1; in a notebook with its `cell`, from 1."""

    path: str
    cell: int
    line: int
    column: int
    rule: str
    name: str
    severity: Severity
    message: str
    why: str
    fix: str

    @property
    def place(self) -> str:
        """Return path:line:column, with the cell of a notebook in between."""
        cell = f":cell {self.cell}" if self.cell else ""
        return f"{self.path}{cell}:{self.line}:{self.column}"


def hit(
    rule: Rule,
    snippet: Snippet,
    node: ast.AST,
    message: str,
    *,
    severity: Severity | None = None,
    fix: str | None = None,
) -> Hit:
    """Return a hit of `rule` at `node` of a Python snippet."""
    line, column = getattr(node, "lineno", 1), getattr(node, "col_offset", 0)
    return Hit(rule, snippet, line, column, message, severity or rule.severity, fix or rule.fix)


def text_hit(
    rule: Rule,
    snippet: Snippet,
    line: int,
    column: int,
    message: str,
    *,
    severity: Severity | None = None,
    fix: str | None = None,
) -> Hit:
    """Return a hit of `rule` at a line (from 1) and column (from 0) of any snippet."""
    return Hit(rule, snippet, line, column, message, severity or rule.severity, fix or rule.fix)
