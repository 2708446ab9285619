"""The folder of incomplete objects, and the state of a large object that arrives in parts."""

# Close to the kernel: descriptors, modes and races need os calls, not pathlib.
# ruff: noqa: PTH108, PTH118, PTH208

from __future__ import annotations

import hashlib
import os
import re
import threading
from typing import Any, List, NamedTuple, Optional, Set

from ..processes import boot_id
from .checksums import checker

PART = 8 << 20
"""Maximum bytes of one ranged read. Small enough that the parts of an object arrive nearly in their order."""
PIECE = 1 << 18
"""Bytes that are received, written and hashed at a time: they stay in the processor's cache."""
FILE_MODE = 0o444


class Wanted(NamedTuple):
    """One object: its path in the tree, and what it must be. `checksum` may be empty."""

    path: str
    size: int
    version: str
    checksum: str


def _line(first: object) -> str:
    """Return the line that notes a complete part."""
    return f"{boot_id()}:{first};\n"


class Staging:
    """The folder of incomplete objects; for each large one, its complete parts are listed in a file."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        # What was written before the machine restarted may not have reached its disk. No two halves of lines
        # make a line.
        self._line = re.compile(rf"{re.escape(_line('@')).replace('@', '([0-9]+)')}")

    def name(self, wanted: Wanted) -> str:
        """Return a file name that is unique for each version of each object."""
        told = "\0".join((wanted.path, wanted.version, str(wanted.size), wanted.checksum))
        return hashlib.sha256(told.encode("utf-8", "surrogateescape")).hexdigest()[:40]

    def path(self, name: str) -> str:
        return os.path.join(self._folder, name)

    def incoming(self, wanted: Wanted) -> Incoming:
        """Create the file of a large object, or find what an earlier fetch has received of it."""
        name = self.name(wanted)
        flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        noted = self._noted(name, wanted.size)
        os.close(os.open(self.path(name), flags, 0o600))
        return Incoming(self.path(name), wanted, noted)

    def drop(self, name: str) -> None:
        """Remove everything that was received of an object."""
        for path in (f"{name}.parts", name):
            try:
                os.unlink(self.path(path))
            except FileNotFoundError:
                pass

    def clear(self, keep: Set[str]) -> None:
        """Remove files of objects whose names are not in `keep`."""
        for name in os.listdir(self._folder):
            if name.partition(".")[0] not in keep:
                os.unlink(self.path(name))

    def _noted(self, name: str, size: int) -> Set[int]:
        try:
            if os.lstat(self.path(name)).st_size > size:
                return set()
            with open(self.path(f"{name}.parts"), encoding="ascii") as file:
                lines = map(self._line.fullmatch, file)
                return {int(line[1]) for line in lines if line}
        except (OSError, ValueError):
            return set()


class Proof:
    """The SHA-256 of an object, and whether its bytes are those that its size and checksum say."""

    def __init__(self, wanted: Wanted) -> None:
        self._wanted = wanted
        self._hasher = hashlib.sha256()
        self._checker = checker(wanted.checksum)
        self.size = 0

    def update(self, piece: Any) -> None:
        self.size += len(piece)
        self._hasher.update(piece)
        if self._checker is not None:
            self._checker.update(piece)

    def passed(self) -> Optional[str]:
        """Return the SHA-256; None if the object is damaged."""
        right = self._checker is None or self._checker.passes()
        return self._hasher.hexdigest() if right and self.size == self._wanted.size else None


class Incoming:
    """A large object, of which parts arrive in any order. Hashed while they arrive, as far as it is
    complete from its beginning."""

    def __init__(self, path: str, wanted: Wanted, noted: Set[int]) -> None:
        self._path = path
        self._size = wanted.size
        self._missing = set(range(0, wanted.size, PART)) - noted
        self._proof = Proof(wanted)
        self._hashing = False
        self._lock = threading.Lock()

    def missing(self) -> List[int]:
        """Return the offsets of the parts that are still missing, sorted."""
        return sorted(self._missing)

    def came(self, first: int) -> None:
        """Record a part whose bytes are in the file."""
        with self._lock:
            with open(f"{self._path}.parts", "a", encoding="ascii") as file:
                file.write(_line(first))
            self._missing.discard(first)

    def hash_on(self) -> Optional[Proof]:
        """Hash what is complete, unless another thread does; return the proof to the thread that finishes
        it."""
        while True:
            with self._lock:
                end = min(self._missing, default=self._size)
                if self._hashing or (end == self._proof.size and end < self._size):
                    return None
                self._hashing = True
            self._hash_to(end)
            with self._lock:
                if end == self._size:
                    return self._proof  # `_hashing` stays set: only this thread has the proof
                self._hashing = False

    def _hash_to(self, end: int) -> None:
        buffer = memoryview(bytearray(PIECE))
        with open(self._path, "rb", buffering=0) as file:
            file.seek(self._proof.size)
            while self._proof.size < end:
                count = file.readinto(buffer[: end - self._proof.size])
                if not count:
                    raise OSError(f"{self._path} became shorter")
                self._proof.update(buffer[:count])
