"""Trees of files as facts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from .answers import Between, Count, Like


@dataclass(frozen=True)
class Entry:
    """One path of a tree. `kind` is file, dir or link; `digest` of a file's content; `target` of a link."""

    path: str
    kind: Annotated[str, Like("[a-z]{1,20}")]
    size: Count = 0
    mode: Annotated[int, Between(0, 0o7777)] = 0
    digest: Annotated[str, Like("[0-9a-f]{64}|")] = ""
    target: str = ""


@dataclass(frozen=True)
class Manifest:
    """A tree as facts, sorted by path. `digest` covers every field of every entry."""

    entries: tuple[Entry, ...]
    digest: str


@dataclass(frozen=True)
class TreeLink:
    """A synced tree at `source` (absolute) appears in a run's working folder at `target`.

    `target` is relative ("." for the code itself) or absolute; `copied` trees are private to the run,
    others share their bytes.
    """

    source: str
    target: str
    copied: bool = False
