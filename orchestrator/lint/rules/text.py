"""ORC901-904: texts that are not programs, names without an import, suppressions without effect."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from orchestrator.lint.module import Module
from orchestrator.lint.registry import Project, module_check, register, snippet_check
from orchestrator.lint.rule import Hit, Rule, Severity, hit, text_hit
from orchestrator.lint.source import Snippet

NO_PYTHON = Rule(
    "ORC901",
    "not-python",
    Severity.ERROR,
    "Python that does not parse",
    "It cannot run on any machine with Python 3; code that does not parse is not checked.",
    "Correct the line.",
)
UNREADABLE = Rule(
    "ORC902",
    "unreadable",
    Severity.WARNING,
    "a file that is not text, or no notebook",
    "It was not checked.",
    "Save it as UTF-8, or exclude it.",
)
NOT_IMPORTED = Rule(
    "ORC903",
    "not-imported",
    Severity.WARNING,
    "a well-known module is used but never imported",
    "It works only if other code imported it first, as in a notebook; otherwise it is a NameError.",
    "Import it.",
)
UNKNOWN_SILENCE = Rule(
    "ORC904",
    "unknown-silence",
    Severity.WARNING,
    "`# orch: ignore[…]` names a rule that does not exist",
    "The comment suppresses nothing.",
    "Name a rule of docs/lint.md, such as ORC101 or absolute-path.",
)
register([UNKNOWN_SILENCE])

_KNOWN = {
    "os",
    "sys",
    "np",
    "tf",
    "keras",
    "pd",
    "random",
    "glob",
    "json",
    "re",
    "time",
    "math",
    "plt",
    "pathlib",
}


@module_check(NO_PYTHON)
def check_python(module: Module) -> Iterator[Hit]:
    fragment = module.snippet.fragment
    for fault in module.parsed.faults[:1]:
        said = "this is Python 2" if fault.python_2 else f"this is not Python: {fault.reason}"
        severity = Severity.WARNING if fragment else Severity.ERROR
        line = min(fault.line, module.snippet.code.count("\n") + 1)
        yield text_hit(NO_PYTHON, module.snippet, line, fault.column, said, severity=severity)


@snippet_check(UNREADABLE)
def check_readable(snippet: Snippet, _: Project) -> Iterator[Hit]:
    if snippet.language == "unreadable":
        yield text_hit(UNREADABLE, snippet, 1, 0, snippet.code)


@module_check(NOT_IMPORTED)
def check_imported(module: Module) -> Iterator[Hit]:
    """Check only texts that import something, without `from x import *`."""
    if not module.imports or any(alias.name == "*" for each in module.imports for alias in each.names):
        return
    told: set[str] = set()
    for node in module.nodes:
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            name = node.value.id
            if name in _KNOWN and name not in module.binds and name not in told:
                told.add(name)
                yield hit(NOT_IMPORTED, module.snippet, node, f"{name} is not imported")
