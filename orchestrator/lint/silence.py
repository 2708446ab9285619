"""Suppress findings by comments: `# orch: ignore[ORC101] reason`."""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from orchestrator.lint.source import Snippet

_SILENCE = re.compile(r"#\s*orch:\s*ignore(?:\[(?P<rules>[^\]]*)\])?")


@dataclass(frozen=True)
class Silence:
    """The rules that a comment at a line (from 1) of a snippet suppresses; without rules: all.

    A comment alone on its line applies to the next line of code.
    """

    line: int
    column: int
    rules: frozenset[str]
    covers: int


def silences(snippet: Snippet) -> list[Silence]:
    """Return every such comment of a snippet."""
    lines = snippet.code.split("\n")
    return [_read(lines, number, column, found) for number, column, found in _found(snippet)]


def _read(lines: list[str], number: int, column: int, found: re.Match[str]) -> Silence:
    words = re.split(r"[\s,]+", (found["rules"] or "").strip())
    covers = number
    if lines[number - 1].lstrip().startswith("#"):
        covers = next((n for n in range(number + 1, len(lines) + 1) if _is_code(lines[n - 1])), number)
    return Silence(number, column, frozenset(word for word in words if word), covers)


def _is_code(line: str) -> bool:
    return bool(line.strip()) and not line.lstrip().startswith("#")


def _found(snippet: Snippet) -> Iterator[tuple[int, int, re.Match[str]]]:
    if _SILENCE.search(snippet.code) is None:
        return
    for number, column, text in _comments(snippet):
        found = _SILENCE.search(text)
        if found:
            yield number, column + found.start(), found


def _comments(snippet: Snippet) -> Iterable[tuple[int, int, str]]:
    """Yield (line, column, text) of comments: in Python by its grammar, elsewhere from the first #."""
    if snippet.language == "python":
        try:
            tokens = list(tokenize.generate_tokens(io.StringIO(snippet.code).readline))
            return [(*t.start, t.string) for t in tokens if t.type == tokenize.COMMENT]
        except (tokenize.TokenError, SyntaxError):
            pass
    lines = enumerate(snippet.code.split("\n"), 1)
    return [(n, line.index("#"), line[line.index("#") :]) for n, line in lines if "#" in line]
