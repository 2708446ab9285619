"""A ledger that several computers write: an object of a store, and a copy of it on this computer.

The object holds the lines of a ledger's file. Each append replaces the object, on condition that its version
is the one that was read. So no two computers write the same position: a client that lost the race first reads
what it missed. The copy is used while the store does not answer, and saves reading what did not change.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from orchestrator.errors import Busy, Changed, LocalError, Missing, StorageError
from orchestrator.ledger.lines import Contents, Reader, next_line
from orchestrator.model.stores import Store, Stored
from orchestrator.storage.placing import placed

NOTE = "shared.json"
"""The note beside the copy: which object it is a copy of, and of which version."""
_MOST_NOTE = 10_000


@dataclass(frozen=True)
class Note:
    """Which object the copy is a copy of. `url` and `key` name the object; `version` is the version of
    the copy whose SHA-256 is `sha256`, or "".
    """

    url: str
    key: str
    version: str = ""
    sha256: str = ""

    def write(self, folder: Path) -> None:
        _place(folder / NOTE, json.dumps(vars(self)).encode())


def read_note(folder: Path) -> Note | None:
    """Return the note of a folder; None if its ledger is not shared, or the note cannot be read."""
    with suppress(OSError, ValueError, RecursionError):
        with open(folder / NOTE, "rb") as file:
            value = json.loads(file.read(_MOST_NOTE))
        match value:
            case {"url": str(url), "key": str(key), "version": str(version), "sha256": str(digest)}:
                return Note(url, key, version, digest)
    return None


class SharedBook:
    """The lines of one shared ledger. `path`: the local copy, in a folder of its own.

    `writer` names this client in every line. `require` is called before each write: it raises if a lock that
    the caller relies on was lost.
    """

    def __init__(
        self, path: Path, store: Store, key: str, writer: str, require: Callable[[], None] = lambda: None
    ) -> None:
        self.path, self._store, self._key, self._writer = path, store, key, writer
        self._require = require
        self._reader = Reader()

    def append(self, event: str, data: dict[str, Any], *, first: bool) -> None:
        """Write one line after all that are there. With `first`, raise Busy if there is any.

        If this raises StorageError, the line may have been written; the next reader of the ledger sees
        whether it was.
        """
        with self._locked():
            text, version = self._known()
            while True:
                self._require()
                if first and version:
                    raise Busy(
                        f"Another client opened {self.path.parent.name} at the same moment.",
                        exists="This call created nothing.",
                        next_command="orch status    # then the same command again",
                    )
                ours = {"by": self._writer, "nonce": secrets.token_hex(8)}
                known = self._reader.contents(text)
                content = text + next_line(text, known, self.path, event, {**data, **ours})
                try:
                    stored = self._store.put_if(self._key, content, version or None)
                except Changed:
                    missed = text
                    text, version = self._read()
                    text = text if version else missed  # the object was removed: write it again
                    continue
                self._keep(content, stored.version)
                return

    def contents(self) -> Contents:
        """Return the lines of the object. If the store does not answer, return those of the copy, with
        the problem.
        """
        try:
            with self._locked():
                head = self._store.head(self._key)
                text = self._known()[0] if head and self._is_known(head) else self._read()[0]
                copy = self._copy()
        except StorageError as error:
            return self.copied(error.message)
        except OSError as error:
            return self.copied(error.strerror or str(error))
        if copy and not text:
            return self.copied(f"{self._store.url} has no object {self._key} any more.")
        return self._reader.contents(text)

    def update(self, listed: Stored) -> None:
        """Read the object, unless the copy already has the listed version."""
        with self._locked():
            if not self._is_known(listed):
                self._read()

    def copied(self, problem: str) -> Contents:
        """Return the lines of the copy without asking the store. `problem`: why the store is not asked."""
        return replace(self._reader.contents(self._copy()), problem=problem)

    def _is_known(self, stored: Stored) -> bool:
        return self._known()[1] == stored.version

    def _known(self) -> tuple[bytes, str]:
        """Return the copy and its version; (b"", "") if the copy is not the one that was noted."""
        note, text = read_note(self.path.parent), self._copy()
        same = note is not None and (note.url, note.key) == (self._store.url, self._key)
        if note and same and note.version and note.sha256 == hashlib.sha256(text).hexdigest():
            return text, note.version
        return b"", ""

    def _read(self) -> tuple[bytes, str]:
        while True:
            head = self._store.head(self._key)
            if head is None:
                return b"", ""
            try:
                text = self._store.get(self._key, head.version)
            except (Changed, Missing):
                continue
            self._keep(text, head.version)
            return text, head.version

    def _keep(self, text: bytes, version: str) -> None:
        """Save the copy, then its note: a copy without a matching note is read again. If this computer
        has no room, nothing is saved.
        """
        with suppress(OSError, LocalError):
            _place(self.path, text)
            digest = hashlib.sha256(text).hexdigest()
            Note(self._store.url, self._key, version, digest).write(self.path.parent)

    def _copy(self) -> bytes:
        with suppress(OSError):
            return self.path.read_bytes()
        return b""

    @contextmanager
    def _locked(self) -> Iterator[None]:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(self.path.parent / "shared.lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)


def _place(path: Path, content: bytes) -> None:
    with placed(path) as file:
        file.write(content)
