"""Parse text to a syntax tree. Parts that are not Python are returned as faults; nothing is raised."""

from __future__ import annotations

import ast
import re
import textwrap
import warnings
from dataclasses import dataclass

from orchestrator.lint.magics import without_magics
from orchestrator.model.syntax import tree_of

_MAX_REPAIRS = 20
_REQUIREMENT = re.compile(
    r"^\s*[A-Za-z0-9][\w.-]*(\[[\w,\s-]+\])?\s*(===?|~=|>=|<=)\s*\d+(\.[\w*]+)*\s*(#.*)?$"
)
_PYTHON_2 = re.compile(
    r"^\s*(print\s+[^(=\s]|exec\s+['\"]|raise\s+\w+\s*,|except\s+[\w.]+\s*,\s*\w+\s*:)", re.M
)


@dataclass(frozen=True)
class Fault:
    """A place that is not Python: line from 1, column from 0."""

    line: int
    column: int
    reason: str
    python_2: bool = False


@dataclass(frozen=True)
class Parsed:
    """The part of a text that is Python, and the part that is not; `requirements` are lines (from 1) that
    name packages.
    """

    tree: ast.Module
    code: str
    faults: tuple[Fault, ...] = ()
    requirements: tuple[int, ...] = ()


def parse(text: str, *, fragment: bool = False) -> Parsed:
    """Parse `text`. A fragment may contain prompts, IPython's magics and lines of requirements.

    If the text does not parse, the statements that do are kept, at their own lines.
    """
    code = text.removeprefix("\ufeff")
    required: list[int] = []
    if fragment:
        code, required = _plain(code)
    faults: list[Fault] = []
    for _ in range(_MAX_REPAIRS):
        tree, fault = _try(code)
        if tree is not None:
            return Parsed(tree, code, tuple(faults), tuple(required))
        assert fault is not None
        faults = faults or [fault]
        shorter = _without_statement(code, fault.line)
        if shorter == code:
            break
        code = shorter
    return Parsed(ast.Module([], []), code, tuple(faults), tuple(required))


def _try(code: str) -> tuple[ast.Module | None, Fault | None]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return tree_of(code), None
    except SyntaxError as error:
        old = _PYTHON_2.search(code) is not None
        reason = str(error.msg)
        return None, Fault(error.lineno or 1, max((error.offset or 1) - 1, 0), reason, old)
    except (RecursionError, MemoryError, ValueError) as error:
        return None, Fault(1, 0, str(error) or "it is nested too deeply")


def _plain(code: str) -> tuple[str, list[int]]:
    """Return a fragment without IPython's syntax, prompts and lines of requirements."""
    lines = textwrap.dedent(code).split("\n")
    if any(line.startswith(">>> ") for line in lines):
        lines = [line[4:] if line.startswith((">>> ", "... ")) else "" for line in lines]
    required = [number for number, line in enumerate(lines, 1) if _REQUIREMENT.match(line)]
    lines = ["" if number in required else line for number, line in enumerate(lines, 1)]
    if lines and lines[0].startswith("%%") and not lines[0].startswith(("%%time", "%%capture")):
        lines = [""] * len(lines)
    return "\n".join(without_magics(lines)), required


def _without_statement(code: str, line: int) -> str:
    """Return `code` with the top-level statement around `line` blanked."""
    lines = code.split("\n")
    at = min(max(line, 1), len(lines)) - 1
    while at > 0 and not _begins(lines[at]):
        at -= 1
    end = at + 1
    while end < len(lines) and not _begins(lines[end]):
        end += 1
    return "\n".join([*lines[:at], *([""] * (end - at)), *lines[end:]])


def _begins(line: str) -> bool:
    return bool(line) and not line[0].isspace() and line[0] not in ")]}#"
