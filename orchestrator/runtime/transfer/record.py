"""The record of a tree that was sent here, in `<root>.manifest.json`: rows, digest, stamps of files.

An equal stamp (see tree.Stamp) proves that a file has not changed since it was hashed. Linking a file changes
its ctime, so whoever links files of a tree verifies them first and then records their new stamps, while
holding the tree's lock.
"""

# Close to the kernel: descriptors, modes and races need os calls, not pathlib.
# ruff: noqa: PTH105, PTH113, PTH118

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from typing import Any, Collection, Dict, Iterator, List, NamedTuple, Optional, Sequence, Set, Tuple

from . import tree
from .entries import Row, ordered, raw

SCHEMA = 2


class Altered(Exception):
    """A tree differs from what was sent. The text is a sentence for users."""


def folder_of(root: str) -> str:
    """Return the folder of the tree at `root`: one beside it if the tree is a single file."""
    return f"{root}.single" if os.path.isfile(root) else root


@contextlib.contextmanager
def locked(root: str) -> Iterator[None]:
    """Prevent other processes from applying to the folder or linking its files meanwhile."""
    fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


class Left(NamedTuple):
    """A tree as it was left. `digest`: "" if none was recorded; `known`: none after a reboot, because not all
    files were on disk before it."""

    digest: str
    known: tree.Known


def recall(root: str) -> Left:
    """Return the tree as it was left."""
    known = _read(root)
    try:
        if known is None or known["boot"] != _boot():
            return Left("" if known is None else str(known["digest"]), {})
        hashes = {entry[0]: entry[4] for entry in known["entries"]}
        stamps = {path: (tuple(stamp), hashes[path]) for path, stamp in known["stamps"].items()}
        return Left(str(known["digest"]), stamps)
    except (ValueError, KeyError, TypeError, IndexError):
        return Left("", {})


def mark(root: str) -> Optional[tree.Stamp]:
    """Return a stamp of the record, which is another one after a sync of the tree and after its files were
    linked; None if there is no record."""
    try:
        return tree.stamp_of(os.lstat(f"{root}.manifest.json"))
    except OSError:
        return None


def touch(root: str) -> None:
    """Let the record have another mark: the tree is about to change."""
    now = time.time_ns()
    with contextlib.suppress(FileNotFoundError):
        os.utime(f"{root}.manifest.json", ns=(now, now))


def record(root: str, rows: Sequence[Row], found: str, trusted: tree.Known) -> None:
    """Record the tree as it was left; `found` is the digest of `rows`."""
    _write(
        root,
        {
            "schema": SCHEMA,
            "boot": _boot(),
            "digest": found,
            "entries": ordered(rows),
            "stamps": {path: stamp for path, (stamp, _) in trusted.items()},
        },
    )


def verify(root: str, expected: str) -> Tuple[Dict[str, str], Set[str]]:
    """Return path -> hash of every file of the tree, after checking the digest `expected`. Raises Altered.

    A file whose stamp differs from the recorded one is read; the paths of these are returned too.
    """
    known = _read(root)
    if known is None or known["digest"] != expected:
        raise Altered("The tree on the machine is not the one that was sent.")
    hashes = {row[0]: row[4] for row in known["entries"] if row[1] == "file"}
    read = set()
    for path, hashed in hashes.items():
        place = os.path.join(raw(root), raw(path))
        try:
            noted = known["stamps"].get(path)
            same = noted is not None and _stamp(noted) == tree.stamp_of(os.lstat(place))
            if same:
                continue
            read.add(path)
            if tree.content(place)[0] != hashed:
                raise Altered(f"{path} was changed on the machine after it was sent.")
        except OSError as error:
            raise Altered(f"{path} cannot be read on the machine: {error.strerror}.") from error
    return hashes, read


def restamp(root: str, paths: Sequence[str], read: Collection[str]) -> Dict[str, tree.Stamp]:
    """Record and return the stamps of `paths` as they are now, after the files were verified and linked.

    Files that had to be `read` are not recorded: a process that wrote them may write again without changing
    the stamp (tree.RACY).
    """
    known = _read(root) or {}
    now = {path: tree.stamp_of(os.lstat(os.path.join(raw(root), raw(path)))) for path in paths}
    if known:
        trusted = {path: stamp for path, stamp in now.items() if path not in read}
        _write(root, {**known, "boot": _boot(), "stamps": trusted})
    return now


def proven(root: str, hashes: Dict[str, str]) -> Dict[str, tree.Stamp]:
    """Return the stamps of those files of `hashes` that are as they were when a run was last given them, and
    were verified then: no content is read.
    """
    known = _read(root) or {"entries": [], "stamps": {}}
    recorded = {row[0]: row[4] for row in known["entries"] if row[1] == "file"}
    found = {}
    for path, hashed in hashes.items():
        noted = known["stamps"].get(path)
        with contextlib.suppress(OSError):
            now = tree.stamp_of(os.lstat(os.path.join(raw(root), raw(path))))
            if noted is not None and recorded.get(path) == hashed and _stamp(noted) == now:
                found[path] = now
    return found


def _stamp(value: List[int]) -> tree.Stamp:
    size, mtime, inode, ctime, device = value
    return size, mtime, inode, ctime, device


def _read(root: str) -> Optional[Dict[str, Any]]:
    try:
        with open(f"{root}.manifest.json", encoding="utf-8") as file:
            known = json.load(file)
    except (OSError, ValueError):
        return None
    return known if isinstance(known, dict) and known.get("schema") == SCHEMA else None


def _write(root: str, value: Dict[str, Any]) -> None:
    part = f"{root}.manifest.json.part"
    # Not flushed to the disk: after a loss of power the stamps are not trusted anyway (see recall).
    with open(part, "w", encoding="utf-8") as file:
        file.write(json.dumps(value, separators=(",", ":")))
    os.replace(part, f"{root}.manifest.json")


def _boot() -> str:
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""
