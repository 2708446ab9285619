"""A run in the store that its profile names: checkpoints while it continues, and at its end files and record.

Below `runs/<id>/attempts/<n>/`: `checkpoints/<seq>/files/…` with `manifest.json`, `output.log`,
`trace.jsonl`, `outputs/…` with `outputs.json`; `run.json` is beside `attempts`. A machine that uploads by
itself puts checkpoints into `checkpoints/slot-<0|1>/`, and `state.json` at the end (runtime/upload). The
object that marks the others as complete is always written last. Content of the store is not trusted, because
others may write to it: it is checked like a machine's answers, and files are verified by the digests in their
list before they are moved to their places.
"""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, TypeVar

from orchestrator import sync
from orchestrator.errors import Changed, Missing, StorageError, SyncError, UsageError
from orchestrator.jobs import Mount
from orchestrator.model import Entry, RunRecord, RunState, store_keys
from orchestrator.model.answers import LONG, SHORT, Malformed, Most, decoded
from orchestrator.model.checkpoints import Snapshot
from orchestrator.model.files import regular_bytes
from orchestrator.model.stores import LARGEST_GET, Store, Stored
from orchestrator.profile import Profile
from orchestrator.runs import collect, events, logs, record_file
from orchestrator.runs.find_run import LIST_RUNS
from orchestrator.runtime.upload import names
from orchestrator.storage import open_store

MANIFEST = "manifest.json"
KEPT = 2
"""How many copies of checkpoints stay in the store: the newest, and the one before."""
_MOST_FILES = 1_000_000
_MOST_LOG = 8 << 20
_MOST_STORY = 1 << 32
_VERSIONS = 10
"""How often an object is read again because it was replaced meanwhile."""
_SLOT = re.compile(rf"runs/[^/]+/attempts/([1-9]\d{{0,5}})/checkpoints/({'|'.join(names.SLOTS)})/{MANIFEST}")
_COPY = re.compile(r"runs/[^/]+/attempts/([1-9]\d{0,5})/checkpoints/([1-9]\d{0,5})/(.+)")
_CHECKPOINT = re.compile(r"runs/[^/]+/attempts/([1-9]\d{0,5})/checkpoints/.+")
R = TypeVar("R")
_TRACE = "trace.jsonl"
_STORY = (collect.LOG, _TRACE)


@dataclass(frozen=True)
class Files:
    """The downloaded outputs of an attempt. The other fields are those of jobs.Left."""

    entries: Annotated[tuple[Entry, ...], Most(_MOST_FILES)]
    altered: Annotated[tuple[str, ...], Most(1000)] = ()
    mounts: Annotated[tuple[Mount, ...], Most(100)] = ()
    watched: bool = True


@dataclass(frozen=True)
class StoredRun:
    """One run in a store. Every method may be called again. Raises StorageError, LocalError and SyncError."""

    store: Store
    run_id: str

    # -------------------------------------------------------- checkpoints

    def put_checkpoint(self, attempt: int, snapshot: Snapshot, folder: Path) -> None:
        """Upload a copy whose files are in `folder`, and remove all but the newest copies."""
        manifest = json.dumps(asdict(snapshot), sort_keys=True).encode()
        place = store_keys.checkpoint(self.run_id, attempt, snapshot.seq)
        if self._get(f"{place}/{MANIFEST}") == manifest:
            return
        self.store.delete(f"{place}/{MANIFEST}")
        for file in snapshot.files:
            self.store.put(key_of(f"{place}/files", file.path), folder / file.path)
        self.store.put(f"{place}/{MANIFEST}", manifest)
        self._prune()

    def newest_checkpoint(self) -> tuple[int, Snapshot] | None:
        """Return the attempt and the list of the newest complete copy; None if there is none."""
        found = [(attempt, snapshot) for attempt, snapshot, _ in self._in_slots()]
        for attempt, seq in reversed(self._whole()):
            snapshot = self._listed(f"{store_keys.checkpoint(self.run_id, attempt, seq)}/{MANIFEST}")
            if snapshot is not None and snapshot.seq == seq:
                found.append((attempt, snapshot))
                break
        return max(found, key=lambda each: (each[0], each[1].seq), default=None)

    def fetch_checkpoint(self, attempt: int, snapshot: Snapshot, into: Path) -> None:
        """Download the files of a copy to the folder `into`: all, verified; or raise SyncError and write
        none.
        """
        entries = [file.entry() for file in snapshot.files]
        slot = next((name for a, found, name in self._in_slots() if (a, found) == (attempt, snapshot)), None)
        place = store_keys.checkpoint(self.run_id, attempt, snapshot.seq)
        keys = [key_of(f"{place}/files", entry.path) for entry in entries]
        if slot is not None:
            above = store_keys.attempt(self.run_id, attempt)
            keys = [f"{above}/{names.of_slot(slot, number)}" for number in range(len(entries))]
        self._fetch(keys, entries, into)

    def forget_old_checkpoints(self) -> None:
        """Remove the copies of attempts that are older than the newest complete ones. Failures are
        ignored.
        """
        with suppress(StorageError):
            whole = sorted({*self._whole(), *((attempt, made.seq) for attempt, made, _ in self._in_slots())})
            first = whole[-KEPT:][0][0] if whole else 0
            found = ((each.key, _CHECKPOINT.fullmatch(each.key)) for each in self._of_attempts())
            old = [key for key, match in found if match and int(match[1]) < first]
            for key in sorted(old, key=lambda each: not each.endswith(f"/{MANIFEST}")):
                self.store.delete(key)

    def _of_attempts(self) -> Iterator[Stored]:
        return self.store.list(f"{store_keys.run(self.run_id)}/attempts/")

    def _in_slots(self) -> Iterator[tuple[int, Snapshot, str]]:
        """Yield (attempt, list, slot) of every complete copy that a machine uploaded by itself."""
        for stored in self._of_attempts():
            found = _SLOT.fullmatch(stored.key)
            snapshot = self._listed(stored.key) if found else None
            if found and snapshot:
                yield int(found[1]), snapshot, found[2]

    def _listed(self, key: str) -> Snapshot | None:
        """Return what a manifest lists; None if it is absent or damaged."""
        content = self._content(key)
        try:
            return decoded(Snapshot, content or b"", most=LONG)
        except Malformed:
            return None

    def _copies(self) -> Iterator[tuple[int, int, str]]:
        """Yield (attempt, number, name in the copy) of every object of every copy."""
        for stored in self._of_attempts():
            found = _COPY.fullmatch(stored.key)
            if found:
                yield int(found[1]), int(found[2]), found[3]

    def _whole(self) -> list[tuple[int, int]]:
        return sorted((attempt, seq) for attempt, seq, name in self._copies() if name == MANIFEST)

    def _prune(self) -> None:
        kept = self._whole()[-KEPT:]
        old = [(a, s, n) for a, s, n in self._copies() if (a, s) not in kept and (a, s) < kept[-1]]
        for attempt, seq, name in sorted(old, key=lambda each: each[2] != MANIFEST):
            self.store.delete(f"{store_keys.checkpoint(self.run_id, attempt, seq)}/{name}")

    # -------------------------------------------------------- results

    def put_log(self, attempt: int, folder: Path) -> None:
        """Upload the run's output so far, if it is short enough to be uploaded repeatedly."""
        try:
            printed = regular_bytes(folder / collect.LOG, _MOST_LOG)
        except (FileNotFoundError, Malformed):
            return
        self.store.put(f"{store_keys.attempt(self.run_id, attempt)}/{collect.LOG}", printed)

    def put_results(self, record: RunRecord, entries: Sequence[Entry]) -> None:
        """Upload what a run left, as it is in its folder on this computer, and its record."""
        attempt = record.attempts[-1]["number"] if record.attempts else 1
        place = store_keys.attempt(self.run_id, attempt)
        for entry in entries:
            if entry.kind == "file":
                path = record.folder / collect.OUTPUTS / entry.path
                self.store.put(key_of(f"{place}/outputs", entry.path), path)
        listed = json.dumps(asdict(Files(tuple(entries))), sort_keys=True).encode()
        self.store.put(store_keys.outputs(self.run_id, attempt), listed)
        self.put_record(record)

    def put_record(self, record: RunRecord) -> None:
        """Upload the record of a run whose outputs are in the store, with the output of all attempts."""
        place = store_keys.attempt(self.run_id, record.attempts[-1]["number"] if record.attempts else 1)
        for name in _STORY:
            path = record.folder / name
            if path.is_file() and not path.is_symlink():
                self.store.put(f"{place}/{name}", path)
        self.replace_record(record)
        self.forget_old_checkpoints()

    def replace_record(self, record: RunRecord) -> None:
        """Upload only the record of a run that is in the store."""
        told = json.dumps(record.as_json(), indent=1).encode()
        self.store.put(store_keys.record(self.run_id), told)

    def attempt_of_record(self) -> int | None:
        """Return the attempt whose record `fetch_results` would download; None if there is none."""
        if self.store.head(store_keys.record(self.run_id)) is None:
            return None
        attempts = self._record(Path()).attempts
        return attempts[-1]["number"] if attempts else 1

    def fetch_results(self, folder: Path) -> RunRecord:
        """Download what `put_results` uploaded to the run's folder, the record last. Models are not checked.

        Raise SyncError if a file does not match its list; then no record is written.
        """
        record = self._record(folder)
        attempt = record.attempts[-1]["number"] if record.attempts else 1
        self._fetch_outputs(attempt, folder)
        for name in _STORY:
            self._fetch_story(f"{store_keys.attempt(self.run_id, attempt)}/{name}", folder / name)
        record_file.write(record)
        return record

    def ended(self, attempt: int) -> RunState | None:
        """Return the state of an attempt whose results its machine has uploaded completely; None if it
        has not.
        """
        key = f"{store_keys.attempt(self.run_id, attempt)}/{names.STATE}"
        try:
            found = decoded(RunState, self._content(key, SHORT) or b"")
        except Malformed:
            return None
        return found if found.exit is not None else None

    def fetch_ended(self, attempt: int, folder: Path) -> Files:
        """Download what its machine uploaded to the run's folder, and return the list. Raises SyncError."""
        files = self._fetch_outputs(attempt, folder)
        self._fetch_story(f"{store_keys.attempt(self.run_id, attempt)}/{_TRACE}", folder / _TRACE)
        self.fetch_log(attempt, folder)
        return files

    def fetch_log(self, attempt: int, folder: Path) -> None:
        """Download the output of an attempt that its machine uploaded, if it is longer than the one in
        the folder.
        """
        fresh = folder / f".{collect.LOG}.fetched"

        def bring(stored: Stored) -> None:
            if logs.own_size(folder) < stored.size:
                self.store.fetch(stored.key, fresh, stored.version)
                logs.put_own(folder, fresh)

        try:
            self._as_it_is(f"{store_keys.attempt(self.run_id, attempt)}/{collect.LOG}", _MOST_STORY, bring)
        finally:
            fresh.unlink(missing_ok=True)

    def _fetch_outputs(self, attempt: int, folder: Path) -> Files:
        files = self._files(store_keys.outputs(self.run_id, attempt))
        place = store_keys.attempt(self.run_id, attempt)
        keys = [key_of(f"{place}/outputs", entry.path) for entry in files.entries]
        self._fetch(keys, files.entries, folder / collect.OUTPUTS)
        events.forget(folder, folder / collect.OUTPUTS)
        return files

    def _fetch_story(self, key: str, into: Path) -> None:
        self._as_it_is(key, _MOST_STORY, lambda stored: self.store.fetch(stored.key, into, stored.version))

    def _files(self, key: str) -> Files:
        content = self._content(key)
        if content is None:
            raise self._unusable("the list of its outputs is absent, or too long")
        try:
            return decoded(Files, content, most=LONG)
        except Malformed as error:
            raise self._unusable(f"the list of its outputs: {error}") from None

    def _record(self, folder: Path) -> RunRecord:
        """Return the record, with `folder` as its path."""
        key = store_keys.record(self.run_id)
        found = self._content(key)
        if found is None:
            if self.store.head(key) is not None:
                raise self._unusable("its record is too long")
            raise UsageError(
                f"{self.store.url} has no record of a run {self.run_id}.",
                next_command=LIST_RUNS,
            )
        with tempfile.TemporaryDirectory() as scratch:
            (Path(scratch) / record_file.RECORD).write_bytes(found)
            try:
                record = record_file.read(Path(scratch))
            except UsageError:
                record = None
        if record is None or record.run_id != self.run_id:
            raise self._unusable("its record cannot be read")
        return replace(record, path=str(folder))

    def _unusable(self, why: str) -> SyncError:
        return SyncError(
            f"The run {self.run_id} in {self.store.url} cannot be used: {why}.",
            exists="No record of it was written on this computer.",
            next_command=f"orch pull {self.run_id}    # from its machine, if that exists",
        )

    # -------------------------------------------------------- objects

    def _content(self, key: str, most: int = LARGEST_GET) -> bytes | None:
        """Return an object's content; None if it is absent or has more than `most` bytes."""
        return self._as_it_is(key, most, lambda stored: self.store.get(key, stored.version))

    def _as_it_is(self, key: str, most: int, read: Callable[[Stored], R]) -> R | None:
        """Return what `read` makes of the object's newest version. If it is replaced meanwhile, read the next
        version.

        None if it is absent or has more than `most` bytes. Raise Changed if it is replaced again and again.
        """
        left = _VERSIONS
        while (stored := self.store.head(key)) is not None and stored.size <= most:
            try:
                return read(stored)
            except (Changed, Missing):  # a machine that still trains writes here
                left -= 1
                if not left:
                    raise
        return None

    def _get(self, key: str) -> bytes | None:
        try:
            return self.store.get(key)
        except Missing:
            return None

    def _fetch(self, keys: Sequence[str], entries: Sequence[Entry], into: Path) -> None:
        """Download files by their list: collect them beside `into`, verify them, and move them to their
        places.
        """
        part = into.with_name(f"{into.name}.part")
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        try:
            for number, (key, entry) in enumerate(zip(keys, entries, strict=True)):
                if entry.kind == "file":
                    self._fetch_one(key, entry, part / str(number))
            sync.place(part, entries, into)
        finally:
            shutil.rmtree(part, ignore_errors=True)

    def _fetch_one(self, key: str, entry: Entry, into: Path) -> None:
        stored = self.store.head(key)
        if stored is None or stored.size != entry.size:
            raise SyncError(f"{store_keys.shown(key)} in {self.store.url} does not match its list.")
        self.store.fetch(key, into, stored.version)


def stored_run(profile: Profile, run_id: str) -> StoredRun | None:
    """Return the run in the store; None if the profile names no store. Raise StorageError if its url
    cannot be a store's.
    """
    return StoredRun(open_store(profile.store), run_id) if profile.store else None


def key_of(folder: str, path: str) -> str:
    """Return the key of a file below `folder`: its path, with characters that keys cannot have written as
    %XX.
    """
    return store_keys.check_key(f"{folder}/{names.of_path(path)}")
