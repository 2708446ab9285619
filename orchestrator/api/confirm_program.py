"""A recorded command line, understood: Python's program, or something else that starts one."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_PLAIN = re.compile(r"python(\d+(\.\d+)?)?")
_HARMLESS = frozenset(("-u", "-B", "-s"))


@dataclass(frozen=True)
class Program:
    """`python PROGRAM ARGUMENTS…`, or with `module`, `python -m PROGRAM ARGUMENTS…`."""

    name: str
    arguments: tuple[str, ...]
    module: bool


def program_of(argv: Sequence[str]) -> Program | None:
    """The program of a command line, None where it is not simply Python's."""
    if not argv or not _PLAIN.fullmatch(Path(argv[0]).name):
        return None
    words = list(argv[1:])
    while words and words[0] in _HARMLESS:
        words.pop(0)
    if words[:1] == ["-m"] and len(words) > 1:
        return Program(words[1], tuple(words[2:]), True)
    if not words or words[0].startswith("-"):
        return None
    return Program(words[0], tuple(words[1:]), False)
