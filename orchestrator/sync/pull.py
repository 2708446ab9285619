"""Files of the other side brought here: verified before they take the place of what was here."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import shutil
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from orchestrator.errors import SyncError
from orchestrator.model import Agent, Entry, Host, Manifest, Progress, Silent
from orchestrator.runtime import frames, tree
from orchestrator.runtime.confined import Confined, pieces
from orchestrator.runtime.entries import Row, difference, hostile, ordered, parents, text
from orchestrator.sync.scan import manifest_of, shown
from orchestrator.sync.talk import Talk

_INCOMING = "incoming"
_STAGED = "files"


@dataclass(frozen=True)
class Pulled:
    """What it took: files and bytes that travelled; the rest was here already."""

    fetched_files: int
    fetched_bytes: int


def far_scan(host: Host, agent: Agent, source: str) -> Manifest:
    """The tree below the folder `source` on the other side, every file read there."""
    done = host.run(agent.argv("scan", source))
    try:
        found = json.loads(done.stdout)
        unreadable = [f"{path} ({why})" for path, why in found["unreadable"]]
        manifest = manifest_of([Row(*row) for row in found["entries"]])
    except (ValueError, KeyError, TypeError) as error:
        said = done.stderr.decode("utf-8", "replace").strip()[-500:]
        raise SyncError(f"{source} on {host.name} could not be listed: {said or done.returncode}") from error
    if unreadable:
        raise SyncError(f"In {source} on {host.name}, {shown(unreadable)} cannot be read.")
    return manifest


def pull(
    host: Host,
    agent: Agent,
    source_dir: str,
    entries: Sequence[Entry],
    target: Path,
    progress: Progress | None = None,
) -> Pulled:
    """Bring `entries`, which lie below `source_dir` there, into the folder `target` here.

    They are gathered in `<target>.part` and checked by size and SHA-256; only when all are right do they
    take their places, each in one step. What is in `target` otherwise stays. After an interruption or
    an error the parts stay too, and a repeated pull fetches only what is missing.
    Raises SyncError, with nothing written, where an entry is hostile.
    """
    rows = ordered([_row(entry) for entry in entries])
    _refuse_hostile(host.name, rows)
    target = target.absolute()
    _refuse_clashes(target, rows)
    part = target.with_name(target.name + ".part")
    try:
        with _alone(part), _opened(part / _STAGED) as stage, _opened(target) as inside:
            pulled = _gather(
                host, agent, source_dir, rows, _Places(part, stage, inside), progress or Silent()
            )
            _settle(stage, inside, rows)
            shutil.rmtree(part)
    except OSError as error:
        raise _failed(target, error) from error
    return pulled


class _Places(NamedTuple):
    """Where parts lie before all are there, and where they belong."""

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


def _refuse_hostile(name: str, rows: Sequence[Row]) -> None:
    if found := hostile(rows, sealed=True):
        named = [f"{path!r} ({why})" for path, why in found]
        raise SyncError(
            f"{name} offers files that must not be written here: {shown(named)}. Nothing was fetched.",
            exists="The files are still on the machine.",
        )


def _refuse_clashes(target: Path, rows: Sequence[Row]) -> None:
    """A folder of the user's is never replaced by a file."""
    if not target.is_dir():
        if target.exists():
            raise SyncError(f"{target} is a file, so nothing was fetched into it.")
        return
    with Confined(_text(target)) as inside:
        for row in rows:
            about = inside.look(row.path) if row.kind != "dir" else None
            if about is not None and stat.S_ISDIR(about.st_mode):
                raise SyncError(
                    f"{target / row.path} is a folder here and a {row.kind} there. Nothing was fetched."
                )


@contextlib.contextmanager
def _alone(part: Path) -> Iterator[None]:
    part.mkdir(parents=True, exist_ok=True)
    fd = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SyncError(f"Another process is fetching into {part} right now.") from None
        yield
    finally:
        os.close(fd)


# ---------------------------------------------------------------- gathering


def _gather(
    host: Host, agent: Agent, source_dir: str, rows: Sequence[Row], places: _Places, progress: Progress
) -> Pulled:
    missing = [row for row in _not_staged(places, rows) if not _is_here(places.target, row)]
    size = sum(row.size for row in missing)
    _check_room(places.part, size)
    if missing:
        with Talk(host, agent, "pack") as talk:
            talk.say({"root": source_dir, "paths": [row.path for row in missing]})
            _fetch(talk, places, missing, progress)
    return Pulled(len(missing), size)


def _not_staged(places: _Places, rows: Sequence[Row]) -> list[Row]:
    """The files that no earlier attempt brought; what one brought and nobody wants now is removed."""
    place = _text(places.part / _STAGED)
    staged, _ = tree.read(place, tree.survey(place), {})
    files = [row for row in rows if row.kind == "file"]
    above = {folder: Row(folder, "dir", mode=0o700) for row in files for folder in parents(row.path)}
    wanted = [*above.values(), *files]
    change = difference(staged, wanted)
    for path in reversed(change.remove):
        places.stage.remove(path)
    places.stage.forget()
    return ordered([wanted[number] for number in change.content])


def _is_here(target: Confined, row: Row) -> bool:
    """Whether the right bytes lie in place already, from an earlier pull."""
    about = target.look(row.path)
    if about is None or not stat.S_ISREG(about.st_mode) or about.st_size != row.size:
        return False
    try:
        hasher = hashlib.sha256()
        for piece in pieces(target.open_file(row.path)):
            hasher.update(piece)
    except OSError:
        return False
    return hasher.hexdigest() == row.digest


def _check_room(part: Path, needed: int) -> None:
    about = os.statvfs(part)
    free = about.f_bavail * about.f_frsize
    if needed > free:
        raise SyncError(
            f"{needed:,} bytes are to be fetched into {part.parent}, and {free:,} are free: nothing was.",
            exists="The files are still on the machine.",
        )


def _fetch(talk: Talk, places: _Places, rows: Sequence[Row], progress: Progress) -> None:
    label = places.part.stem
    total, done, wrong = sum(row.size for row in rows), 0, []
    for row in rows:
        try:
            ok = _fetch_one(talk, places, row)
        except frames.Gone:
            ok = False
        except frames.Broken as error:
            raise talk.broken() from error
        if not ok:
            wrong.append(row.path)
        done += row.size
        progress.transfer(label, min(done, total - 1), total)
    if wrong:
        raise SyncError(
            f"{shown(wrong)} changed on the machine after being listed there. What was here stays as it is; "
            "the other files are kept for the next attempt.",
            next_command="orch pull",
        )
    progress.transfer(label, total, total)


def _fetch_one(talk: Talk, places: _Places, row: Row) -> bool:
    """Bring one file into staging; False, and nothing staged, where it is not what its entry says."""
    hasher, size = hashlib.sha256(), 0
    incoming = places.part / _INCOMING
    with open(incoming, "wb") as file:
        for piece in frames.receive_body(talk.read):
            hasher.update(piece)
            size += len(piece)
            if size <= row.size:
                file.write(piece)
        file.flush()
        os.fsync(file.fileno())
    if (size, hasher.hexdigest()) != (row.size, row.digest):
        return False
    for folder in parents(row.path):
        places.stage.make_folder(folder, 0o700)
    folder_fd, name = places.stage.at(row.path)
    os.rename(incoming, name, dst_dir_fd=folder_fd)
    return True


# ---------------------------------------------------------------- into place


def _settle(stage: Confined, inside: Confined, rows: Sequence[Row]) -> None:
    changed = {""}
    for row in rows:
        for folder in parents(row.path):
            if folder not in changed:
                changed.add(folder)
                _make_folder(inside, folder, None)
        if row.kind == "dir":
            _make_folder(inside, row.path, row.mode)
        elif row.kind == "link":
            inside.make_link(row.path, row.target)
        else:
            _place(stage, inside, row)
    for folder in changed:
        os.fsync(inside.at(f"{folder}/x" if folder else "x")[0])


def _make_folder(inside: Confined, path: str, mode: int | None) -> None:
    about = inside.look(path)
    if about is not None and not stat.S_ISDIR(about.st_mode):
        inside.remove(path)
        about = None
    if about is None or mode is not None:
        inside.make_folder(path, 0o755 if mode is None else mode)


def _place(stage: Confined, inside: Confined, row: Row) -> None:
    """Give a staged file its mode and its place; one that is in place already only its mode."""
    if stage.look(row.path) is None:
        inside.set_mode(row.path, row.mode)
        return
    stage.set_mode(row.path, row.mode)
    from_folder, name = stage.at(row.path)
    to_folder, _ = inside.at(row.path)
    os.rename(name, name, src_dir_fd=from_folder, dst_dir_fd=to_folder)


def _failed(target: Path, error: OSError) -> SyncError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return SyncError(
            f"This computer's disk filled while files were fetched into {target}. What was here stays.",
            exists="The files are still on the machine.",
            next_command="free some space, then repeat",
        )
    return SyncError(f"Files could not be put into {target}: {error}.", next_command="orch pull")
