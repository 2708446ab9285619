"""Trees on this side: list and hash a tree, receive one, or send files of one.

scan ROOT    print one JSON object: digest, entries (rows of model.Entry), special, unreadable
apply ROOT   make ROOT equal to a tree that the client sends in frames (see apply.py)
pack         read a frame {"root", "paths", "sizes"}; send these files' bodies, each at most that long
"""

# ruff: noqa: ARG002

from __future__ import annotations

import gc
import hashlib
import json
import os
import stat
import sys
from typing import Any, Dict, List, NamedTuple, Optional, Set, Tuple

from .confined import Confined, pieces
from .entries import Row, digest, ordered, raw, text
from .frames import PIECE, Broken, first_bytes, receive, send_body
from .squeeze import Squeeze

RACY = 60_000_000_000
"""Nanoseconds: a file that was written so recently may be written again without a new ctime.

That is possible within one clock tick, and by a memory mapping until the kernel has written its dirty page.
"""

Stamp = Tuple[int, int, int, int, int]
"""size, mtime_ns, inode, ctime_ns, device: if equal, the file was not written since.

A program can set the modification time back after a write. No program can set the ctime.
"""
Known = Dict[str, Tuple[Stamp, str]]
"""path -> stamp and hash of a file whose content was read."""


class Found(NamedTuple):
    """An entry of a folder: its row, without a file's hash, and a file's stamp."""

    row: Row
    stamp: Optional[Stamp]


class Survey(NamedTuple):
    """The entries below a folder, unread. `special` are sockets, pipes and devices."""

    found: List[Found]
    special: List[str]
    unreadable: List[Tuple[str, str]]


_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

CHANGING = "it was written while it was read"


class Changing(OSError):
    """A file was written or replaced while it was read."""

    def __init__(self) -> None:
        super().__init__(CHANGING)


class Chooser:
    """Decide what belongs to a tree; this one: everything."""

    def enter(self, path: str, names: Set[str]) -> bool:
        """Whether the folder `path` ("" is the root), which has the entries `names`, belongs to the tree."""
        return True

    def keep(self, path: str, is_folder: bool) -> bool:
        """Whether `path` belongs to the tree; called after its folder was entered, and before a folder is."""
        return True


def survey(root: str, chooser: Optional[Chooser] = None) -> Survey:
    """List the folder `root` without reading any file or following links to folders."""
    result = Survey([], [], [])
    try:
        top = os.open(raw(root), _FOLDER)
    except OSError as error:
        result.unreadable.append((".", error.strerror or str(error)))
        return result
    _survey(top, "", chooser or Chooser(), result)
    return result


def _survey(folder: int, inside: str, chooser: Chooser, result: Survey) -> bool:
    """Add the entries of the open `folder`, and close it; returns False if the chooser excludes it."""
    try:
        with os.scandir(folder) as listing:
            items = sorted((_name_of(item), item) for item in listing)
        if not chooser.enter(inside, {name for name, _ in items}):
            return False
        for name, item in items:
            path = f"{inside}/{name}" if inside else name
            _survey_item(folder, name, item, path, chooser, result)
    except OSError as error:
        result.unreadable.append((inside or ".", error.strerror or str(error)))
    finally:
        os.close(folder)
    return True


def _name_of(item: "os.DirEntry[str]") -> str:
    return item.name if item.name.isascii() else text(os.fsencode(item.name))


def _survey_item(
    folder: int, name: str, item: "os.DirEntry[str]", path: str, chooser: Chooser, result: Survey
) -> None:
    is_folder = item.is_dir(follow_symlinks=False)
    if not chooser.keep(path, is_folder):
        return
    try:
        about = item.stat(follow_symlinks=False)
        if not is_folder:
            _add(path, folder, about, result)
            return
        below = os.open(raw(name), _FOLDER, dir_fd=folder)
    except OSError as error:
        result.unreadable.append((path, error.strerror or str(error)))
        return
    place = len(result.found)
    if _survey(below, path, chooser, result):
        # The owner of the copy must be able to fill the folder and to empty it.
        mode = stat.S_IMODE(about.st_mode) & 0o777 | 0o700
        result.found.insert(place, Found(Row(path, "dir", mode=mode), None))


def _add(path: str, folder: int, about: os.stat_result, result: Survey) -> None:
    if stat.S_ISREG(about.st_mode):
        row = Row(path, "file", about.st_size, about.st_mode & 0o777)
        result.found.append(Found(row, stamp_of(about)))
    elif stat.S_ISLNK(about.st_mode):
        name = raw(path.rpartition("/")[2])
        result.found.append(Found(Row(path, "link", target=text(os.readlink(name, dir_fd=folder))), None))
    else:
        result.special.append(path)


def stamp_of(about: os.stat_result) -> Stamp:
    return about.st_size, about.st_mtime_ns, about.st_ino, about.st_ctime_ns, about.st_dev


def content(path: bytes) -> Tuple[str, Stamp]:
    """Return the SHA-256 of a regular file, and its stamp. Raises Changing if it was written meanwhile.

    For a file that only grew, such as a log, the size at the beginning counts.
    """
    return content_of(os.open(path, _FILE))


def content_of(fd: int) -> Tuple[str, Stamp]:
    """Like `content`, for an open file, which is closed."""
    try:
        before = os.fstat(fd)
        if not stat.S_ISREG(before.st_mode):
            raise Changing
        hasher, left = hashlib.sha256(), before.st_size
        while left:
            piece = os.read(fd, min(PIECE, left))
            if not piece:
                raise Changing
            hasher.update(piece)
            left -= len(piece)
        after = os.fstat(fd)
        if stamp_of(after) != stamp_of(before) and after.st_size <= before.st_size:
            raise Changing
        return hasher.hexdigest(), stamp_of(before)
    finally:
        os.close(fd)


def read(root: str, listed: Survey, known: Known) -> Tuple[List[Row], Known]:
    """Return the survey's rows with every file's hash, and the stamps that are known now.

    A file whose stamp is `known` is not read again. Unreadable files are added to `listed.unreadable`.
    """
    if not any(found.row.kind == "file" for found in listed.found):
        return [found.row for found in listed.found], {}
    with Confined(root) as inside:
        return _read(inside, listed, known)


def _read(inside: Confined, listed: Survey, known: Known) -> Tuple[List[Row], Known]:
    rows, now = [], {}
    for row, stamp in listed.found:
        if row.kind != "file":
            rows.append(row)
            continue
        old = known.get(row.path)
        try:
            if old is not None and old[0] == stamp:
                now[row.path] = old
            else:
                folder, name = inside.at(row.path)
                hashed, seen = content_of(os.open(name, _FILE, dir_fd=folder))
                now[row.path] = (seen, hashed)
        except OSError as error:
            listed.unreadable.append((row.path, error.strerror or str(error)))
            continue
        seen, hashed = now[row.path]
        rows.append(Row(row.path, row.kind, seen[0], row.mode, hashed))
    return rows, now


def settled(known: Known, trusted: Known, now_ns: int) -> Known:
    """Return the part of `known` that can be trusted later: `trusted` unchanged, and files that last changed
    some time ago.
    """
    return {
        path: seen for path, seen in known.items() if seen[0][3] < now_ns - RACY or trusted.get(path) == seen
    }


# ---------------------------------------------------------------- verbs


def main(argv: List[str]) -> int:
    """[verb, …]. Exit status 2 for a wrong command line."""
    gc.disable()  # a short process that creates many small objects and keeps them
    verb, arguments = argv[0], argv[1:]
    if verb == "pack" and not arguments:
        return _pack()
    if verb == "scan" and len(arguments) == 1:
        print(json.dumps(scan(arguments[0]), separators=(",", ":")))
        return 0
    if verb == "apply" and len(arguments) == 1:
        from .apply import serve

        return serve(arguments[0], incoming(), outgoing())
    print(__doc__, file=sys.stderr)
    return 2


def scan(root: str) -> Dict[str, Any]:
    """Return the tree at `root`, with every file read."""
    listed = survey(root)
    rows, _ = read(root, listed, {})
    return {
        "digest": digest(rows),
        "entries": ordered(rows),
        "special": listed.special,
        "unreadable": listed.unreadable,
    }


def _pack() -> int:
    read_some, write = incoming(), outgoing()
    try:
        ask = receive(read_some)
        squeeze = Squeeze()
        with Confined(os.path.realpath(ask["root"])) as inside:
            for path, size in zip(ask["paths"], ask["sizes"]):  # noqa: B905  (`strict` came after 3.9)
                send_body(write, first_bytes(_body(inside, path), size), squeeze)
        write(b"")
    except (Broken, OSError) as error:
        print(f"Nothing was handed out: {error}", file=sys.stderr)
        return 1
    return 0


def _body(inside: Confined, path: str) -> Any:
    # A generator, so that failing to open a file fails only its own body.
    yield from pieces(inside.open_file(path))


def incoming() -> Any:
    return open(0, "rb", buffering=1 << 20, closefd=False).read


def outgoing() -> Any:
    """Return a function that writes through a buffer; an empty write flushes it."""
    out = open(1, "wb", buffering=1 << 18, closefd=False)  # noqa: SIM115

    def write(data: bytes) -> None:
        out.write(data)
        if not data:
            out.flush()

    return write
