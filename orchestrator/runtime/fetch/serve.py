"""Make a folder the objects that the other side names, fetched from where they are.

The conversation, in frames (transfer.frames), on standard input and output:

    them  {"objects": [[path, size, version, checksum], …], "single"}
    us    {"links": [index, …]}         links for these, please; asked for as late as they are needed
    them  {"links": [[url, {header: value}], …]}
    us    {"bytes": n}                  that came so far; now and then
    us    {"digest", "sha256": […], "fetched", "damaged"}
                                        of what now lies here, of every object, how many came and how many
                                        had to come again
    at any time, us  {"error", "text", …}   and the end

The tree is left as `apply` leaves it, with its manifest and stamps. Files take their places one by one, each
whole and verified; what belongs to no object is removed at the end.
"""

# ruff: noqa: PTH103, PTH118

# Thin over the kernel: descriptors, modes and races are said in os calls.
# ruff: noqa: PTH208

from __future__ import annotations

import os
import queue
import shutil
import sys
import time
from typing import Any, Dict, List, Set

from ..transfer import apply, record, tree
from ..transfer.apply import Refused, Say
from ..transfer.confined import Confined
from ..transfer.entries import Row, difference, digest
from ..transfer.frames import Broken, Read, Write, receive, send
from .download import PART, Arrived, Damaged, Event, Failed, Link, Part, Pool, Staging, Verified, Wanted
from .journal import Came, Journal

_AHEAD = 256
"""Objects that have links and are not here yet, at most."""
_THREADS = 24
_TRIES = 3
_REPORT = 0.5
_FILE, _FOLDER = 0o444, 0o755


def main(argv: List[str]) -> int:
    """[root]. Exit status 1 where the tree is not there, 2 for a wrong command line."""
    if len(argv) != 1:
        print(__doc__, file=sys.stderr)
        return 2
    return serve(argv[0], tree.incoming(), tree.outgoing())


def serve(root: str, read: Read, write: Write) -> int:
    """Hold the conversation."""

    def say(message: Any) -> None:
        send(write, message)
        write(b"")

    try:
        ask = receive(read)
        wanted = [Wanted(*row) for row in ask["objects"]]
        rows = rows_of(wanted)
        apply.refuse_hostile(rows)
        place = apply.make_place(root, ask["single"])
        with apply.alone(place):
            taken = _Fetch(place, wanted, read, say).run(rows)
            if ask["single"]:
                apply.expose(place, ask["single"], root)
                record.restamp(place, [ask["single"]], ())
        say(taken)
    except Refused as refusal:
        say(refusal.facts)
    except Broken as error:
        print(f"The fetch ended early: {error}.", file=sys.stderr)
    except OSError as error:
        say({"error": "failed", "text": str(error)})
    else:
        return 0
    return 1


def rows_of(wanted: List[Wanted]) -> List[Row]:
    """The tree that the objects make, without hashes: files, and the folders above them."""
    folders: Set[str] = set()
    for each in wanted:
        parts = each.path.split("/")
        folders.update("/".join(parts[:depth]) for depth in range(1, len(parts)))
    rows = [Row(path, "dir", mode=_FOLDER) for path in folders]
    return rows + [Row(each.path, "file", each.size, _FILE, "0" * 64) for each in wanted]


class _Fetch:
    """One tree being fetched."""

    def __init__(self, place: str, wanted: List[Wanted], read: Read, say: Say) -> None:
        self._place = place
        self._wanted = wanted
        self._read = read
        self._say = say
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

    def run(self, rows: List[Row]) -> Dict[str, Any]:
        """Fetch what is missing; the last message of the conversation."""
        recalled = record.recall(self._place)
        need = self._needed(recalled)
        with Confined(self._place) as target:
            self._clear(target, rows)
            if need:
                self._fetch(target, need)
        hash_of = {each.path: self._hashes[number] for number, each in enumerate(self._wanted)}
        full = [row._replace(digest=hash_of.get(row.path, "")) for row in rows]
        have, known = apply.look(self._place, self._known)
        if digest(have) != digest(full):
            raise Refused("differs", "What lies here is not what was fetched.", path="")
        record.record(self._place, full, tree.settled(known, self._known, time.time_ns()))
        shutil.rmtree(f"{self._place}.part", ignore_errors=True)
        hashes = [self._hashes[number] for number in range(len(self._wanted))]
        self._journal.rewrite(
            [
                Came(each.path, _version(each), hashes[number], known[each.path][0])
                for number, each in enumerate(self._wanted)
            ]
        )
        return {"digest": digest(full), "sha256": hashes, "fetched": self._fetched, "damaged": self._damaged}

    # ------------------------------------------------------------ what is here

    def _needed(self, recalled: tree.Known) -> List[int]:
        """The objects that do not lie here, in the order that was asked for."""
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
        """Remove what belongs to no object, and make the folders."""
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
        pool = Pool(staging, self._wanted, _THREADS)
        waiting: List[int] = list(reversed(need))
        under_way: Set[int] = set()
        try:
            while waiting or under_way:
                if waiting and len(under_way) <= _AHEAD // 2:
                    batch = [waiting.pop() for _ in range(min(_AHEAD - len(under_way), len(waiting)))]
                    under_way.update(batch)
                    self._begin(pool, staging, batch)
                self._take(pool, staging, target, under_way)
        finally:
            pool.close()
            self._journal.close()

    def _require_room(self, stage: str, need: List[int]) -> None:
        """Refuse where the disk cannot hold the rest; what lies in staging is there already."""
        there = sum(os.lstat(os.path.join(stage, name)).st_blocks * 512 for name in os.listdir(stage))
        size = sum(self._wanted[number].size for number in need)
        if size - there > apply.free(stage):
            raise apply.full(stage, size)

    def _begin(self, pool: Pool, staging: Staging, batch: List[int]) -> None:
        """Ask for links, and put the parts to read before the threads."""
        self._ask_links(batch)
        for number in batch:
            link = self._links[number]
            wanted = self._wanted[number]
            for first in staging.missing(wanted):
                pool.tasks.put(Part(number, first, min(PART, wanted.size - first), link))

    def _ask_links(self, numbers: List[int]) -> None:
        self._say({"links": numbers})
        answer = receive(self._read)["links"]
        if len(answer) != len(numbers):
            raise Broken("there is not a link for every object")
        for number, (url, headers) in zip(numbers, answer):  # noqa: B905  (`strict` came after 3.9)
            self._links[number] = Link(url, headers)

    def _take(self, pool: Pool, staging: Staging, target: Confined, under_way: Set[int]) -> None:
        """Act on what the threads report."""
        event: Event
        try:
            event = pool.events.get(timeout=_REPORT)
        except queue.Empty:
            self._report()
            return
        if isinstance(event, Arrived):
            self._bytes += event.bytes
            if event.bytes:
                self._denied.pop(event.number, None)
        elif isinstance(event, Verified):
            self._settle(staging, target, event)
            under_way.discard(event.number)
        elif isinstance(event, Damaged):
            self._damaged += 1
            self._again(self._corrupt, event.number, "corrupt", "its bytes are not what its checksum says")
            self._begin(pool, staging, [event.number])
        else:
            self._retry(pool, event)
        self._report()

    def _retry(self, pool: Pool, failed: Failed) -> None:
        """Another link where the old one is not taken any more; everything else ends the fetch."""
        if failed.kind == "disk":
            raise OSError(failed.text)
        if failed.kind != "denied":
            raise self._refused(failed.part.number, failed.kind, failed.text)
        number = failed.part.number
        if self._links[number] == failed.part.link:  # no other part has asked for a new one meanwhile
            self._again(self._denied, number, failed.kind, failed.text)
            self._ask_links([number])
        pool.tasks.put(failed.part._replace(link=self._links[number]))

    def _again(self, tries: Dict[int, int], number: int, kind: str, text: str) -> None:
        tries[number] = tries.get(number, 0) + 1
        if tries[number] >= _TRIES:
            raise self._refused(number, kind, text)

    def _refused(self, number: int, kind: str, text: str) -> Refused:
        return Refused(f"object_{kind}", text, path=self._wanted[number].path)

    def _settle(self, staging: Staging, target: Confined, whole: Verified) -> None:
        """Put a verified object where it belongs, then write down that it came."""
        wanted = self._wanted[whole.number]
        folder, name = target.at(wanted.path)
        fd = os.open(staging.path(whole.name), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            os.fchmod(fd, _FILE)
            os.rename(staging.path(whole.name), name, dst_dir_fd=folder)
            stamp = tree.stamp_of(os.fstat(fd))
        finally:
            os.close(fd)
        staging.drop(whole.name)
        self._hashes[whole.number] = whole.sha256
        self._known[wanted.path] = (stamp, whole.sha256)
        self._journal.add(Came(wanted.path, _version(wanted), whole.sha256, stamp))
        self._fetched += 1

    def _report(self) -> None:
        now = time.monotonic()
        if now - self._reported >= _REPORT:
            self._reported = now
            self._journal.flush()
            self._say({"bytes": self._bytes})


def _version(wanted: Wanted) -> str:
    return f"{wanted.version} {wanted.size} {wanted.checksum}"
