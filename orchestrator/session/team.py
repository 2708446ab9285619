"""What a team shares through its ledger store: leases, and locks on runs and machines."""

from __future__ import annotations

import getpass
import hashlib
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from orchestrator.ledger import Lease, Note, SharedBook, TeamLedger, read_note
from orchestrator.model import Progress, store_keys
from orchestrator.model.stores import Store, Stored
from orchestrator.storage import open_store
from orchestrator.storage.lock import StoreLock

_FILE = "ledger.jsonl"
_LEASE = re.compile(r"[a-z0-9][a-z0-9-]{0,60}-[0-9a-f]{6}")
_LOCK_SECONDS = 60.0
_WAIT_SECONDS = 3600.0

_held: dict[Path, list[StoreLock]] = {}
"""This process's team locks, by `.orch` folder; appending to a ledger there requires that they are held."""


@dataclass(frozen=True)
class Team:
    """`url`: the store of the ledgers. `state`: this project's `.orch`."""

    url: str
    state: Path

    @property
    def store(self) -> Store:
        return open_store(self.url)

    def new_lease(self, name: str) -> str:
        """Return the id of the profile's next lease. All computers return the same id until that lease is
        opened.
        """
        store, number = self.store, 0
        while True:
            digest = hashlib.sha256(f"{self.url}\n{name}\n{number}".encode()).hexdigest()[:6]
            lease = f"{name[:40].rstrip('-')}-{digest}"
            if store.head(key_of(lease)) is None:
                return lease
            number += 1

    def join(self, lease: str) -> None:
        """Mark the ledger of this lease as kept in the store."""
        folder = self.state / lease
        if read_note(folder) is None:
            Note(self.url, key_of(lease)).write(folder)

    def refresh(self) -> None:
        """Copy the ledgers that other clients wrote. Raises StorageError."""
        store = self.store
        for listed in store.list("ledgers/"):
            if lease := _lease_of(listed):
                self.join(lease)
                book_of(self.state / lease, store).update(listed)
                self._forget_key(lease)

    def _forget_key(self, lease: str) -> None:
        """Remove the keys of a machine that another client has deleted and confirmed gone."""
        keys = [self.state / lease / name for name in ("identity", "known_hosts")]
        if any(key.exists() for key in keys):
            known = ledger_of(self.state / lease)
            if known and not known.lease().open:
                for key in keys:
                    key.unlink(missing_ok=True)

    @contextmanager
    def lock(self, name: str, tell: Progress, what: str) -> Iterator[None]:
        """Hold a lock of the team in the block. Raises LockHeld, LockLost and StorageError.

        If the lock is lost, no ledger below this folder is written any more.
        """
        lock = StoreLock(self.store, f"locks/{name}.json", writer(), _LOCK_SECONDS)
        with lock.held(_WAIT_SECONDS, lambda owner: tell.say(f"{owner} {what}; waiting for it")):
            known = _held.setdefault(self.state, [])
            known.append(lock)
            try:
                yield
            finally:
                known.remove(lock)


KEY_ADVICE = "orch down {lease}    # deletes it from here; to use it from here, see docs/teams.md"


def is_key_elsewhere(identity: Path, lease: Lease) -> bool:
    """Whether the machine's key was created on another computer of the team and is not here."""
    return bool(lease.owner) and not identity.exists()


def key_elsewhere(lease: Lease, machine: str) -> str:
    return (
        f"The key of {machine} is on the computer that created it ({lease.owner}), not on this one: a team's "
        "ledger holds no keys."
    )


def ledger_of(folder: Path) -> TeamLedger | None:
    """Return the shared ledger of this lease; None if the ledger is a file on this computer."""
    note = read_note(folder)
    return TeamLedger(book_of(folder, open_store(note.url))) if note else None


def book_of(folder: Path, store: Store) -> SharedBook:
    note = read_note(folder)
    key = note.key if note else key_of(folder.name)
    return SharedBook(folder / _FILE, store, key, writer(), lambda: _require(folder.parent))


def key_of(lease: str) -> str:
    return f"{store_keys.ledger(lease.rpartition('-')[0], lease)}/{_FILE}"


def _lease_of(stored: Stored) -> str | None:
    """Return the lease of an object in the store; None if its name is not that of a ledger."""
    lease = Path(stored.key).parent.name
    sound = _LEASE.fullmatch(lease) is not None
    return lease if sound and stored.key == key_of(lease) else None


def _require(state: Path) -> None:
    for lock in _held.get(state, ()):
        lock.require()


def writer() -> str:
    """The name of this user and computer, as written into ledgers."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):
        name = str(os.getuid())
    return re.sub(r"[^A-Za-z0-9@._-]", "-", f"{name}@{os.uname().nodename}")[:100]


def on_this_computer(client: str) -> bool:
    """Whether the writer is a user of this computer, by the computer's name."""
    return client.rpartition("@")[2] == writer().rpartition("@")[2]
