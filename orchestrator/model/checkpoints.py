"""Whole copies of the checkpoints of a run, as its machine lists them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from .answers import Between, Count, Like, Most
from .trees import Entry

MOST_FILES = 10_000
"""Files of one copy, at most."""


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


@dataclass(frozen=True)
class Snapshots:
    """The newest last."""

    snapshots: Annotated[tuple[Snapshot, ...], Most(100)]
