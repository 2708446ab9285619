"""Compute the checksum of content chunk by chunk: SHA-256, MD5 or CRC32C."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Protocol

from orchestrator.errors import StorageError, StorageFault


class _Hash(Protocol):
    def update(self, data: bytes, /) -> object: ...
    def digest(self) -> bytes: ...


class Checker:
    """Compare content with a checksum in the form of Stored; with "" it only counts bytes."""

    def __init__(self, checksum: str) -> None:
        self._kind, _, self._expected = checksum.partition(":")
        self._hash = _KINDS[self._kind]() if self._kind in _KINDS else None
        self.size = 0

    def update(self, chunk: bytes) -> None:
        self.size += len(chunk)
        if self._hash is not None:
            self._hash.update(chunk)

    def wrong(self) -> str | None:
        """Return a sentence on what is wrong with the content; None if it is correct or has no checksum."""
        found = self._hash.digest().hex() if self._hash is not None else self._expected
        if found == self._expected:
            return None
        return f"its {self._kind} is {found}, not {self._expected}."


def _crc32c() -> _Hash:
    try:
        import google_crc32c
    except ImportError as error:
        raise StorageError(
            StorageFault.UNKNOWN,
            "An object has a CRC32C, and the library that computes it is not installed.",
            next_command="pip install google-crc32c",
        ) from error
    made: _Hash = google_crc32c.Checksum()  # type: ignore[no-untyped-call]
    return made


def _md5() -> _Hash:
    return hashlib.md5(usedforsecurity=False)


_KINDS: dict[str, Callable[[], _Hash]] = {"sha256": hashlib.sha256, "md5": _md5, "crc32c": _crc32c}
