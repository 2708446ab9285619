"""The byte offset up to which a run's output was shown."""

from __future__ import annotations

from pathlib import Path

from orchestrator.hosts.atomic import atomic_write
from orchestrator.ledger import Ledger
from orchestrator.model.answers import Malformed
from orchestrator.model.files import regular_bytes


class Bookmark:
    """The byte offset up to which a run's output was shown to the project's user; stored in a file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.offset = _read(path)

    def advance(self, count: int) -> None:
        self.offset += count

    def save(self) -> None:
        atomic_write(self._path, str(self.offset).encode())

    def forget(self) -> None:
        """Set the offset to 0, because the output starts again."""
        self._path.unlink(missing_ok=True)
        self.offset = 0


def _read(path: Path) -> int:
    """Return the stored offset; 0 if the file is damaged."""
    try:
        text = regular_bytes(path, 20)
    except (FileNotFoundError, Malformed):
        return 0
    return int(text) if text.isdigit() and len(text) < 20 else 0


def bookmark_of(ledger: Ledger, run_id: str) -> Bookmark:
    """Return the bookmark, a file beside the ledger of the run's lease."""
    return Bookmark(ledger.path.parent / f"read-{run_id}")
