"""How far a folder's user has read a run's output."""

from __future__ import annotations

from pathlib import Path

from orchestrator.hosts.atomic import atomic_write
from orchestrator.ledger import Ledger
from orchestrator.model.answers import Malformed
from orchestrator.model.files import regular_bytes


class Bookmark:
    """How far this folder's user has read a run's output, in bytes; survives this process."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.offset = _read(path)

    def advance(self, count: int) -> None:
        self.offset += count

    def save(self) -> None:
        atomic_write(self._path, str(self.offset).encode())

    def forget(self) -> None:
        """The output begins again: nothing of it was read."""
        self._path.unlink(missing_ok=True)
        self.offset = 0


def _read(path: Path) -> int:
    """A bookmark that is damaged tells nothing: the output begins anew."""
    try:
        text = regular_bytes(path, 20)
    except (FileNotFoundError, Malformed):
        return 0
    return int(text) if text.isdigit() and len(text) < 20 else 0


def bookmark_of(ledger: Ledger, run_id: str) -> Bookmark:
    """Kept beside the ledger of the lease that the run is of."""
    return Bookmark(ledger.path.parent / f"read-{run_id}")
