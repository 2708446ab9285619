"""Local data in the profile's store: each distinct content is uploaded once, and downloaded by every
machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from orchestrator import sync
from orchestrator.errors import StorageError, SyncError
from orchestrator.model import Entry, store_keys
from orchestrator.model.counted import counted
from orchestrator.model.progress import notice
from orchestrator.model.stores import Store, Stored
from orchestrator.session import relayed
from orchestrator.session.buckets import Linker
from orchestrator.session.session import Session
from orchestrator.storage import open_store

_PUTS = 8
"""Concurrent uploads."""


def fill(session: Session, found: sync.Scan, name: str) -> None:
    """If the machine has nothing of the tree `name` yet, let it download the contents from the store. The
    push that follows sends the rest and verifies all of it.
    """
    if session.profile.store is None or sync.is_there(session.host, session.agent, name):
        return
    store, bodies = open_store(session.profile.store), _bodies(found)
    objects = [Stored(entry.digest, entry.size, "", f"sha256:{entry.digest}") for entry in bodies.values()]
    link = Linker(store, store.url, store_keys.blob)
    if why := objects and relayed.out_of_reach(session, link, objects[0]):
        notice(session.progress, f"{name} is sent from this computer, because {why}")
        return
    try:
        _put_missing(session, store, found, bodies)
        sync.prefetch(
            session.host,
            session.agent,
            objects,
            name,
            link,
            session.progress,
            single=bool(found.single),
        )
    except (StorageError, SyncError) as error:
        if isinstance(error, sync.ObjectRefused):
            store.delete(store_keys.blob(error.key))
        notice(session.progress, f"{name} is sent from this computer, because the store failed: {error}")


def _bodies(found: sync.Scan) -> dict[str, Entry]:
    """One file for each distinct content, by digest."""
    return {entry.digest: entry for entry in found.manifest.entries if entry.kind == "file" and entry.size}


def _put_missing(session: Session, store: Store, found: sync.Scan, bodies: Mapping[str, Entry]) -> None:
    there = {each.key.rpartition("/")[2]: each.size for each in store.list("blobs/sha256/")}
    lacking = [entry for digest, entry in bodies.items() if there.get(digest) != entry.size]
    if not lacking:
        return
    size = sum(entry.size for entry in lacking)
    session.progress.say(
        f"{counted(len(lacking), 'file')} of {size:,} bytes are uploaded to {store.url}, once"
    )
    with ThreadPoolExecutor(_PUTS) as pool:
        for _ in pool.map(lambda entry: _put(store, found, entry), lacking):
            pass


def _put(store: Store, found: sync.Scan, entry: Entry) -> None:
    """Upload one content, unless the file is being written to: its digest would not match."""
    path = Path(found.root) if found.single else Path(found.root) / entry.path
    key = store_keys.blob(entry.digest)
    store.put(key, path)
    about = path.lstat()
    if (about.st_size, about.st_mtime_ns) != (entry.size, found.mtimes.get(entry.path, about.st_mtime_ns)):
        store.delete(key)
