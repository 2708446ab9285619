"""The protocol Store: objects by key, whole or absent, with versions and checksums."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Protocol

LARGEST_GET = 64 << 20
"""Most bytes that `get` returns; larger objects are fetched into a file."""


@dataclass(frozen=True)
class Stored:
    """One object as its store lists it. `key` is relative to the store's url, "/"-separated.

    `version` changes with every write: a generation, a version id, an ETag, or what a file system offers for
    it. `checksum` is "crc32c:<hex>", "sha256:<hex>" or "md5:<hex>" of the content, "" if the store has none.
    """

    key: str
    size: int
    version: str
    checksum: str = ""


@dataclass(frozen=True)
class Link:
    """A URL to GET one object without credentials, until `expires`. A secret: never in a ledger, log or
    argv.
    """

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
    """Objects below one url. Raises StorageError, or LocalError for a file of this computer; nothing else.

    Every key is checked, those of a listing too. Every method may be called again after any error, and after
    its caller was killed at any point.
    """

    @property
    def url(self) -> str:
        """ "s3://bucket/prefix", "gs://bucket/prefix", "file:///folder" or "memory://name"."""
        ...

    def region(self) -> str:
        """Return the location of the bucket: a region, or a continent ("US") if it spans several; "" if
        it is not known.
        """
        ...

    def put(self, key: str, content: bytes | Path) -> Stored:
        """Write an object, whole or not at all; its checksum is verified."""
        ...

    def put_if(self, key: str, content: bytes, expected: str | None) -> Stored:
        """Write the object only if it is absent (`expected` None) or has the version `expected`. Raise
        Changed if not.

        If the reply is lost, the object is read: the write counts as ours if the content is equal. If two
        writers could write equal contents, the content must hold a nonce of its writer.
        """
        ...

    def get(self, key: str, version: str | None = None) -> bytes:
        """Return the content of an object of at most LARGEST_GET bytes. Raise Missing if it is absent,
        and Changed if the object no longer has that version and the version is not kept.
        """
        ...

    def fetch(self, key: str, into: Path, version: str | None = None) -> Stored:
        """Write an object to the file `into`, verified, whole or not at all. Raises as `get` does."""
        ...

    def head(self, key: str) -> Stored | None:
        """Return the current object; None if it is absent."""
        ...

    def list(self, prefix: str = "") -> Iterator[Stored]:
        """Yield all objects whose key begins with `prefix`, in the order of their keys' UTF-8 bytes.

        Empty objects that consoles create as "folders" are left out; any other key that no store may hold
        raises.
        """
        ...

    def delete(self, key: str, expected: str | None = None) -> None:
        """Delete an object, or only if it has the version `expected`. An absent object is a success.
        Raise Changed if its version is another.
        """
        ...

    def link(self, key: str, lasts: float, version: str | None = None) -> Link | None:
        """Return a link to GET that one object for `lasts` seconds; None if the store has no such links."""
        ...

    def grant(self, prefix: str, lasts: float) -> Grant | None:
        """Return a grant to upload objects below `prefix` for `lasts` seconds; None if the store has no
        such grants.
        """
        ...
