"""The file of a ledger: lines (see ledger.lines), fsynced, never rewritten."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from orchestrator.ledger.lines import Contents, Event, Reader, next_line


class Journal:
    """The file. Every append is flushed to the disk before it returns."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._reader = Reader()

    def append(self, event: str, **data: Any) -> None:
        """Write one line after all that are there.

        Raise OSError if the line cannot be written, and UsageError if a later version of orch wrote the file.
        """
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self._locked() as handle:
            text = os.pread(handle, os.fstat(handle).st_size, 0)
            _write(handle, next_line(text, self._reader.contents(text), self.path, event, data))
            os.fsync(handle)

    def contents(self) -> Contents:
        try:
            return self._reader.contents(self.path.read_bytes())
        except FileNotFoundError:
            return Contents()
        except OSError as error:
            return Contents(problem=error.strerror or str(error))

    def events(self) -> list[Event]:
        """Return every line that can be read, in order."""
        return list(self.contents().events)

    @contextmanager
    def _locked(self) -> Iterator[int]:
        handle = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield handle
        finally:
            os.close(handle)


def _write(handle: int, text: bytes) -> None:
    """Write all of `text`, or raise OSError: a disk that fills up writes only a part at first."""
    while text:
        text = text[os.write(handle, text) :]
