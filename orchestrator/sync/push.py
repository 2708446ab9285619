"""Make a tree on the other side equal to a scanned one."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from operator import attrgetter
from typing import Annotated, Any

from orchestrator.errors import SyncError
from orchestrator.model import Agent, Entry, Host, Manifest, Progress, Silent
from orchestrator.model.answers import LONG, Count, Like, Most, Sha256
from orchestrator.runtime.transfer import frames
from orchestrator.runtime.transfer.confined import Confined, pieces
from orchestrator.runtime.transfer.entries import FINGERPRINT, Row, fingerprints, text
from orchestrator.runtime.transfer.squeeze import Squeeze
from orchestrator.sync.scan import Scan, shown
from orchestrator.sync.talk import Changed, Talk

_ATTEMPTS = 3
_ROW = attrgetter(*Row._fields)
_NAME = re.compile(r"[A-Za-z0-9_-]+\Z")


@dataclass(frozen=True)
class Pushed:
    """The numbers of a transfer. `deleted` counts paths that were there and do not belong to the tree."""

    manifest: Manifest
    sent_files: int
    sent_bytes: int
    deleted: int


@dataclass(frozen=True)
class _There:
    """The digest of the tree that the other side has, and its rows' fingerprints, one after the other."""

    digest: Sha256
    rows: Annotated[str, Most(LONG), Like(f"([0-9a-f]{{{FINGERPRINT}}})*")]


@dataclass(frozen=True)
class _Needs:
    """The positions in the tree of the files whose bytes are missing, and how many paths will be removed."""

    need: Annotated[tuple[Count, ...], Most(10_000_000)]
    remove: Count


@dataclass(frozen=True)
class _Taken:
    """The digest of the tree that the other side has now."""

    digest: Sha256


def tree_path(agent: Agent, name: str) -> str:
    """Return the path of the tree `name` on the other side: a folder, or a file if a single file was
    scanned.
    """
    if not _NAME.match(name):
        raise ValueError(f"{name!r} is not a valid name of a tree.")
    return f"{agent.base}/trees/{name}"


def push(
    host: Host,
    agent: Agent,
    scan: Scan,
    name: str,
    progress: Progress | None = None,
    *,
    verify: bool = False,
) -> Pushed:
    """Make the tree `name` on the other side equal to `scan`, sending only what differs.

    The other side hashes what arrives, and compares the digest of the whole resulting tree with that of the
    scan. It does not read files again that are unchanged since it last saw them (transfer.tree.Stamp), unless
    `verify`. A push that was interrupted continues when it is repeated. Raise SyncError if the trees cannot
    be made equal: unreadable files, files that change meanwhile, a full disk, a tree that something else
    writes to.
    """
    return _push(host, agent, lambda: scan, name, progress or Silent(), verify)[1]


def push_latest(
    host: Host,
    agent: Agent,
    look: Callable[[], Scan],
    name: str,
    progress: Progress | None = None,
) -> Scan:
    """Scan with `look` and push the result; if files change in between, repeat that a few times.

    Return the scan that was sent. A file that only grows is sent with the content that was scanned, without a
    repetition.
    """
    progress = progress or Silent()
    for _ in range(_ATTEMPTS - 1):
        with suppress(Changed):
            return _push(host, agent, look, name, progress)[0]
    return _push(host, agent, look, name, progress)[0]


def _push(
    host: Host, agent: Agent, look: Callable[[], Scan], name: str, progress: Progress, verify: bool = False
) -> tuple[Scan, Pushed]:
    """Push the result of `look`, during which the other side looks at its own tree."""
    with Talk(host, agent, "apply", tree_path(agent, name)) as talk:
        talk.say({"verify": verify})
        scan = look()
        _refuse_incomplete(scan)
        manifest = scan.manifest
        talk.say({"digest": manifest.digest, "single": scan.single})
        sent, deleted = _send(talk, scan, name, progress)
        there = talk.hear(_Taken).digest
    if there != manifest.digest:
        raise SyncError(f"The tree {name} on {host.name} differs from what was sent: {there}.")
    return scan, Pushed(manifest, len(sent), sum(entry.size for entry in sent), deleted)


def _refuse_incomplete(scan: Scan) -> None:
    if scan.unreadable:
        names = [f"{path} ({why})" for path, why in scan.unreadable]
        raise SyncError(
            f"{shown(names)} cannot be read here, so nothing was sent. "
            "Make it readable, or name it in .orchignore."
        )


def _send(talk: Talk, scan: Scan, name: str, progress: Progress) -> tuple[list[Entry], int]:
    entries = scan.manifest.entries
    talk.say(_changes(scan, talk.hear(_There)))
    answer = talk.hear(_Needs)
    if not _asks_for_files(answer.need, entries):
        raise talk.malformed("it asks for files that are not in the tree")
    needed = [entries[number] for number in answer.need]
    _send_bodies(talk, scan, needed, name, progress)
    return needed, answer.remove


def _changes(scan: Scan, there: _There) -> dict[str, Any]:
    """Return what turns the rows that are there into those of the scan."""
    if there.digest == scan.manifest.digest:
        return {"drop": [], "rows": [], "mtimes": []}
    rows = [Row._make(_ROW(entry)) for entry in scan.manifest.entries]
    here = fingerprints(rows)
    theirs = [there.rows[at : at + FINGERPRINT] for at in range(0, len(there.rows), FINGERPRINT)]
    ours, known = set(here), set(theirs)
    new = [row for row, printed in zip(rows, here, strict=True) if printed not in known]
    return {
        "drop": [number for number, printed in enumerate(theirs) if printed not in ours],
        "rows": new,
        "mtimes": [scan.mtimes.get(path, 0) for path, *_ in new],
    }


def _asks_for_files(numbers: Sequence[int], entries: Sequence[Entry]) -> bool:
    """Return whether `numbers` are positions of files in the tree, each at most once."""
    if any(number >= len(entries) for number in numbers) or len(set(numbers)) < len(numbers):
        return False
    return all(entries[number].kind == "file" for number in numbers)


def _send_bodies(talk: Talk, scan: Scan, needed: Sequence[Entry], name: str, progress: Progress) -> None:
    total, done, squeeze = sum(entry.size for entry in needed), 0, Squeeze()
    with _opener(scan) as opened:
        for entry in needed:
            # A file that cannot be read any more is sent as gone. The other side reports it together with
            # the files that changed.
            done += frames.send_body(talk.write, _content(opened, entry), squeeze)
            progress.transfer(name, min(done, total - 1), total)
    talk.flush()
    if needed:
        progress.transfer(name, total, total)


@contextmanager
def _opener(scan: Scan) -> Iterator[Callable[[str], int]]:
    """Yield a function that opens files of the scan by path. A folder that became a link meanwhile is not
    followed.
    """
    if scan.single:
        yield lambda _: os.open(scan.root, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        return
    try:
        inside = Confined(text(os.fsencode(scan.root)))
    except OSError as error:
        raise Changed(f"{scan.root} changed while being sent: {error.strerror}.") from error
    with inside:
        yield inside.open_file


def _content(opened: Callable[[str], int], entry: Entry) -> Iterator[bytes]:
    """Yield as many bytes of a file as its entry lists; the file may have grown since."""
    yield from frames.first_bytes(pieces(opened(entry.path)), entry.size)
