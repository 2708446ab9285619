"""The protocol Store, and what crosses it: objects by key, whole or absent, with versions and checksums."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Protocol

LARGEST_GET = 64 << 20
"""Bytes that `get` returns at most; larger objects are fetched into a file."""


@dataclass(frozen=True)
class Stored:
    """One object as its store lists it. `key` is relative to the store's url, "/"-separated.

    `version` changes with every write: a generation, a version id, an ETag, or what a file system knows.
    `checksum` is "crc32c:<hex>", "sha256:<hex>" or "md5:<hex>" of the content, "" where the store knows none.
    """

    key: str
    size: int
    version: str
    checksum: str = ""


@dataclass(frozen=True)
class Link:
    """A GET of one object without credentials, until `expires`. A secret: never in a ledger, log or argv."""

    url: str
    headers: Mapping[str, str]
    expires: datetime


@dataclass(frozen=True)
class Grant:
    """A form POST that uploads objects whose whole name begins with `prefix`, until `expires`. A secret.

    `url` takes multipart/form-data: `fields` as they are, "key" with the object's name, "file" last.
    """

    url: str
    fields: Mapping[str, str]
    prefix: str
    expires: datetime


class Store(Protocol):
    """Objects under one url. Raises StorageError, or LocalError for a file of this computer; nothing else.

    Every key is checked, those of a listing too. Every method may be called again after any error, and
    after its caller was killed at any point.
    """

    @property
    def url(self) -> str:
        """ "s3://bucket/prefix", "gs://bucket/prefix", "file:///folder" or "memory://name"."""
        ...

    def region(self) -> str:
        """Where its bucket lies: a region, or of several a continent ("US"); "" where nobody tells."""
        ...

    def put(self, key: str, content: bytes | Path) -> Stored:
        """Write an object, whole or not at all; its checksum is verified."""
        ...

    def put_if(self, key: str, content: bytes, expected: str | None) -> Stored:
        """Write only where the object is absent (None), or only over that version. Raises Changed.

        After a lost reply the object is read: it is ours where it has this content. Contents that two
        writers could have in common therefore hold a nonce of their writer.
        """
        ...

    def get(self, key: str, version: str | None = None) -> bytes:
        """The content of an object of at most LARGEST_GET bytes. Raises Missing, and Changed where the
        object is no longer at that version, and the version is not kept."""
        ...

    def fetch(self, key: str, into: Path, version: str | None = None) -> Stored:
        """Write an object to the file `into`, verified, whole or not at all. Raises as `get` does."""
        ...

    def head(self, key: str) -> Stored | None:
        """The object as it is now; None if it is absent."""
        ...

    def list(self, prefix: str = "") -> Iterator[Stored]:
        """All objects whose key begins with `prefix`, in the order of their keys' UTF-8 bytes.

        "Folders" of no bytes, which consoles make, are left out; another key that no store may hold raises.
        """
        ...

    def delete(self, key: str, expected: str | None = None) -> None:
        """Remove an object, or only that version of it. An absent one is success. Raises Changed."""
        ...

    def link(self, key: str, lasts: float, version: str | None = None) -> Link | None:
        """A way to GET that one object for `lasts` seconds; None where the store has no such thing."""
        ...

    def grant(self, prefix: str, lasts: float) -> Grant | None:
        """A way to upload objects under `prefix` for `lasts` seconds; None where there is no such thing."""
        ...
