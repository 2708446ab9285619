"""A store that exists as long as its process."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from pathlib import Path

from orchestrator.errors import Changed, Missing, StorageError, StorageFault
from orchestrator.model.store_keys import check_key, check_prefix
from orchestrator.model.stores import LARGEST_GET, Grant, Link, Stored

from .placing import placed, read_content

_STORES: dict[str, MemoryStore] = {}


def memory_store(name: str) -> MemoryStore:
    """Return the store of that name, which is the same for every caller in this process."""
    return _STORES.setdefault(name, MemoryStore(f"memory://{name}"))


class MemoryStore:
    def __init__(self, url: str) -> None:
        self.url = url
        self._lock = threading.Lock()
        self._writes = 0
        self._objects: dict[str, tuple[Stored, bytes]] = {}

    def region(self) -> str:
        return ""

    def put(self, key: str, content: bytes | Path) -> Stored:
        body = content if isinstance(content, bytes) else read_content(content)
        with self._lock:
            return self._write(check_key(key), body)

    def put_if(self, key: str, content: bytes, expected: str | None) -> Stored:
        with self._lock:
            self._require(check_key(key), expected)
            return self._write(key, content)

    def get(self, key: str, version: str | None = None) -> bytes:
        stored, body = self._read(key, version)
        if stored.size > LARGEST_GET:
            raise StorageError(StorageFault.TOO_LARGE, f"{key} in {self.url} has {stored.size} bytes.")
        return body

    def fetch(self, key: str, into: Path, version: str | None = None) -> Stored:
        stored, body = self._read(key, version)
        with placed(into) as file:
            file.write(body)
        return stored

    def head(self, key: str) -> Stored | None:
        with self._lock:
            found = self._objects.get(check_key(key))
        return found[0] if found else None

    def list(self, prefix: str = "") -> Iterator[Stored]:
        check_prefix(prefix)
        with self._lock:
            found = [stored for key, (stored, _) in self._objects.items() if key.startswith(prefix)]
        yield from sorted(found, key=lambda stored: stored.key.encode())

    def delete(self, key: str, expected: str | None = None) -> None:
        with self._lock:
            if check_key(key) not in self._objects:
                return
            if expected is not None:
                self._require(key, expected)
            del self._objects[key]

    def link(self, key: str, lasts: float, version: str | None = None) -> Link | None:  # noqa: ARG002
        return None

    def grant(self, prefix: str, lasts: float) -> Grant | None:  # noqa: ARG002
        return None

    def _read(self, key: str, version: str | None) -> tuple[Stored, bytes]:
        with self._lock:
            found = self._objects.get(check_key(key))
        if found is None:
            raise Missing(self.url, key)
        if version is not None and found[0].version != version:
            raise Changed(self.url, key, expected=version, found=found[0].version)
        return found

    def _require(self, key: str, expected: str | None) -> None:
        found = self._objects.get(key)
        version = found[0].version if found else None
        if version != expected:
            raise Changed(self.url, key, expected=expected, found=version)

    def _write(self, key: str, body: bytes) -> Stored:
        self._writes += 1
        digest = hashlib.sha256(body).hexdigest()
        stored = Stored(key, len(body), str(self._writes), f"sha256:{digest}")
        self._objects[key] = (stored, body)
        return stored
