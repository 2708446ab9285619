"""How far a project's user has read a run's output."""

from __future__ import annotations

from pathlib import Path

from orchestrator.hosts.atomic import atomic_write
from orchestrator.ledger import Ledger
from orchestrator.model.answers import Malformed
from orchestrator.model.files import regular_bytes


class Bookmark:
    """How far a project's user has read a run's output, in bytes; kept across processes."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.offset = _read(path)

    def advance(self, count: int) -> None:
        self.offset += count

    def save(self) -> None:
        atomic_write(self._path, str(self.offset).encode())

    def forget(self) -> None:
        """Start again from the beginning, because the output does."""
        self._path.unlink(missing_ok=True)
        self.offset = 0


def _read(path: Path) -> int:
    """Read the bookmark. A damaged one counts as 0."""
    try:
        text = regular_bytes(path, 20)
    except (FileNotFoundError, Malformed):
        return 0
    return int(text) if text.isdigit() and len(text) < 20 else 0


def bookmark_of(ledger: Ledger, run_id: str) -> Bookmark:
    """Return the bookmark, a file beside the ledger of the run's lease."""
    return Bookmark(ledger.path.parent / f"read-{run_id}")
