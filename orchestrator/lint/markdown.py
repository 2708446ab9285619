"""Extract the fenced code blocks of a Markdown text, and find which of them run as one program."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

_FENCE = re.compile(r"^(?P<indent>\s*(?:>\s?)*)(?P<fence>`{3,}|~{3,})\s*\{?\.?(?P<language>[\w+-]*)")
_IMPORT = re.compile(r"^(?:import|from)\s+[\w.]+.*$", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """One fenced block; `line` is where its code begins in the file, `indent` was removed from each line."""

    language: str
    code: str
    line: int
    indent: int


def blocks(text: str) -> list[Block]:
    """Return every fenced block; an unclosed one extends to the end."""
    found: list[Block] = []
    lines = text.split("\n")
    number = 0
    while number < len(lines):
        opening = _FENCE.match(lines[number])
        number += 1
        if not opening:
            continue
        begin = number
        closing = re.compile(rf"^\s*(?:>\s?)*{re.escape(opening['fence'])}+\s*$")
        while number < len(lines) and not closing.match(lines[number]):
            number += 1
        indent = len(opening["indent"])
        code = "\n".join(_cut(line, indent) for line in lines[begin:number])
        found.append(Block(opening["language"].lower(), code, begin + 1, indent))
        number += 1
    return found


def _cut(line: str, indent: int) -> str:
    head = line[:indent]
    return line[indent:] if not head.strip(" \t>") else line


def groups(found: Iterable[Block]) -> Iterator[list[Block]]:
    """Group blocks of one language that continue where the one before ended.

    A block that repeats an import begins a new group, and so does every block that is not Python: a
    standalone example has its own imports.
    """
    current: list[Block] = []
    imported: set[str] = set()
    for block in found:
        own = {line.strip() for line in _IMPORT.findall(block.code)}
        goes_on = current and block.language == current[0].language and "py" in block.language
        if goes_on and not own & imported:
            current.append(block)
            imported |= own
            continue
        if current:
            yield current
        current, imported = [block], own
    if current:
        yield current
