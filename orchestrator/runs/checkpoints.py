"""Checkpoints of a run: downloaded while it is active, and restored for the next attempt.

`runs/<id>/checkpoints/<attempt>-<seq>/` holds the files, and `manifest.json`, which is written last.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path

from orchestrator import jobs, sync
from orchestrator.errors import HostError, OrchError, StorageError, SyncError, UsageError
from orchestrator.hosts.atomic import atomic_write
from orchestrator.model import Agent, Host, TreeLink
from orchestrator.model.answers import LONG, Malformed, decoded
from orchestrator.model.checkpoints import MOST_FILES, Hindrance, HindranceKind, Snapshot, Snapshots
from orchestrator.model.files import regular_bytes
from orchestrator.model.plain import plain
from orchestrator.model.progress import notice
from orchestrator.profile import Profile
from orchestrator.runs.stored import StoredRun, stored_run
from orchestrator.session.project import Project
from orchestrator.session.session import Session

FOLDER = "checkpoints"
MANIFEST = "manifest.json"
KEPT = 2
"""Local copies: the newest and the previous one."""

_FILES = "files"
_NAME = re.compile(r"([1-9]\d{0,5})-(\d{6})")

_WORDS = {
    HindranceKind.OPEN: "{path} stays open for writing; name only files that are closed once saved",
    HindranceKind.INCOMPLETE: "{path} is incomplete, or was saved at another time than the files beside it",
    HindranceKind.ROOM: "the disk of the machine is nearly full; ask for a larger resources.disk",
    HindranceKind.MANY: "train.checkpoints names more than {most} files; name fewer",
}


@dataclass(frozen=True)
class LocalCheckpoint:
    """A complete local copy. `folder` holds its files as they were in the working folder."""

    attempt: int
    snapshot: Snapshot
    folder: Path


def newest(run: Path) -> LocalCheckpoint | None:
    """Return the newest local copy whose files are all there; None if there is none."""
    for attempt, seq in reversed(_numbers(run)):
        found = _read(_place(run, attempt, seq), attempt)
        if found:
            return found
    return None


def newest_of(project: Project, profile: Profile, run_id: str) -> LocalCheckpoint | None:
    """Return the copy as `newest` does, after downloading a newer one from the store if there is one.

    Raise StorageError or SyncError if the store fails and there is no local copy.
    """
    run = project.run(run_id)
    here = newest(run)
    try:
        return _fetched(stored_run(profile, run_id), run, here) or here
    except (StorageError, SyncError):
        if here is None:
            raise
        return here


def _fetched(stored: StoredRun | None, run: Path, here: LocalCheckpoint | None) -> LocalCheckpoint | None:
    found = stored.newest_checkpoint() if stored else None
    if stored is None or found is None:
        return None
    attempt, snapshot = found
    if here and (here.attempt, here.snapshot.seq) >= (attempt, snapshot.seq):
        return None
    place = _place(run, attempt, snapshot.seq)
    stored.fetch_checkpoint(attempt, snapshot, place / _FILES)
    atomic_write(place / MANIFEST, json.dumps(asdict(snapshot), sort_keys=True).encode())
    stored.forget_old_checkpoints()
    return _read(place, attempt)


def restore(session: Session, kept: LocalCheckpoint) -> TreeLink:
    """Send the copy to the machine. Raise UsageError if its files were changed since they were downloaded."""
    name = f"checkpoint-{session.ledger.lease().id}"[:100]
    found = sync.push_latest(
        session.host, session.agent, lambda: sync.scan(kept.folder, data=True), name, session.progress
    )
    came = {entry.path: entry.digest for entry in found.manifest.entries if entry.kind == "file"}
    if came != {file.path: file.digest for file in kept.snapshot.files}:
        raise UsageError(
            f"{kept.folder} is not the checkpoint that was downloaded: its files were changed.",
            next_command=f"rm -r {kept.folder.parent}    # the attempt then continues from the previous one",
        )
    return TreeLink(sync.tree_path(session.agent, name), ".", True, found.manifest.digest)


# ---------------------------------------------------------------- bringing


def bring(host: Host, agent: Agent, run_id: str, attempt: int, run: Path) -> LocalCheckpoint | None:
    """Download the machine's newest copy, unless it is here, and return it. Safe to interrupt.

    Files that the previous copy has are not downloaded again.
    """
    return _bring_of(host, agent, run_id, attempt, run, jobs.checkpoints(host, agent, run_id))


def _bring_of(
    host: Host, agent: Agent, run_id: str, attempt: int, run: Path, listed: Snapshots
) -> LocalCheckpoint | None:
    if not listed.snapshots:
        return None
    snapshot = max(listed.snapshots, key=lambda each: each.seq)
    place = _place(run, attempt, snapshot.seq)
    if (there := _read(place, attempt)) is not None:
        return there
    before = newest(run)
    if before:
        _lend(before, snapshot, place / _FILES)
    entries = [file.entry() for file in snapshot.files]
    sync.pull(host, agent, jobs.checkpoint_files(agent, run_id, snapshot.seq), entries, place / _FILES)
    atomic_write(place / MANIFEST, json.dumps(asdict(snapshot), sort_keys=True).encode())
    _prune(run)
    return LocalCheckpoint(attempt, snapshot, place / _FILES)


class Copies:
    """Downloads each new copy of a run's checkpoints, and uploads it where the machine does not."""

    what = "A checkpoint"

    def __init__(self, session: Session, run_id: str) -> None:
        self._session = session
        self._run_id = run_id
        self._run = session.project.run(run_id)
        self._attempt = session.ledger.lease().runs[run_id].attempt
        self._stored = 0
        self._refused = False
        self._hindrances: set[HindranceKind] = set()

    def poll(self, host: Host) -> None:
        """Download a new copy, and upload it. After HostError, LocalError or SyncError it is tried again
        later.
        """
        agent = self._session.agent
        listed = jobs.checkpoints(host, agent, self._run_id)
        self._tell(listed.hindrance)
        self._store(host, _bring_of(host, agent, self._run_id, self._attempt, self._run, listed))

    def _store(self, host: Host, kept: LocalCheckpoint | None) -> None:
        """Upload the copy to the store, if there is one and the machine does not do it. A refusal is
        reported once.
        """
        if kept is None or kept.snapshot.seq == self._stored:
            return
        try:
            stored = stored_run(self._session.profile, self._run_id)
            if stored and not self._goes_by_itself(host):
                stored.put_checkpoint(kept.attempt, kept.snapshot, kept.folder)
                stored.put_log(kept.attempt, self._run)
            self._stored = kept.snapshot.seq
        except OrchError as error:
            if not self._refused:
                self._refused = True
                notice(
                    self._session.progress,
                    f"A checkpoint of {self._run_id} is here but could not be uploaded to the store: {error}",
                )

    def _goes_by_itself(self, host: Host) -> bool:
        """Return whether the machine uploads its copies; False if it cannot be reached."""
        try:
            return jobs.uploads(host, self._session.agent, self._run_id).is_trusted
        except HostError:
            return False

    def _tell(self, hindrance: Hindrance | None) -> None:
        if hindrance and hindrance.kind not in self._hindrances:
            self._hindrances.add(hindrance.kind)
            why = _WORDS[hindrance.kind].format(path=plain(hindrance.path), most=f"{MOST_FILES:,}")
            notice(
                self._session.progress,
                f"The checkpoints of {self._run_id} cannot be copied at present: {why}",
            )


# ---------------------------------------------------------------- what is here


def _place(run: Path, attempt: int, seq: int) -> Path:
    return run / FOLDER / f"{attempt}-{seq:06d}"


def _numbers(run: Path) -> list[tuple[int, int]]:
    """Return (attempt, number) of every copy that was started, ascending."""
    try:
        names = [path.name for path in (run / FOLDER).iterdir()]
    except OSError:
        return []
    found = [named for name in names if (named := _NAME.fullmatch(name))]
    return sorted((int(named[1]), int(named[2])) for named in found)


def _read(place: Path, attempt: int) -> LocalCheckpoint | None:
    """Return the copy if its manifest is readable and its files have the listed sizes, else None."""
    try:
        snapshot = decoded(Snapshot, regular_bytes(place / MANIFEST, LONG), most=LONG)
        sizes = [(place / _FILES / file.path).lstat().st_size for file in snapshot.files]
    except (OSError, Malformed):
        return None
    if sizes != [file.size for file in snapshot.files]:
        return None
    return LocalCheckpoint(attempt, snapshot, place / _FILES)


def _lend(before: LocalCheckpoint, snapshot: Snapshot, target: Path) -> None:
    """Link files that the previous copy has too. They are verified like all others."""
    known = {(file.path, file.digest) for file in before.snapshot.files}
    for file in snapshot.files:
        if (file.path, file.digest) not in known:
            continue
        place = target / file.path
        with contextlib.suppress(OSError):
            place.parent.mkdir(parents=True, exist_ok=True)
            os.link(before.folder / file.path, place, follow_symlinks=False)


def _prune(run: Path) -> None:
    """Remove all but the newest copies, and older ones that were never completed."""
    numbers = _numbers(run)
    whole = [number for number in numbers if (_place(run, *number) / MANIFEST).exists()]
    for number in numbers:
        if number not in whole[-KEPT:] and number < whole[-1]:
            place = _place(run, *number)
            (place / MANIFEST).unlink(missing_ok=True)
            shutil.rmtree(place, ignore_errors=True)
