"""The journal of one lease: append-only lines, fsynced, and what they add up to.

`.orch/<lease>/ledger.jsonl` holds one JSON object a line. An event that announces an effect is written before
the effect happens, so that a killed `orch` finds what it was about to do. Losing the file loses convenience
only: machines are found by their labels.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from orchestrator.ledger.book import Note, SharedBook, read_note
from orchestrator.ledger.draft import FIRST, Draft, Retried, Try
from orchestrator.ledger.events import LedgerEvent, Ran, encode
from orchestrator.ledger.folding import fold
from orchestrator.ledger.holding import Holding
from orchestrator.ledger.journal import Journal
from orchestrator.ledger.lease import Attempt, Lease, LeasedRun
from orchestrator.ledger.lines import VERSION, Contents, Event

__all__ = [
    "FIRST",
    "VERSION",
    "Attempt",
    "Contents",
    "Draft",
    "Event",
    "Holding",
    "Lease",
    "LeasedRun",
    "Ledger",
    "LedgerEvent",
    "Note",
    "Ran",
    "Retried",
    "SharedBook",
    "TeamLedger",
    "Try",
    "fold",
    "read_note",
]


class Ledger(Journal):
    """The file, with typed events, and the lease that they add up to."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._folded: tuple[tuple[Event, ...], Lease] | None = None

    def record(self, event: LedgerEvent) -> None:
        """Write one event. Raises what `append` raises."""
        self.append(event.kind, **encode(event))

    def lease(self) -> Lease:
        """Return the lease that the readable events add up to. Never raises because of damage."""
        return self.lease_in(self.contents())

    def lease_in(self, known: Contents) -> Lease:
        """Return the lease that these contents of a ledger add up to."""
        folded = self._folded  # of the same events, which a command reads many times
        if folded is None or folded[0] is not known.events:
            folded = self._folded = known.events, fold(known.events, self.path.parent.name)
        lease = folded[1]
        return lease if known.whole else replace(lease, whole=False, problem=known.problem)


class TeamLedger(Ledger):
    """A ledger that several computers write."""

    def __init__(self, book: SharedBook) -> None:
        super().__init__(book.path)
        self._book = book

    def append(self, event: str, **data: Any) -> None:
        """Write one line to the store and to the local copy. Only one client can write the opening line.

        Raises StorageError, LocalError and Busy in addition to what the ledger of one computer raises.
        """
        self._book.append(event, data, first=event == "lease.opened")

    def contents(self) -> Contents:
        return self._book.contents()

    def lease_in(self, known: Contents) -> Lease:
        """Return the lease, with the profile's path translated to the corresponding file in this folder."""
        found = super().lease_in(known)
        if not isinstance(path := found.profile.get("path"), str):
            return found
        return replace(found, profile={**found.profile, "path": _in_folder(path, self.path.parents[2])})


def _in_folder(path: str, root: Path) -> str:
    """Return `path` if that file exists; else the file below `root` with the most trailing parts in
    common; else `path`.
    """
    parts = Path(path).parts
    tails = (root.joinpath(*parts[first:]) for first in range(1, len(parts)))
    return path if Path(path).is_file() else str(next((tail for tail in tails if tail.is_file()), path))
