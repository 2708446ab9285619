"""Download objects in parallel ranged reads into a staging folder, and verify them there.

A large object is read in parts by several threads; its complete parts are listed beside it, so that a fetch
that was killed continues with the others. An object that does not match its checksum is fetched again from
the beginning.
"""

# Close to the kernel: descriptors, modes and races need os calls, not pathlib.
# ruff: noqa: PTH108, PTH118, PTH208

from __future__ import annotations

import hashlib
import itertools
import os
import queue
import threading
from typing import Dict, List, NamedTuple, Optional, Set, Tuple, Union

from ..http import Client, HttpError
from .checksums import checker

PART = 32 << 20
"""Maximum bytes of one ranged read."""
_STOP, _FIRST, _IN_TURN = range(3)


class Wanted(NamedTuple):
    """One object: its path in the tree, and what it must be. `checksum` may be empty."""

    path: str
    size: int
    version: str
    checksum: str


class Link(NamedTuple):
    url: str
    headers: Dict[str, str]


class Part(NamedTuple):
    """`size` bytes of object `number`, from offset `first`, to be read with `link`."""

    number: int
    first: int
    size: int
    link: Link


class Arrived(NamedTuple):
    """Bytes of an object that were received."""

    number: int
    bytes: int


class Verified(NamedTuple):
    """An object is verified and is in staging under `name`. `bytes`: those that no Arrived has reported."""

    number: int
    name: str
    sha256: str
    bytes: int = 0


class Damaged(NamedTuple):
    """An object did not match its size or checksum; its bytes were removed."""

    number: int


class Failed(NamedTuple):
    """A part could not be read. `kind` as in HttpError, or "disk"."""

    part: Part
    kind: str
    text: str


Event = Union[Arrived, Verified, Damaged, Failed]


class Staging:
    """The folder of incomplete objects; for each large one, its complete parts are listed in a file."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._missing: Dict[str, Set[int]] = {}

    def name(self, wanted: Wanted) -> str:
        """Return a file name that is unique for each version of each object."""
        told = "\0".join((wanted.path, wanted.version, str(wanted.size), wanted.checksum))
        return hashlib.sha256(told.encode("utf-8", "surrogateescape")).hexdigest()[:40]

    def path(self, name: str) -> str:
        return os.path.join(self._folder, name)

    def missing(self, wanted: Wanted) -> List[int]:
        """Return the offsets of the parts that are still missing, sorted; creates the file of a large
        object."""
        if wanted.size <= PART:
            return [0]
        name = self.name(wanted)
        firsts = set(range(0, wanted.size, PART)) - self._noted(name, wanted.size)
        fd = os.open(self.path(name), os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        os.close(fd)
        self._missing[name] = set(firsts) or {0}
        return sorted(self._missing[name])

    def came(self, name: str, first: int) -> bool:
        """Record a complete part of a large object. Returns whether no part is missing any more."""
        with self._lock:
            with open(self.path(f"{name}.parts"), "a", encoding="ascii") as file:
                file.write(f"{first}\n")
            self._missing[name].discard(first)
            return not self._missing[name]

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
                return {int(line) for line in file if line.endswith("\n") and line.strip().isdigit()}
        except (OSError, ValueError):
            return set()


class Pool:
    """Threads that read queued parts and report to `events`."""

    def __init__(self, staging: Staging, wanted: List[Wanted], threads: int) -> None:
        self._tasks: "queue.PriorityQueue[Tuple[int, int, Optional[Part]]]" = queue.PriorityQueue()
        self._count = itertools.count()
        self.events: "queue.Queue[Event]" = queue.Queue()
        self._staging = staging
        self._wanted = wanted
        self._threads = [threading.Thread(target=self._work, daemon=True) for _ in range(threads)]
        for thread in self._threads:
            thread.start()

    def put(self, part: Part, urgent: bool = False) -> None:
        """Queue a part: after those that were queued earlier, or before all others if it is urgent."""
        self._tasks.put((_FIRST if urgent else _IN_TURN, next(self._count), part))

    def close(self) -> None:
        """End every thread after its current part."""
        for _ in self._threads:
            self._tasks.put((_STOP, next(self._count), None))

    def _work(self) -> None:
        with Client() as client:
            while True:
                _, _, part = self._tasks.get()
                if part is None:
                    return
                try:
                    self.events.put(self._fetched(client, part))
                except HttpError as error:
                    self.events.put(Failed(part, error.kind, str(error)))
                except OSError as error:
                    self.events.put(Failed(part, "disk", error.strerror or str(error)))

    def _fetched(self, client: Client, part: Part) -> Event:
        wanted = self._wanted[part.number]
        name = self._staging.name(wanted)
        if wanted.size <= PART:
            return self._whole(client, part, wanted, name)
        self._read(client, part, name)
        if not self._staging.came(name, part.first):
            return Arrived(part.number, 0)
        return self._checked(part.number, wanted, name)

    def _whole(self, client: Client, part: Part, wanted: Wanted, name: str) -> Event:
        """Fetch an object of one part, and hash it while it is received, so that it need not be read
        again."""
        hasher, proof, size = hashlib.sha256(), checker(wanted.checksum), 0
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(self._staging.path(name), flags, 0o600)
        try:
            for piece in client.read_range(part.link.url, part.link.headers, 0, part.size):
                _write_all(fd, piece, size)
                size += len(piece)
                hasher.update(piece)
                if proof is not None:
                    proof.update(piece)
        finally:
            os.close(fd)
        if size != wanted.size or not (proof is None or proof.passes()):
            self._staging.drop(name)
            return Damaged(part.number)
        return Verified(part.number, name, hasher.hexdigest(), size)

    def _read(self, client: Client, part: Part, name: str) -> None:
        fd = os.open(self._staging.path(name), os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            at = part.first
            for piece in client.read_range(part.link.url, part.link.headers, part.first, part.size):
                _write_all(fd, piece, at)
                at += len(piece)
                self.events.put(Arrived(part.number, len(piece)))
        finally:
            os.close(fd)

    def _checked(self, number: int, wanted: Wanted, name: str) -> Event:
        hasher, proof = hashlib.sha256(), checker(wanted.checksum)
        with open(self._staging.path(name), "rb", buffering=0) as file:
            size = 0
            for piece in iter(lambda: file.read(1 << 20), b""):
                size += len(piece)
                hasher.update(piece)
                if proof is not None:
                    proof.update(piece)
        if size != wanted.size or not (proof is None or proof.passes()):
            self._staging.drop(name)
            return Damaged(number)
        return Verified(number, name, hasher.hexdigest())


def _write_all(fd: int, piece: bytes, at: int) -> None:
    view = memoryview(piece)
    while view:
        count = os.pwrite(fd, view, at)
        at, view = at + count, view[count:]
