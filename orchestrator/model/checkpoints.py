"""Complete copies of a run's checkpoints, as its machine lists them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

from .answers import Between, Count, Like, Most
from .trees import Entry

MOST_FILES = 10_000
"""The most files of one copy."""


@dataclass(frozen=True)
class SnapshotFile:
    """A file by its path in the working folder; `size` in bytes, `digest` the SHA-256 of its content."""

    path: Annotated[str, Most(4096)]
    size: Count
    digest: Annotated[str, Like("[0-9a-f]{64}")]
    mode: Annotated[int, Between(0, 0o777)]

    def entry(self) -> Entry:
        return Entry(self.path, "file", self.size, self.mode, self.digest)


@dataclass(frozen=True)
class Snapshot:
    """Copy number `seq` of an attempt, from 1, made at `taken_at` (Unix seconds, the machine's clock)."""

    seq: Annotated[int, Between(1, 999_999)]
    taken_at: Annotated[float, Between(0, 1 << 40)]
    files: Annotated[tuple[SnapshotFile, ...], Most(MOST_FILES)]


class HindranceKind(StrEnum):
    """Why a copy that is due cannot be taken: a file is open for writing, or not whole; the machine's disk is
    nearly full; or the checkpoints are more than MOST_FILES files."""

    OPEN = "open"
    INCOMPLETE = "incomplete"
    ROOM = "room"
    MANY = "many"


@dataclass(frozen=True)
class Hindrance:
    """Why no copy can be taken. `path`: in the working folder, "" if it is not one file; `since`: Unix
    seconds.
    """

    kind: HindranceKind
    path: Annotated[str, Most(4096)]
    since: Annotated[float, Between(0, 1 << 40)]


@dataclass(frozen=True)
class Snapshots:
    """The copies of an attempt, the newest last."""

    snapshots: Annotated[tuple[Snapshot, ...], Most(100)]
    hindrance: Hindrance | None = None
