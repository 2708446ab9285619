"""A store in a bucket: the code that is the same for every cloud, on top of a Driver for each cloud.

Every call is retried while the bucket throttles or does not answer. If the reply to a conditional write was
lost, the stored object is compared with the content. Listings and contents are validated before they are
used.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO, Protocol, TypeVar

from orchestrator.errors import Changed, Corrupt, Missing, StorageError, StorageFault
from orchestrator.model.backoff import Backoff
from orchestrator.model.store_keys import LONGEST, check_key, check_prefix, shown
from orchestrator.model.stores import LARGEST_GET, Grant, Link, Stored

from .checksums import Checker
from .placing import local, placed, read_content

R = TypeVar("R")
Sink = Callable[[bytes], object]
AT_ONCE = 32 << 20
"""Size in bytes up to which an object is sent in one request."""

_TRIES = 6
_VERSIONS = 30
"""Tries to read an object that is overwritten meanwhile."""
_PASSES = (StorageFault.THROTTLED, StorageFault.UNREACHABLE)
BACKOFF = Backoff(base_s=0.25, cap_s=8.0)


class Driver(Protocol):
    """The calls of one cloud for one bucket. Keys are full object names. Calls are not retried here.

    Raises StorageError; callers rely on its subclasses Missing and Changed, and its faults THROTTLED and
    UNREACHABLE.
    """

    def region(self) -> str: ...
    def write(self, name: str, body: bytes, expected: str | Anything | None) -> Stored: ...
    def upload(self, name: str, path: Path) -> Stored: ...
    def facts(self, name: str) -> Stored | None: ...
    def read(self, name: str, version: str | None, start: int, sink: Sink) -> Stored:
        """Send the bytes from `start` to `sink`; returns the facts of the whole object."""
        ...

    def page(self, prefix: str, token: str | None) -> tuple[list[Stored], str | None]: ...
    def remove(self, name: str, expected: str | None) -> None: ...
    def link(self, name: str, lasts: float, version: str | None) -> Link | None: ...
    def grant(self, prefix: str, lasts: float) -> Grant | None: ...


class Anything:
    """The condition of an unconditional write."""


ANYTHING = Anything()


class BucketStore:
    """A store below `prefix`, which ends with "/" or is empty."""

    def __init__(self, url: str, prefix: str, driver: Driver) -> None:
        self.url = url
        self._prefix = prefix
        self._driver = driver

    def region(self) -> str:
        return repeated(self._driver.region)

    def put(self, key: str, content: bytes | Path) -> Stored:
        name = self._name(key)
        if isinstance(content, Path) and _size(content) > AT_ONCE:
            path = content
            return self._own(self._intact(lambda: self._driver.upload(name, path)))
        body = read_content(content) if isinstance(content, Path) else content
        return self._own(self._intact(lambda: self._driver.write(name, body, ANYTHING)))

    def put_if(self, key: str, content: bytes, expected: str | None) -> Stored:
        name, lost = self._name(key), False

        def write() -> Stored:
            nonlocal lost
            try:
                return self._driver.write(name, content, expected)
            except Changed:
                ours = self._ours(key, content) if lost else None
                if ours is None:
                    raise
                return ours
            except StorageError as error:
                lost = lost or error.fault in _PASSES
                raise

        return self._own(self._intact(write))

    def get(self, key: str, version: str | None = None) -> bytes:
        name = self._name(key)

        def read() -> bytes:
            body = bytearray()

            def take(chunk: bytes) -> None:
                if len(body) + len(chunk) > LARGEST_GET:
                    raise StorageError(
                        StorageFault.TOO_LARGE, f"{key} in {self.url} has more than {LARGEST_GET} bytes."
                    )
                body.extend(chunk)

            stored = self._driver.read(name, version, 0, take)
            checker = Checker(stored.checksum)
            checker.update(bytes(body))
            self._verify(key, stored, checker)
            return bytes(body)

        return self._intact(read)

    def fetch(self, key: str, into: Path, version: str | None = None) -> Stored:
        name = self._name(key)
        with placed(into) as file:
            left = _VERSIONS
            while True:
                stored = self._now(key, name, version)
                try:
                    self._intact(functools.partial(self._download, key, stored, file, into))
                    return self._own(stored)
                except Changed:  # it changed in between: read the next version, unless one is wanted
                    left -= 1
                    if version is not None or not left:
                        raise

    def head(self, key: str) -> Stored | None:
        name = self._name(key)
        stored = repeated(lambda: self._driver.facts(name))
        return self._own(stored) if stored else None

    def list(self, prefix: str = "") -> Iterator[Stored]:
        start = self._prefix + check_prefix(prefix)
        token: str | None = None
        last = b""
        while True:
            asked = token
            page, token = repeated(functools.partial(self._driver.page, start, asked))
            for stored in page:
                if not last < stored.key.encode("utf-8", "surrogatepass"):
                    raise self._odd(f"lists {shown(stored.key)} out of order")
                last = stored.key.encode("utf-8", "surrogatepass")
                if not (stored.key.endswith("/") and stored.size == 0):
                    yield self._listed(stored, start)
            if token is None:
                return
            if token == asked or not page:
                raise self._odd("lists without end")

    def delete(self, key: str, expected: str | None = None) -> None:
        name = self._name(key)
        try:
            repeated(lambda: self._driver.remove(name, expected))
        except Missing:
            return
        except Changed as changed:
            found = self.head(key)
            if found is not None:
                raise Changed(self.url, key, expected=expected, found=found.version) from changed

    def link(self, key: str, lasts: float, version: str | None = None) -> Link | None:
        name = self._name(key)
        return repeated(lambda: self._driver.link(name, lasts, version))

    def grant(self, prefix: str, lasts: float) -> Grant | None:
        whole = self._prefix + check_prefix(prefix)
        return repeated(lambda: self._driver.grant(whole, lasts))

    def _now(self, key: str, name: str, version: str | None) -> Stored:
        """Return the object's current facts (size, version, checksum). Raises Missing, and Changed for
        another version.
        """
        stored = repeated(lambda: self._driver.facts(name))
        if stored is None:
            raise Missing(self.url, key)
        if version is not None and stored.version != version:
            raise Changed(self.url, key, expected=version, found=stored.version)
        return stored

    def _name(self, key: str) -> str:
        name = self._prefix + check_key(key)
        if len(name.encode()) > LONGEST:
            message = f"{shown(key)} is too long for {self.url}: its name has more than {LONGEST} bytes."
            raise StorageError(StorageFault.KEY, message)
        return name

    def _own(self, stored: Stored) -> Stored:
        return replace(stored, key=stored.key.removeprefix(self._prefix))

    def _listed(self, stored: Stored, start: str) -> Stored:
        if not stored.key.startswith(start) or stored.size < 0:
            raise self._odd(f"lists {shown(stored.key)}, which was not asked for")
        own = self._own(stored)
        check_key(own.key)
        return own

    def _odd(self, what: str) -> StorageError:
        return StorageError(StorageFault.UNKNOWN, f"{self.url} {what}; its answer was not used.")

    def _ours(self, key: str, content: bytes) -> Stored | None:
        """Return the object if it has that content: then the write succeeded and its reply was lost."""
        stored = self.head(key)
        if stored is None or stored.size != len(content):
            return None
        try:
            same = self.get(key, stored.version) == content
        except (Missing, Changed):
            return None
        return replace(stored, key=self._prefix + key) if same else None

    def _download(self, key: str, stored: Stored, file: BinaryIO, into: Path) -> None:
        """Write the object to `file`; if the connection breaks, continue at the byte where it broke."""
        checker = Checker(stored.checksum)
        with local(into):
            file.seek(0)
            file.truncate()

        def take(chunk: bytes) -> None:
            if checker.size + len(chunk) > stored.size:
                raise Corrupt(self.url, key, f"it has more than {stored.size} bytes.")
            with local(into):
                file.write(chunk)
            checker.update(chunk)

        def rest() -> None:
            if checker.size < stored.size:
                self._driver.read(stored.key, stored.version, checker.size, take)

        repeated(rest)
        self._verify(key, stored, checker)

    def _verify(self, key: str, stored: Stored, checker: Checker) -> None:
        if checker.size != stored.size:
            raise Corrupt(self.url, key, f"{checker.size} bytes came, not {stored.size}.")
        if wrong := checker.wrong():
            raise Corrupt(self.url, key, wrong)

    def _intact(self, ask: Callable[[], R]) -> R:
        """Retry once if the content was damaged during transfer; the server discards a damaged write."""
        try:
            return repeated(ask)
        except Corrupt:
            return repeated(ask)


def _size(path: Path) -> int:
    with local(path):
        return path.stat().st_size


def repeated(ask: Callable[[], R]) -> R:
    """Retry a call while the bucket throttles or does not answer, up to the number of tries."""
    tries = 0

    def again(error: Exception, _pause: float) -> bool:
        nonlocal tries
        tries += 1
        return isinstance(error, StorageError) and error.fault in _PASSES and tries < _TRIES

    return BACKOFF.call(ask, again)
