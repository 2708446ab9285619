"""Download files from the other side, and verify them before they replace what is here."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import shutil
import stat
from collections.abc import Callable, Collection, Iterator, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from orchestrator.errors import Busy, LocalError, SyncError
from orchestrator.hosts import disk
from orchestrator.model import Agent, Entry, Host, NotFetched, Progress, Refused, Silent
from orchestrator.runtime.isolation.libc import checked, libc
from orchestrator.runtime.transfer import frames, tree
from orchestrator.runtime.transfer.confined import Confined, write_all
from orchestrator.runtime.transfer.entries import Row, difference, ordered, parents, text
from orchestrator.sync.scan import shown
from orchestrator.sync.sift import sift
from orchestrator.sync.talk import Talk

_STAGED = "files"
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_OF_THE_DISK = (*_FULL, errno.EIO, errno.EROFS, errno.EMFILE, errno.ENOMEM)
"""Errors after which no other file could be written either."""
_FEW = 100
_STILL_THERE = "The files are still on the machine."
_ROOM_FIRST = "orch pull    # once there is room; downloaded files are kept"


@dataclass(frozen=True)
class Pulled:
    """The result of a pull. `fetched_files` were transferred; the others were here already.

    `entries` are here now, each with the digest and size of what arrived; `refused` are not.
    """

    fetched_files: int
    entries: tuple[Entry, ...] = ()
    refused: tuple[NotFetched, ...] = ()


def pull(
    host: Host,
    agent: Agent,
    source_dir: str,
    entries: Sequence[Entry],
    target: Path,
    progress: Progress | None = None,
) -> Pulled:
    """Download `entries`, which lie below `source_dir` on the other side, into the folder `target`: all, or
    none.

    They are collected in `<target>.part` and checked by size and SHA-256. Only when all are correct are they
    moved to their places, each atomically. Other files in `target` stay. After an interruption or an error
    the parts stay too, and a repeated pull fetches only what is missing. Raise SyncError, with nothing
    written, if an entry must not be written here or has changed; LocalError if this computer cannot store it.
    """
    rows = ordered([_row(entry) for entry in entries])
    if refused := sift(rows, target.absolute())[1]:
        raise SyncError(
            f"{host.name} offers files that must not be written here: {_named(refused)}. Nothing was "
            "downloaded.",
            exists="The files are still on the machine.",
        )
    return _pull(_Transfer(host, agent, source_dir, progress or Silent()), rows, target)


def pull_possible(
    host: Host,
    agent: Agent,
    source_dir: str,
    entries: Sequence[Entry],
    target: Path,
    progress: Progress | None = None,
    *,
    as_read: bool = False,
) -> Pulled:
    """Download as `pull` does, but leave entries that must not or cannot be written, and list them in
    `refused`.

    A file that was appended to after it was listed arrives as it was listed. A file that changed otherwise is
    refused; with `as_read` it is accepted as it was read, at most as long as listed, with the digest of that
    content.
    """
    rows = ordered([_row(entry) for entry in entries])
    good, refused = sift(rows, target.absolute())
    transfer = _Transfer(host, agent, source_dir, progress or Silent(), True, as_read, refused)
    return _pull(transfer, good, target)


@dataclass(frozen=True)
class _Transfer:
    """The source of the files, and how to treat files that do not arrive: add them to `refused`, or stop."""

    host: Host
    agent: Agent
    source_dir: str
    progress: Progress
    partial: bool = False
    as_read: bool = False
    refused: list[NotFetched] = field(default_factory=list)

    def refuse(self, row: Row, reason: Refused, detail: str) -> None:
        self.refused.append(NotFetched(row.path, row.kind, reason, detail))


def _pull(transfer: _Transfer, rows: Sequence[Row], target: Path) -> Pulled:
    target = target.absolute()
    if target.exists() and not target.is_dir():
        raise SyncError(f"{target} is a file, so nothing was downloaded to it.")
    part = target.with_name(target.name + ".part")
    try:
        with _alone(part), _opened(part / _STAGED) as stage, _opened(target) as inside:
            places = _Places(part, stage, inside)
            there = _gather(transfer, rows, places)
            _flush(stage, there.staged)
            rows = _settle(transfer, places, there)
            shutil.rmtree(part)
    except OSError as error:
        raise _failed(target, error) from error
    came = tuple(Entry(*row) for row in rows)
    return Pulled(there.fetched, came, tuple(transfer.refused))


class _Places(NamedTuple):
    """The folder of a transfer's parts, the staged files in it, and the folder to which they belong."""

    part: Path
    stage: Confined
    target: Confined


def _opened(folder: Path) -> Confined:
    folder.mkdir(parents=True, exist_ok=True)
    return Confined(_text(folder))


def _text(path: Path) -> str:
    return text(os.fsencode(path))


def _row(entry: Entry) -> Row:
    return Row(entry.path, entry.kind, entry.size, entry.mode & 0o777, entry.digest, entry.target)


def _named(refused: Sequence[NotFetched]) -> str:
    return shown([f"{each.path!r} ({each.detail})" for each in refused])


@contextlib.contextmanager
def _alone(part: Path) -> Iterator[None]:
    part.mkdir(parents=True, exist_ok=True)
    fd = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Busy(
                f"Another process is downloading to {part} now.",
                next_command="repeat the command once that one has ended",
            ) from None
        yield
    finally:
        os.close(fd)


# ---------------------------------------------------------------- gathering


class _Gathered(NamedTuple):
    """The rows whose bytes are here; the paths of those that are not in place; how many were transferred."""

    rows: list[Row]
    staged: set[str]
    fetched: int


def _gather(transfer: _Transfer, rows: Sequence[Row], places: _Places) -> _Gathered:
    """Have the bytes of all rows here, transferring those that are neither staged nor in place."""
    lacking = _not_staged(places, rows)
    empty = not os.listdir(places.target.fd)  # noqa: PTH208
    missing = [row for row in lacking if empty or not _is_here(places.target, row)]
    staged = {row.path for row in rows if row.kind == "file"}.difference(row.path for row in lacking)
    _check_room(places.part, sum(row.size for row in missing))
    if not missing:
        return _Gathered(list(rows), staged, 0)
    with Talk(transfer.host, transfer.agent, "pack") as talk:
        ask = {"paths": [row.path for row in missing], "sizes": [row.size for row in missing]}
        talk.say({"root": transfer.source_dir, **ask})
        came = _fetch(transfer, talk, places, missing)
    wanted = {row.path for row in missing}
    there = [came.get(row.path, row) for row in rows if row.path not in wanted or row.path in came]
    return _Gathered(there, staged.union(came), len(came))


def _not_staged(places: _Places, rows: Sequence[Row]) -> list[Row]:
    """Return the files that no earlier attempt staged. Remove staged files that are no longer wanted."""
    place = _text(places.part / _STAGED)
    staged, _ = tree.read(place, tree.survey(place), {})
    files = [row for row in rows if row.kind == "file"]
    if not staged:
        return files
    above = {folder: Row(folder, "dir", mode=0o700) for row in files for folder in parents(row.path)}
    wanted = [*above.values(), *files]
    change = difference(staged, wanted)
    lacking = ordered([wanted[number] for number in change.content])
    held = {row.path for row in staged if row.kind == "file"}
    for path in (*reversed(change.remove), *(row.path for row in lacking if row.path in held)):
        places.stage.remove(path)
    places.stage.forget()
    return lacking


def _is_here(target: Confined, row: Row) -> bool:
    """Return whether the correct bytes are in place already, from an earlier pull."""
    about = target.look(row.path)
    if about is None or not stat.S_ISREG(about.st_mode) or about.st_size != row.size:
        return False
    try:
        return tree.content_of(target.open_file(row.path))[0] == row.digest
    except OSError:
        return False


def _check_room(part: Path, needed: int) -> None:
    if needed > disk.free(part):
        raise LocalError(
            f"The download to {part.parent} needs {disk.amount(needed)}, and {disk.shown(part)}. "
            "Nothing was downloaded.",
            exists=_STILL_THERE,
            next_command=_ROOM_FIRST,
        )


def _fetch(transfer: _Transfer, talk: Talk, places: _Places, rows: Sequence[Row]) -> dict[str, Row]:
    """Return the rows that arrived, by path. Raise SyncError if one did not, unless the transfer may be
    partial.
    """
    label = places.part.stem
    total, done, came, made = sum(row.size for row in rows), 0, dict[str, Row](), set[str]()
    for row in rows:
        try:
            came[row.path] = _fetch_one(talk, places, row, made, as_read=transfer.as_read)
        except (_Changed, frames.Gone):
            transfer.refuse(row, Refused.CHANGED, "it changed on the machine after it was listed there")
        except frames.Broken as error:
            raise talk.broken() from error
        except OSError as error:
            if error.errno in _OF_THE_DISK or not transfer.partial:
                raise
            transfer.refuse(row, Refused.NOT_WRITABLE, f"it cannot be written here: {error.strerror}")
        done += row.size
        transfer.progress.transfer(label, min(done, total - 1), total)
    if transfer.refused and not transfer.partial:
        raise SyncError(
            f"{shown([each.path for each in transfer.refused])} changed on the machine after they were "
            "listed. Existing files here are unchanged; the other files are kept for the next attempt.",
            next_command="orch pull",
        )
    transfer.progress.transfer(label, total, total)
    return came


class _Changed(Exception):
    """The received content does not match its row."""


def _fetch_one(talk: Talk, places: _Places, row: Row, made: set[str], *, as_read: bool) -> Row:
    """Download one file into staging and return its row; with `as_read`, with the size and hash of what
    arrived. `made`: the folders of the staging that exist, to which those above the file are added.

    Raise _Changed if the content is not the listed one. A file that did not arrive whole stays in staging,
    where the next attempt reads it and removes it.
    """
    try:
        fd = _create(places.stage, row.path, made)
    except OSError:
        _receive(talk, row, lambda _: None)  # the next body comes after this one
        raise
    try:
        came = _receive(talk, row, lambda piece: write_all(fd, piece))
        os.fchmod(fd, row.mode | 0o400)  # it can be read if this attempt is interrupted
    finally:
        os.close(fd)
    if came != row and not as_read:
        raise _Changed
    return came


def _create(stage: Confined, path: str, made: set[str]) -> int:
    for folder in parents(path):
        if folder not in made:
            stage.make_folder(folder, 0o700)
            made.add(folder)
    return stage.create_file(path)


def _receive(talk: Talk, row: Row, write: Callable[[bytes], None]) -> Row:
    """Hand the next body to `write`. Return the row with its size and hash."""
    hasher, size = hashlib.sha256(), 0
    for piece in frames.receive_body(talk.read):
        size += len(piece)
        if size > row.size:
            raise frames.Broken("more arrived than was requested")
        hasher.update(piece)
        write(piece)
    return row._replace(size=size, digest=hasher.hexdigest())


# ---------------------------------------------------------------- into place


def _settle(transfer: _Transfer, places: _Places, there: _Gathered) -> list[Row]:
    """Put every row in its place, and return the rows for which that succeeded."""
    changed, settled = {"."}, []
    for row in there.rows:
        try:
            changed.update(_settle_one(places, row, changed, staged=row.path in there.staged))
            settled.append(row)
        except OSError as error:
            if error.errno in _OF_THE_DISK or not transfer.partial:
                raise
            transfer.refuse(row, Refused.NOT_WRITABLE, f"it cannot be written here: {error.strerror}")
    _flush(places.target, changed)
    return settled


def _flush(inside: Confined, paths: Collection[str]) -> None:
    """Wait until these files and folders are on the disk.

    They are flushed one by one if they are few, because the file system may have much else to write, or if
    there is no syncfs, as outside of Linux.
    """
    if len(paths) > _FEW and hasattr(libc(), "syncfs"):
        checked(libc().syncfs(inside.fd), "syncfs")
        return
    for path in paths:
        folder, name = inside.at(path)
        fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def _settle_one(places: _Places, row: Row, made: Set[str], *, staged: bool) -> list[str]:
    """Put one row in its place. Return the folders above it that are not among `made`."""
    inside = places.target
    above = [folder for folder in parents(row.path) if folder not in made]
    for folder in above:
        _make_folder(inside, folder, None)
    if row.kind == "dir":
        _make_folder(inside, row.path, row.mode)
    elif row.kind == "link":
        inside.make_link(row.path, row.target)
    elif staged:
        _place(places.stage, inside, row)
    else:
        inside.set_mode(row.path, row.mode)
    return above


def _make_folder(inside: Confined, path: str, mode: int | None) -> None:
    about = inside.look(path)
    if about is not None and not stat.S_ISDIR(about.st_mode):
        inside.remove(path)
        about = None
    if about is None or mode is not None:
        inside.make_folder(path, 0o755 if mode is None else mode)


def _place(stage: Confined, inside: Confined, row: Row) -> None:
    """Give a staged file its mode and move it to its place."""
    from_folder, name = stage.at(row.path)
    about = os.stat(name, dir_fd=from_folder, follow_symlinks=False)
    if stat.S_IMODE(about.st_mode) != row.mode:
        stage.set_mode(row.path, row.mode)
    to_folder, _ = inside.at(row.path)
    os.rename(name, name, src_dir_fd=from_folder, dst_dir_fd=to_folder)


def _failed(target: Path, error: OSError) -> LocalError:
    if error.errno in _FULL:
        return LocalError(
            f"This computer's disk filled up while files were downloaded to {target}. Existing files are "
            "unchanged.",
            exists=_STILL_THERE,
            next_command=_ROOM_FIRST,
        )
    return LocalError(
        f"Files could not be written to {target}: {error}.", exists=_STILL_THERE, next_command="orch pull"
    )
