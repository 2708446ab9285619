"""Scan a folder, or one file, into a Manifest."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from orchestrator.errors import SyncError
from orchestrator.model import Entry, Manifest
from orchestrator.runtime.transfer import tree
from orchestrator.runtime.transfer.entries import Row, digest, folded, leads_out, ordered, raw, text
from orchestrator.sync import cache as hashes
from orchestrator.sync.ignore import Ignore

_ATTEMPTS = 3

_LARGE = 16 << 30
"""Files of at least so many bytes are checked for being sparse: all their bytes would be read and sent."""

_HOLLOW = 64
"""A file is sparse if its size is more than so many times what it uses on disk. Compressing file systems
stay below.
"""


@dataclass(frozen=True)
class Scan:
    """What was found at `root`.

    `skipped`: (path, why) of what does not belong to the tree; a folder has a trailing slash, and what is
    below it is not listed. `unreadable`: (path, why) of what belongs to the tree and cannot be sent.
    `warnings`: sentences about what will be different on the other side. `single`: the file's name if the
    root is one file.
    """

    root: Path
    manifest: Manifest
    skipped: tuple[tuple[str, str], ...] = ()
    unreadable: tuple[tuple[str, str], ...] = ()
    warnings: tuple[str, ...] = ()
    single: str = ""
    mtimes: Mapping[str, int] = field(default_factory=dict)
    """path -> modification time in nanoseconds, of files."""


def scan(root: Path, *, ignore: Sequence[str] = (), cache: Path | None = None, data: bool = False) -> Scan:
    """Scan `root`, a folder or a file.

    `ignore`: further patterns in the syntax of .gitignore, relative to the root. `cache`: a folder for
    hashes. With `data`, .gitignore does not apply, because git usually ignores data; and files are made
    read-only, because all runs share what is sent. Raise SyncError if `root` does not exist, or if files
    never stop changing.
    """
    top = root.resolve()
    if top.is_file():
        return _scan_file(top, data)
    if not top.is_dir():
        raise SyncError(f"{root} does not exist.")
    known = hashes.load(cache, top)
    chooser = Ignore(top, ignore, gitignore=not data)
    listed = tree.survey(os.fspath(text(os.fsencode(top))), chooser)
    _refuse_holes(top, [found.row for found in listed.found])
    rows, now = _read(top, listed, known)
    rows = [_read_only(row) for row in rows] if data else rows
    hashes.save(cache, top, known, now)
    skipped = chooser.skipped + [(path, "neither file, folder nor link") for path in listed.special]
    return Scan(
        top,
        manifest_of(rows),
        tuple(skipped),
        tuple(listed.unreadable),
        tuple(_warnings(rows)),
        mtimes={path: stamp[1] for path, (stamp, _) in now.items()},
    )


def manifest_of(rows: Iterable[Row]) -> Manifest:
    in_order = ordered(list(rows))
    return Manifest(tuple(Entry(*row) for row in in_order), digest(in_order))


def _read_only(row: Row) -> Row:
    return row._replace(mode=row.mode & 0o555) if row.kind == "file" else row


def _scan_file(path: Path, data: bool) -> Scan:
    name = text(os.fsencode(path.name))
    _refuse_holes(path.parent, [Row(name, "file", path.stat().st_size)])
    try:
        hashed, stamp = tree.content(os.fsencode(path))
        mode = path.stat().st_mode & 0o777
    except tree.Changing as error:
        raise _never_still([name]) from error
    except OSError as error:
        why = error.strerror or str(error)
        return Scan(path, manifest_of([]), unreadable=((name, why),), single=name)
    row = Row(name, "file", stamp[0], mode, hashed)
    return Scan(path, manifest_of([_read_only(row) if data else row]), single=name, mtimes={name: stamp[1]})


def _refuse_holes(top: Path, rows: Iterable[Row]) -> None:
    """Raise SyncError for a large file that is nearly all hole, before it is read for hours."""
    for row in rows:
        if row.kind != "file" or row.size < _LARGE:
            continue
        with suppress(OSError):
            held = (top / os.fsdecode(raw(row.path))).lstat().st_blocks * 512
            if held * _HOLLOW < row.size:
                raise SyncError(
                    f"{top / shown([row.path])} has {row.size:,} bytes, of which {held:,} are on disk: it "
                    "is a sparse file, and all of them would be read and sent.",
                    next_command="name it in .orchignore, or shorten it with truncate",
                )


def _read(top: Path, listed: tree.Survey, known: tree.Known) -> tuple[list[Row], tree.Known]:
    """Read the listed files, and read those that changed meanwhile again. Raise SyncError if they never
    stop changing.
    """
    place = text(os.fsencode(top))
    unreadable = list(listed.unreadable)
    for _ in range(_ATTEMPTS):
        listed.unreadable[:] = unreadable
        rows, known = tree.read(place, listed, known)
        changing = [path for path, why in listed.unreadable if why == tree.CHANGING]
        if not changing:
            return rows, known
    raise _never_still(changing)


def _never_still(paths: Sequence[str]) -> SyncError:
    return SyncError(
        f"{shown(paths)} kept changing while being read. Wait for the program that writes there, "
        "or name it in .orchignore."
    )


def _warnings(rows: Sequence[Row]) -> Iterable[str]:
    seen: dict[str, str] = {}
    for row in rows:
        other = seen.setdefault(folded(row.path), row.path)
        if other != row.path:
            yield (
                f"{shown([other, row.path])} differ only in case or in how their characters are composed; "
                "some file systems treat them as one."
            )
        if row.kind == "link" and leads_out(row):
            yield (
                f"{shown([row.path])} is a link that leads out of the folder, to {shown([row.target])}: "
                "on the machine it would lead somewhere else, or nowhere."
            )


def shown(paths: Sequence[str], limit: int = 5) -> str:
    """Return the first few paths in one line, for a message."""
    names = [path.encode("utf-8", "backslashreplace").decode() for path in paths[:limit]]
    more = f" and {len(paths) - limit} more" if len(paths) > limit else ""
    return ", ".join(names) + more
