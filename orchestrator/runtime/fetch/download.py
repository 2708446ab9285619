"""Download objects in parallel ranged reads into a staging folder, and verify them there.

A large object is read in parts by several threads; its complete parts are listed beside it, so that a fetch
that was killed continues with the others. An object that does not match its checksum is fetched again from
the beginning.
"""

# Close to the kernel: descriptors, modes and races need os calls, not pathlib.
# ruff: noqa: PTH101

from __future__ import annotations

import itertools
import os
import queue
import threading
from typing import Dict, List, NamedTuple, Optional, Tuple, Union

from ..http import Client, HttpError
from .staging import FILE_MODE, PART, PIECE, Incoming, Proof, Staging, Wanted

_TOLD = 1 << 20
_STOP, _FIRST, _IN_TURN = range(3)
_NEW = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
_OLD = os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC


class Link(NamedTuple):
    url: str
    headers: Dict[str, str]


class Order(NamedTuple):
    """Fetch object `number` with `link`, before all others if it is urgent."""

    number: int
    link: Link
    urgent: bool = False


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
    """A part could not be read. `kind` as in HttpError, or "local": this machine failed."""

    part: Part
    kind: str
    text: str


Event = Union[Arrived, Verified, Damaged, Failed]


class Pool:
    """Threads that fetch what was ordered and report it by `take`."""

    def __init__(self, staging: Staging, wanted: List[Wanted], threads: int) -> None:
        self._tasks: "queue.PriorityQueue[Tuple[int, int, Optional[Part]]]" = queue.PriorityQueue()
        self._count = itertools.count()
        self._events: "queue.SimpleQueue[Event]" = queue.SimpleQueue()
        self._staging = staging
        self._wanted = wanted
        self._incoming: Dict[int, Incoming] = {}
        self._threads = [threading.Thread(target=self._work, daemon=True) for _ in range(threads)]
        for thread in self._threads:
            thread.start()

    def begin(self, order: Order) -> None:
        """Queue what is missing of an object."""
        wanted = self._wanted[order.number]
        parts = [Part(order.number, 0, min(PART, wanted.size), order.link)]
        if wanted.size > PART:
            try:
                incoming = self._incoming[order.number] = self._staging.incoming(wanted)
            except OSError as error:
                self._events.put(Failed(parts[0], "local", error.strerror or str(error)))
                return
            firsts = incoming.missing() or [0]
            parts = [parts[0]._replace(first=first, size=min(PART, wanted.size - first)) for first in firsts]
        for part in parts:
            self._put(part, order.urgent)

    def again(self, part: Part) -> None:
        """Queue a part that failed, with another link."""
        self._put(part, urgent=False)

    def take(self, timeout: Optional[float]) -> Optional[Event]:
        """Return the next event; None if there is none for so many seconds."""
        try:
            return self._events.get(timeout=timeout) if timeout != 0 else self._events.get_nowait()
        except queue.Empty:
            return None

    def close(self) -> None:
        """End every thread after its current part."""
        for _ in self._threads:
            self._tasks.put((_STOP, next(self._count), None))

    def _put(self, part: Part, urgent: bool) -> None:
        self._tasks.put((_FIRST if urgent else _IN_TURN, next(self._count), part))

    def _work(self) -> None:
        with Client() as client:
            while True:
                _, _, part = self._tasks.get()
                if part is None:
                    return
                try:
                    self._fetch(client, part)
                except HttpError as error:
                    self._events.put(Failed(part, error.kind, str(error)))
                except OSError as error:
                    self._events.put(Failed(part, "local", error.strerror or str(error)))

    def _fetch(self, client: Client, part: Part) -> None:
        wanted = self._wanted[part.number]
        if wanted.size <= PART:
            self._fetch_whole(client, part, wanted)
            return
        incoming = self._incoming[part.number]
        self._read(client, part, self._staging.name(wanted))
        incoming.came(part.first)
        proof = incoming.hash_on()
        if proof is not None:
            self._tell(part.number, wanted, proof)

    def _fetch_whole(self, client: Client, part: Part, wanted: Wanted) -> None:
        """Fetch an object of one part, and hash it while it is received."""
        proof = Proof(wanted)
        fd = os.open(self._staging.path(self._staging.name(wanted)), _NEW, 0o600)
        try:
            for piece in client.read_range(part.link.url, part.link.headers, 0, part.size, PIECE):
                _write_all(fd, piece, proof.size)
                proof.update(piece)
        finally:
            os.close(fd)
        self._tell(part.number, wanted, proof, proof.size)

    def _tell(self, number: int, wanted: Wanted, proof: Proof, count: int = 0) -> None:
        name, sha256 = self._staging.name(wanted), proof.passed()
        self._incoming.pop(number, None)
        if sha256 is None:
            self._staging.drop(name)
            self._events.put(Damaged(number))
        else:
            os.chmod(self._staging.path(name), FILE_MODE)
            self._events.put(Verified(number, name, sha256, count))

    def _read(self, client: Client, part: Part, name: str) -> None:
        fd = os.open(self._staging.path(name), _OLD)
        try:
            at = told = part.first
            for piece in client.read_range(part.link.url, part.link.headers, part.first, part.size, PIECE):
                _write_all(fd, piece, at)
                at += len(piece)
                if at - told >= _TOLD or at == part.first + part.size:
                    self._events.put(Arrived(part.number, at - told))
                    told = at
        finally:
            os.close(fd)


def _write_all(fd: int, piece: bytes, at: int) -> None:
    view = memoryview(piece)
    while view:
        count = os.pwrite(fd, view, at)
        at, view = at + count, view[count:]
