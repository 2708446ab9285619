"""Fetch a tree of objects: find what is here already, fetch what is missing, put it in place."""

# Close to the kernel: descriptors, modes and races need os calls, not pathlib.
# ruff: noqa: PTH103, PTH118, PTH208

from __future__ import annotations

import os
import shutil
import time
from collections import OrderedDict
from typing import Any, Dict, FrozenSet, List, Set, Union

from ..transfer import apply, record, tree
from ..transfer.apply import Refused
from ..transfer.confined import Confined
from ..transfer.entries import Row, difference, digest
from ..transfer.frames import Broken
from .download import Arrived, Damaged, Failed, Link, Order, Pool, Verified
from .journal import Came, Journal
from .staging import FILE_MODE, PART, Staging, Wanted
from .workers import Workers, pool_for

AHEAD = 256
"""Maximum number of objects that have links and are not here yet."""
_TRIES = 3
_REPORT = 0.5
_FOLDER = 0o755


_Pool = Union[Pool, Workers]


class Client:
    """Supplies links and is notified of progress. Only `links` has to be overridden."""

    def links(self, numbers: List[int]) -> List[Any]:
        """Return [url, {header: value}] for each of these objects. Called again for one whose link was
        denied."""
        raise NotImplementedError

    def progress(self, count: int) -> None:
        """Receive the number of bytes that were fetched so far."""

    def came(self, number: int) -> None:
        """Receive the index of an object that is in its place, complete and verified."""

    def urgent(self) -> List[int]:
        """Return the objects that are being waited for, each only once."""
        return []


def rows_of(wanted: List[Wanted]) -> List[Row]:
    """Return the tree of the objects, without real hashes: files, and the folders above them."""
    folders: Set[str] = set()
    for each in wanted:
        parts = each.path.split("/")
        folders.update("/".join(parts[:depth]) for depth in range(1, len(parts)))
    rows = [Row(path, "dir", mode=_FOLDER) for path in folders]
    return rows + [Row(each.path, "file", each.size, FILE_MODE, "0" * 64) for each in wanted]


class Fetch:
    """Fetches one tree."""

    def __init__(
        self, place: str, wanted: List[Wanted], client: Client, ahead: int = AHEAD, may_fork: bool = False
    ) -> None:
        """`ahead`: maximum number of objects that have links and are not here yet. `may_fork`: whether this
        process has a single thread."""
        self._place = place
        self._wanted = wanted
        self._client = client
        self._ahead = ahead
        self._may_fork = may_fork
        self._journal = Journal(place)
        self._hashes: Dict[int, str] = {}
        self._known: tree.Known = {}
        self._links: Dict[int, Link] = {}
        self._denied: Dict[int, int] = {}
        self._corrupt: Dict[int, int] = {}
        self._damaged = 0
        self._fetched = 0
        self._bytes = 0
        self._reported = 0.0

    def run(self, single: str, root: str) -> Dict[str, Any]:
        """Fetch what is missing; return the last message of the protocol. The caller holds the tree's
        lock."""
        taken = self._run(rows_of(self._wanted))
        if single:
            apply.expose(self._place, single, root)
            record.restamp(self._place, [single], ())
        return taken

    def missing(self) -> List[int]:
        """Return the objects that are not here, in the requested order."""
        return self._needed(record.recall(self._place).known)

    def _run(self, rows: List[Row]) -> Dict[str, Any]:
        need = self.missing()
        record.touch(self._place)
        for number in self._hashes:
            self._client.came(number)
        with Confined(self._place) as target:
            self._clear(target, rows)
            if need:
                self._fetch(target, need)
        hash_of = {each.path: self._hashes[number] for number, each in enumerate(self._wanted)}
        full = [row._replace(digest=hash_of.get(row.path, "")) for row in rows]
        have, known = apply.look(self._place, self._known)
        found = digest(full)
        if digest(have) != found:
            raise Refused("differs", "The files here differ from what was fetched.", path="")
        record.record(self._place, full, found, tree.settled(known, self._known, time.time_ns()))
        shutil.rmtree(f"{self._place}.part", ignore_errors=True)
        hashes = [self._hashes[number] for number in range(len(self._wanted))]
        self._journal.rewrite(
            [
                Came(each.path, _version(each), hashes[number], known[each.path][0])
                for number, each in enumerate(self._wanted)
            ]
        )
        return {"digest": found, "sha256": hashes, "fetched": self._fetched, "damaged": self._damaged}

    # ------------------------------------------------------------ what is here

    def _needed(self, recalled: tree.Known) -> List[int]:
        came = self._journal.read()
        need = []
        with Confined(self._place) as inside:
            for number, each in enumerate(self._wanted):
                known = self._here(inside, each, came.get(each.path), recalled)
                if known is None:
                    need.append(number)
                else:
                    self._known[each.path] = known
                    self._hashes[number] = known[1]
        return need

    def _here(self, inside: Confined, wanted: Wanted, came: Any, recalled: tree.Known) -> Any:
        if came is None or came.version != _version(wanted):
            return None
        about = inside.look(wanted.path)
        if about is None:
            return None
        stamp = tree.stamp_of(about)
        if recalled.get(wanted.path) == (stamp, came.sha256):
            return stamp, came.sha256
        try:
            hashed, stamp = tree.content_of(inside.open_file(wanted.path))
        except OSError:
            return None
        return (stamp, hashed) if hashed == came.sha256 else None

    def _clear(self, target: Confined, rows: List[Row]) -> None:
        """Remove what belongs to no object, and create the folders."""
        listed = tree.survey(self._place)
        have = [found.row for found in listed.found] + [Row(path, "special") for path in listed.special]
        for path in reversed(difference(have, rows).remove):
            target.remove(path)
        target.forget()
        for row in sorted(rows):
            if row.kind == "dir":
                target.make_folder(row.path, row.mode)

    # ------------------------------------------------------------ what comes

    def _fetch(self, target: Confined, need: List[int]) -> None:
        stage = f"{self._place}.part"
        os.makedirs(stage, mode=0o700, exist_ok=True)
        staging = Staging(stage)
        staging.clear({staging.name(self._wanted[number]) for number in need})
        self._require_room(stage, need)
        pool = pool_for(staging, self._wanted, need, self._may_fork)
        waiting: "OrderedDict[int, None]" = OrderedDict.fromkeys(need)
        under_way: Set[int] = set()
        try:
            while waiting or under_way:
                urgent = [number for number in self._client.urgent() if number in waiting]
                for number in reversed(urgent):
                    waiting.move_to_end(number, last=False)
                if waiting and (urgent or len(under_way) <= self._ahead // 2):
                    room = max(len(urgent), self._ahead - len(under_way))
                    batch = [waiting.popitem(last=False)[0] for _ in range(min(room, len(waiting)))]
                    under_way.update(batch)
                    self._begin(pool, batch, frozenset(urgent))
                self._take(pool, staging, target, under_way)
        finally:
            pool.close()
            self._journal.close()

    def _require_room(self, stage: str, need: List[int]) -> None:
        """Raise Refused if the disk cannot hold the rest; bytes in staging already count."""
        there = sum(os.lstat(os.path.join(stage, name)).st_blocks * 512 for name in os.listdir(stage))
        size = sum(self._wanted[number].size for number in need)
        if size - there > apply.free(stage):
            raise apply.full(stage, size)

    def _begin(self, pool: _Pool, batch: List[int], urgent: FrozenSet[int] = frozenset()) -> None:
        """Ask for links, and order the objects."""
        self._ask_links(batch)
        for number in batch:
            pool.begin(Order(number, self._links[number], number in urgent))

    def _ask_links(self, numbers: List[int]) -> None:
        answer = self._client.links(numbers)
        if len(answer) != len(numbers):
            raise Broken("the number of links is not that of the objects")
        for number, (url, headers) in zip(numbers, answer):  # noqa: B905  (`strict` came after 3.9)
            self._links[number] = Link(url, headers)

    def _take(self, pool: _Pool, staging: Staging, target: Confined, under_way: Set[int]) -> None:
        """Wait for one event of the threads and handle it."""
        event = pool.take(_REPORT)
        if event is None:
            pass
        elif isinstance(event, Arrived):
            self._bytes += event.bytes
            if event.bytes:
                self._denied.pop(event.number, None)
        elif isinstance(event, Verified):
            self._bytes += event.bytes
            self._settle(staging, target, event)
            under_way.discard(event.number)
        elif isinstance(event, Damaged):
            self._damaged += 1
            self._again(self._corrupt, event.number, "corrupt", "its bytes are not what its checksum says")
            self._begin(pool, [event.number])
        else:
            self._retry(pool, event)
        self._report()

    def _retry(self, pool: _Pool, failed: Failed) -> None:
        """Queue the part again with a new link if the old one was denied; any other failure ends the
        fetch."""
        if failed.kind == "local":
            raise OSError(failed.text)
        if failed.kind != "denied":
            raise self._refused(failed.part.number, failed.kind, failed.text)
        number = failed.part.number
        if self._links[number] == failed.part.link:  # no other part has renewed it meanwhile
            self._again(self._denied, number, failed.kind, failed.text)
            self._ask_links([number])
        pool.again(failed.part._replace(link=self._links[number]))

    def _again(self, tries: Dict[int, int], number: int, kind: str, text: str) -> None:
        tries[number] = tries.get(number, 0) + 1
        if tries[number] >= _TRIES:
            raise self._refused(number, kind, text)

    def _refused(self, number: int, kind: str, text: str) -> Refused:
        return Refused(f"object_{kind}", text, path=self._wanted[number].path)

    def _settle(self, staging: Staging, target: Confined, whole: Verified) -> None:
        """Put a verified object in its place, then add it to the journal."""
        wanted = self._wanted[whole.number]
        folder, name = target.at(wanted.path)
        os.rename(staging.path(whole.name), name, dst_dir_fd=folder)
        stamp = tree.stamp_of(os.stat(name, dir_fd=folder, follow_symlinks=False))
        if wanted.size > PART:
            staging.drop(whole.name)
        self._hashes[whole.number] = whole.sha256
        self._known[wanted.path] = (stamp, whole.sha256)
        self._journal.add(Came(wanted.path, _version(wanted), whole.sha256, stamp))
        self._fetched += 1
        self._client.came(whole.number)

    def _report(self) -> None:
        now = time.monotonic()
        if now - self._reported >= _REPORT:
            self._reported = now
            self._journal.flush()
            self._client.progress(self._bytes)


def _version(wanted: Wanted) -> str:
    return f"{wanted.version} {wanted.size} {wanted.checksum}"
