"""Data in buckets: listed, pinned to versions for a lease, and downloaded by its machine through signed
links.

The pin is a manifest (key, size, version, checksum) that is written at the first use, beside the lease's
ledger. Later runs of the lease get the same bytes, or are refused with the names of the objects that changed.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated

from orchestrator.errors import SyncError, UsageError
from orchestrator.hosts.atomic import atomic_write
from orchestrator.model import Progress
from orchestrator.model.answers import LONG, Like, Malformed, Most, decoded
from orchestrator.model.counted import counted
from orchestrator.model.files import regular_bytes
from orchestrator.model.stores import Link, Store, Stored
from orchestrator.profile import DataTree
from orchestrator.runtime.fetch.objects import rows_of
from orchestrator.runtime.fetch.staging import Wanted
from orchestrator.runtime.transfer.entries import hostile
from orchestrator.storage import open_store
from orchestrator.sync.scan import shown

ACCEPT = "orch train --new-data"
LINK_LASTS = 3600.0
LARGEST_HERE = 2 << 30
"""Limit in bytes of downloads to this computer, if the profile names no sample, or if no link can be signed
for a cloud's machine.
"""
_GETS = 8
"""Concurrent downloads to this computer."""


@dataclass(frozen=True)
class Pin:
    """The objects of a source at the first use. `single`: the name of its only object, if the source is one
    object.
    """

    source: str
    single: str
    objects: Annotated[tuple[Stored, ...], Most(1_000_000)]
    schema: Annotated[str, Like("1")] = "1"
    requester_pays: bool = False

    @property
    def size(self) -> int:
        return sum(each.size for each in self.objects)


class NotAsPinned(SyncError):
    """Objects of a source are not those that the earlier runs of the lease used."""


class DataChanged(NotAsPinned):
    """A source differs from the pin of the lease's runs. Each of the three fields holds keys."""

    def __init__(self, source: str, changed: list[str], added: list[str], removed: list[str]) -> None:
        told = (("changed", changed), ("new", added), ("gone", removed))
        phrases = [f"{what}: {shown(keys)}" for what, keys in told if keys]
        super().__init__(
            f"{source} differs from the data of this lease's earlier runs ({'; '.join(phrases)}). "
            "Nothing was fetched.",
            next_command=f"{ACCEPT}    # train on the current objects from now on",
        )
        self.source, self.changed, self.added, self.removed = source, changed, added, removed


class CannotSign(UsageError):
    """The credentials here cannot sign links to the objects of a source."""

    def __init__(self, source: str) -> None:
        super().__init__(
            f"The credentials here cannot sign links to the objects of {source}, so a machine cannot "
            "download them by itself.",
            next_command="use credentials that can sign: an access key, or a service account's key",
        )


def listed(source: str, *, requester_pays: bool = False) -> Pin:
    """Return the current objects of a source. Raises SyncError if there are none, and StorageError."""
    above, _, name = source.rstrip("/").rpartition("/")
    if not above.endswith("/") and not source.endswith("/"):
        one = open_store(above, requester_pays=requester_pays).head(name)
        if one is not None:
            return Pin(source, name, (one,), requester_pays=requester_pays)
    objects = tuple(open_store(source.rstrip("/"), requester_pays=requester_pays).list())
    if not objects:
        raise SyncError(
            f"{source} contains no objects.", next_command="correct data[].source, or upload the data"
        )
    wanted = [Wanted(each.key, each.size, each.version, each.checksum) for each in objects]
    for key, why in hostile(rows_of(wanted), sealed=False):
        raise SyncError(f"The objects of {source} cannot be files: {shown([key])}: {why}.")
    return Pin(source, "", objects, requester_pays=requester_pays)


def pinned(path: Path, source: str, *, accept: bool = False, requester_pays: bool = False) -> Pin:
    """Return the pin at `path`; it is written now if it does not exist or `accept` is set.

    Raises DataChanged if the objects differ from the pin.
    """
    now, before = listed(source, requester_pays=requester_pays), None if accept else _read(path)
    if before is None or before.source != source:
        return _keep(path, now)
    then = {each.key: each for each in before.objects}
    current = {each.key: each for each in now.objects}
    changed = [key for key in then if key in current and not _same(then[key], current[key])]
    added, removed = sorted(current.keys() - then.keys()), sorted(then.keys() - current.keys())
    if changed or added or removed:
        raise DataChanged(source, changed, added, removed)
    return now if now == before else _keep(path, now)


def linker(pin: Pin, lasts: float = LINK_LASTS) -> Linker:
    """Return a Linker for the objects of a pin. Links expire after `lasts` seconds, or earlier with the
    credentials here.
    """
    return Linker(_store_of(pin), pin.source, lasts=lasts)


class Linker:
    """Creates links to objects of a store. `key_of`: object key by name on the machine, where the two
    differ.
    """

    def __init__(
        self, store: Store, source: str, key_of: Callable[[str], str] = str, lasts: float = LINK_LASTS
    ) -> None:
        self._store = store
        self._source = source
        self._key_of = key_of
        self._lasts = lasts
        self.ends: datetime | None = None
        """When the first of the created links expires."""

    def __call__(self, of: Stored) -> Link:
        link = self._store.link(self._key_of(of.key), self._lasts, of.version or None)
        if link is None:
            raise CannotSign(self._source)
        self.ends = min(self.ends or link.expires, link.expires)
        return link


def mirror(tree: DataTree, pin: Pin, progress: Progress) -> None:
    """Download the sample of `tree` to `tree.source`, each object at its pinned version, and remove other
    files there.

    Raises UsageError if the sample is too large or matches nothing.
    """
    wanted = _sampled(tree, pin)
    size = sum(each.size for each in wanted)
    if not tree.sample and size > LARGEST_HERE:
        raise UsageError(
            f"{tree.bucket} has {size:,} bytes, too many to download to this computer: name the objects that "
            "the first steps read.",
            next_command=f"add them to this entry of data in the profile: sample: [{pin.objects[0].key!r}]",
        )
    bring(pin, wanted, tree.source, progress)


def bring(pin: Pin, wanted: Sequence[Stored], place: Path, progress: Progress) -> None:
    """Download the objects `wanted` of `pin` to `place`, each at its pinned version, and remove other files
    there. `place` is a folder, or a file if the pin is of one object. Objects that are there already are not
    downloaded again.
    """
    notes = place.with_name(f"{place.name}.objects.json")
    there = _read(notes)
    known = {each.key: each for each in there.objects} if there and there.source == pin.source else {}
    came = [each for each in wanted if known.get(each.key) == each and _file(place, pin, each).is_file()]
    _remove_others(place, pin, {each.key for each in came})
    here = {each.key for each in came}
    missing = [each for each in wanted if each.key not in here]
    if missing:
        _require_space(pin, place, sum(each.size for each in missing))
        progress.say(f"{pin.source}: {counted(len(missing), 'object')} are downloaded to this computer")
    try:
        came.extend(_downloaded(pin, missing, place, progress))
    finally:
        _keep(notes, replace(pin, objects=tuple(came)))


def _downloaded(pin: Pin, missing: Sequence[Stored], place: Path, progress: Progress) -> Iterator[Stored]:
    """Download the objects concurrently; yields each one that is complete."""
    store, size, done = _store_of(pin), sum(each.size for each in missing), 0

    def download(each: Stored) -> Stored:
        into = _file(place, pin, each)
        into.parent.mkdir(parents=True, exist_ok=True)
        store.fetch(each.key, into, each.version)
        return each

    pool = ThreadPoolExecutor(_GETS)
    try:
        for each in pool.map(download, missing):
            done += each.size
            progress.transfer(place.name, done, size)
            yield each
    finally:
        pool.shutdown(cancel_futures=True)


def _require_space(pin: Pin, place: Path, size: int) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(place.parent).free
    if size > free:
        raise SyncError(
            f"The disk of this computer is too small for {pin.source}: {size:,} bytes are needed, "
            f"{free:,} are free. Nothing was downloaded.",
            next_command="free some space, and repeat the command",
        )


def _sampled(tree: DataTree, pin: Pin) -> list[Stored]:
    if pin.single or not tree.sample:
        return list(pin.objects)
    found = [each for each in pin.objects if any(fnmatchcase(each.key, glob) for glob in tree.sample)]
    if not found:
        raise UsageError(
            f"No object of {tree.bucket} matches data[].sample ({', '.join(tree.sample)}).",
            next_command=f"name objects like {shown([pin.objects[0].key])}",
        )
    return found


def _file(place: Path, pin: Pin, of: Stored) -> Path:
    return place if pin.single else place / of.key


def _remove_others(place: Path, pin: Pin, keep: set[str]) -> None:
    """Remove files that are not in the sample: the script would read them as data."""
    place.parent.mkdir(parents=True, exist_ok=True)
    if pin.single or not place.is_dir() or place.is_symlink():
        if not keep:
            _remove(place)
        return
    for path in list(_files(place)):
        if path.relative_to(place).as_posix() not in keep:
            path.unlink()


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in folder.rglob("*") if path.is_symlink() or not path.is_dir())


def _store_of(pin: Pin) -> Store:
    whole = pin.source.rstrip("/")
    return open_store(whole.rpartition("/")[0] if pin.single else whole, requester_pays=pin.requester_pays)


def _same(one: Stored, other: Stored) -> bool:
    """Whether two versions of an object have the same bytes, as far as the store reports."""
    if one.version == other.version:
        return True
    return bool(one.checksum) and (one.size, one.checksum) == (other.size, other.checksum)


def _keep(path: Path, pin: Pin) -> Pin:
    path.parent.mkdir(parents=True, exist_ok=True)
    atomic_write(path, json.dumps(asdict(pin), separators=(",", ":")).encode())
    return pin


def _read(path: Path) -> Pin | None:
    """Read a pin; None if there is none. A damaged pin raises, because a new one would hide changes."""
    try:
        return decoded(Pin, regular_bytes(path, LONG), most=LONG)
    except FileNotFoundError:
        return None
    except Malformed as error:
        raise NotAsPinned(
            f"{path} is damaged: {error}.",
            exists=(
                "Data that the machine fetched before are still there. Whether the bucket has changed since "
                "is not known."
            ),
            next_command=f"{ACCEPT}    # train on the current objects from now on",
        ) from None
