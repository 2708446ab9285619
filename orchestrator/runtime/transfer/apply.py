"""Make a folder equal to a tree that the client sends: complete, verified, and repeatable after an
interruption.

The protocol, in frames, on standard input and output:

    client  {"verify"}                             before it has looked at its own tree
    server  {"digest", "rows": fingerprints}       of the tree that is here
    client  {"digest", "single"}                   the tree that is wanted
    client  {"drop": [index, …], "rows", "mtimes"} what turns the announced rows into those of that tree
    server  {"need": [index, …], "remove": n}      the files, of all that are wanted, whose bytes are not here
    client  one body for each of these
    server  {"digest"}                             of the resulting tree
    server  {"error", "text", …}                   at any time; the end

Before the client needs the fingerprints it scans its own tree, so that both sides look at the same time. The
lock is taken when the digest has come, not while a client hashes. If the tree changed until then, it is
looked at again.

Beside the folder are `<root>.part/`, which holds bodies, named by their hashes, until all have come, and
`<root>.manifest.json`: the tree as it was left, with the stamps that identify unchanged files. With `single`,
a name, the tree is one file of that name and `<root>` itself is that file.
"""

# ruff: noqa: PTH103, PTH105, PTH108, PTH110, PTH112, PTH113, PTH114, PTH118, PTH120, PTH121, PTH208

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import math
import os
import shutil
import sys
import time
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from ..space import is_full
from . import record, tree
from .confined import Confined, write_all
from .entries import (
    Difference,
    Row,
    conflicts,
    difference,
    digest,
    fingerprints,
    first_difference,
    hostile,
    ordered,
)
from .frames import PIECE, Broken, Gone, Read, Write, receive, receive_body, send

_PATIENCE = 10.0
_RECENT = 5.0
"""Seconds after which a look at a tree is repeated once the tree is locked."""


Say = Callable[[Any], None]


class Refused(Exception):
    """Why the tree was refused; `facts` are sent to the client unchanged."""

    def __init__(self, kind: str, sentence: str, **facts: Any) -> None:
        super().__init__(sentence)
        self.facts = {"error": kind, "text": sentence, **facts}


class Wanted(NamedTuple):
    rows: List[Row]
    mtimes: Dict[str, int]


class Seen(NamedTuple):
    """The tree at `root`: its rows and their digest, stamps and hashes; as it was `left` before, and the
    record's `mark`; when that was, in seconds."""

    root: str
    rows: List[Row]
    digest: str
    known: tree.Known
    left: record.Left
    mark: Optional[tree.Stamp]
    at: float


def serve(root: str, read: Read, write: Write) -> int:
    """Run the protocol. Returns exit status 1 if the tree was not accepted."""

    def say(message: Any) -> None:
        send(write, message)
        write(b"")

    try:
        verify = receive(read)["verify"]
        announced = _glance(record.folder_of(root), verify)
        say({"digest": announced.digest, "rows": "".join(fingerprints(announced.rows))})
        ask = receive(read)
        place = make_place(root, ask["single"])
        with alone(place):
            taken = _take(_now(announced, place, verify), announced, ask["digest"], read, say)
            if ask["single"]:
                expose(place, ask["single"], root)
                record.restamp(place, [ask["single"]], ())
        say({"digest": taken})
    except Refused as refusal:
        say(refusal.facts)
    except Broken as error:
        print(f"The tree was left as it was: {error}.", file=sys.stderr)
    except OSError as error:
        say({"error": "no_space" if is_full(error) else "failed", "text": str(error)})
    else:
        return 0
    return 1


def _take(seen: Seen, announced: Seen, wanted: str, read: Read, say: Say) -> str:
    root, have, known = seen.root, seen.rows, seen.known
    trusted = dict(seen.left.known)
    if seen.digest != wanted:
        want = _wanted(announced, receive(read), wanted)
        placed = _become(root, have, want, read, say)
        known.update(placed)
        trusted.update(placed)  # written by this process, in a folder that only it uses
        have, known = look(root, known)
        if have != want.rows:
            path = first_difference(have, want.rows)
            raise Refused("differs", "The files here differ from what was sent.", path=path)
    else:
        say({"need": [], "remove": 0})
    trusted = tree.settled(known, trusted, time.time_ns())
    if trusted != seen.left.known or seen.left.digest != wanted:
        record.record(root, have, wanted, trusted)
    shutil.rmtree(f"{root}.part", ignore_errors=True)
    return wanted


def _wanted(announced: Seen, message: Dict[str, Any], wanted: str) -> Wanted:
    """Return the tree with the digest `wanted`: the announced one with the client's changes."""
    rows = [Row(*row) for row in message["rows"]]
    dropped = set(message["drop"])
    kept = [row for number, row in enumerate(announced.rows) if number not in dropped]
    want = ordered([*kept, *rows])
    refuse_hostile(rows)
    for path, why in conflicts(want):
        raise Refused("hostile", f"{path!r} is refused: {why}.", path=path)
    if digest(want) != wanted:
        raise Refused("failed", "The list of files is not the one that was announced.")
    mtimes = {path: stamp[1] for path, (stamp, _) in announced.known.items()}
    mtimes.update(zip((row.path for row in rows), message["mtimes"]))  # noqa: B905  (`strict` came after 3.9)
    return Wanted(want, mtimes)


def _become(root: str, have: List[Row], want: Wanted, read: Read, say: Say) -> tree.Known:
    """Turn the tree at `root` into the wanted one; returns stamps and hashes of the files that were put in
    place."""
    change = difference(have, want.rows)
    record.touch(root)
    stage = f"{root}.part"
    os.makedirs(stage, mode=0o700, exist_ok=True)
    with Confined(stage) as inside, Confined(root) as target:
        need = _needed(inside, want, change)
        bodies = [want.rows[number] for number in need]
        size = sum(row.size for row in bodies)
        if size > free(stage):
            raise full(stage, size)
        say({"need": need, "remove": len(change.remove)})
        try:
            _receive(inside, bodies, want.mtimes, read)
            return _settle(target, inside, want, change)
        except OSError as error:
            if not is_full(error):
                raise
            shutil.rmtree(stage, ignore_errors=True)
            raise full(stage, size) from error


def make_place(root: str, single: str) -> str:
    """Create and return the folder of the tree: `root`, or one beside it if `root` is to be a file."""
    place = f"{root}.single" if single else root
    if os.path.islink(place):
        raise Refused("hostile", f"{place} is a link here, and links are not followed.")
    if os.path.isfile(place):
        os.unlink(place)
    os.makedirs(place, exist_ok=True)
    return place


@contextlib.contextmanager
def alone(root: str) -> Iterator[None]:
    """Lock the folder against other syncs. Raises Refused if it stays locked for ten seconds."""
    fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    try:
        deadline = time.monotonic() + _PATIENCE
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise Refused("busy", f"Another sync of {root} is under way.") from None
                time.sleep(0.05)
        yield
    finally:
        os.close(fd)


# ---------------------------------------------------------------- the present tree


def look(root: str, known: tree.Known) -> Tuple[List[Row], tree.Known]:
    """Return the rows of the tree, in order, and the stamps and hashes of its files."""
    listed = tree.survey(root)
    rows, now = tree.read(root, listed, known)
    if listed.unreadable:
        path, why = listed.unreadable[0]
        raise Refused("failed", f"{root}/{path} cannot be read here: {why}.", path=path)
    return ordered(rows + [Row(path, "special") for path in listed.special]), now


def _glance(root: str, verify: bool) -> Seen:
    """Look at the tree without its lock: nothing is seen if there is none, or if another sync is at it."""
    try:
        return _see(root, verify)
    except (Refused, OSError):
        return Seen(root, [], digest([]), {}, record.Left("", {}), None, -math.inf)


def _see(root: str, verify: bool) -> Seen:
    at, mark, left = time.monotonic(), record.mark(root), record.recall(root)
    rows, known = look(root, {} if verify else left.known)
    return Seen(root, rows, digest(rows), known, left, mark, at)


def _now(seen: Seen, root: str, verify: bool) -> Seen:
    """Return the tree at `root`, which is locked: as it was seen, if that was just now, and if no sync and no
    run has touched it since."""
    recent = time.monotonic() - seen.at < _RECENT
    if recent and root == seen.root and seen.mark is not None and seen.mark == record.mark(root):
        return seen
    return _see(root, verify)


# ---------------------------------------------------------------- receiving


def refuse_hostile(rows: Sequence[Row]) -> None:
    for path, why in hostile(rows, sealed=False):
        raise Refused("hostile", f"{path!r} is refused: {why}.", path=path)


def _needed(stage: Confined, want: Wanted, change: Difference) -> List[int]:
    """Return one index for each body that is neither here nor in staging from an earlier attempt."""
    wanted = {want.rows[number].digest for number in change.content}
    seen = set()
    for name in os.listdir(stage.fd):
        if name in wanted and _is_whole(stage, name):
            seen.add(name)
        else:
            stage.remove(name)
    need = []
    for number in change.content:
        if want.rows[number].digest not in seen:
            seen.add(want.rows[number].digest)
            need.append(number)
    return need


def _is_whole(stage: Confined, name: str) -> bool:
    with open(stage.open_file(name), "rb") as file:
        hasher = hashlib.sha256()
        for piece in iter(lambda: file.read(PIECE), b""):
            hasher.update(piece)
    return hasher.hexdigest() == name


def free(place: str) -> int:
    about = os.statvfs(os.path.dirname(place))
    return about.f_bavail * about.f_frsize


def full(place: str, needed: int) -> Refused:
    left = free(place)
    return Refused("disk_full", f"{needed} bytes are needed and {left} are free.", needed=needed, free=left)


def _receive(stage: Confined, rows: Sequence[Row], mtimes: Dict[str, int], read: Read) -> None:
    """Receive every body. Raises Refused with the paths of files that do not match their rows."""
    changed = []
    for row in rows:
        fd = stage.create_file(row.digest)
        try:
            hashed = _receive_one(fd, read)
            os.fchmod(fd, row.mode & 0o777 | 0o400)  # it can be read if this attempt is interrupted
            os.utime(fd, ns=(mtimes[row.path],) * 2)
        except Gone:
            hashed = ""
        finally:
            os.close(fd)
        if hashed != row.digest:
            stage.remove(row.digest)
            changed.append(row.path)
    if changed:
        raise Refused("changed", "Files changed while they were sent.", paths=changed)


def _receive_one(fd: int, read: Read) -> str:
    hasher = hashlib.sha256()
    for piece in receive_body(read):
        hasher.update(piece)
        write_all(fd, piece)
    return hasher.hexdigest()


# ---------------------------------------------------------------- putting files in place


def _settle(target: Confined, stage: Confined, want: Wanted, change: Difference) -> tree.Known:
    """Remove unwanted paths, then create the wanted ones; returns stamps and hashes of the files put in
    place."""
    for path in reversed(change.remove):
        target.remove(path)
    target.forget()
    left: Dict[str, int] = {}
    for number in change.content:
        left[want.rows[number].digest] = left.get(want.rows[number].digest, 0) + 1
    content, placed = set(change.content), {}
    for number in sorted(content | set(change.shape)):
        row = want.rows[number]
        if number in content:
            left[row.digest] -= 1
            source = row.digest if not left[row.digest] else _copy(stage, row.digest)
            placed[row.path] = (_place(target, stage, source, row, want.mtimes[row.path]), row.digest)
        elif row.kind == "dir":
            target.make_folder(row.path, row.mode)
        elif row.kind == "link":
            target.make_link(row.path, row.target)
        else:
            target.set_mode(row.path, row.mode)
    return placed


def _copy(stage: Confined, name: str) -> str:
    with open(stage.open_file(name), "rb") as source:
        fd = os.open("copy", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600, dir_fd=stage.fd)
        with open(fd, "wb") as sink:
            shutil.copyfileobj(source, sink, PIECE)
    return "copy"


def _place(target: Confined, stage: Confined, source: str, row: Row, mtime: int) -> tree.Stamp:
    """Rename a staged file to its place, with its mode and time; returns its new stamp."""
    staged = os.stat(source, dir_fd=stage.fd, follow_symlinks=False)
    if (staged.st_mode & 0o7777, staged.st_mtime_ns) != (row.mode & 0o777, mtime):
        fd = stage.open_file(source)
        try:
            os.fchmod(fd, row.mode & 0o777)
            os.utime(fd, ns=(mtime, mtime))
        finally:
            os.close(fd)
    folder, name = target.at(row.path)
    os.rename(source, name, src_dir_fd=stage.fd, dst_dir_fd=folder)
    size, seen, _, ctime, device = tree.stamp_of(os.stat(name, dir_fd=folder, follow_symlinks=False))
    return size, seen, staged.st_ino, ctime, device  # of the staged file, whatever has its name now


def expose(place: str, name: str, root: str) -> None:
    """Make `root` itself the single file of the tree at `place`, by a hard link."""
    file = os.path.join(place, name)
    if os.path.exists(root) and os.path.samefile(root, file):
        return
    if os.path.isdir(root) and not os.path.islink(root):
        shutil.rmtree(root)
    link = f"{root}.link"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(link)
    os.link(file, link)
    os.replace(link, root)
