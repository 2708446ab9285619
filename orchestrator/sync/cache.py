"""A cache of hashes, for files that were not written since they were last read.

A file counts as unchanged if its size, modification and change time in nanoseconds, inode and device are the
same. A file that changed less than a minute before it was read is read again (transfer.tree.RACY).
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from pathlib import Path

from orchestrator.hosts.atomic import atomic_write
from orchestrator.model.files import regular_bytes
from orchestrator.runtime.transfer.tree import Known, settled

_SCHEMA = 2
_MOST_BYTES = 1 << 30


def load(folder: Path | None, root: Path) -> Known:
    """Return the known hashes of files below `root`; none if the cache is absent or damaged."""
    if folder is None:
        return {}
    try:
        stored = json.loads(regular_bytes(_place(folder, root), _MOST_BYTES))
        if stored["schema"] != _SCHEMA or stored["root"] != os.fsencode(root).hex():
            return {}
        return {path: (tuple(stamp), digest) for path, *stamp, digest in stored["files"]}
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return {}


def save(folder: Path | None, root: Path, before: Known, now: Known) -> None:
    """Save the hashes that can be trusted later. If the cache cannot be written, the next scan only takes
    longer.
    """
    trusted = settled(now, before, time.time_ns())
    if folder is None or trusted == before:
        return
    stored = {
        "schema": _SCHEMA,
        "root": os.fsencode(root).hex(),
        "files": [(path, *stamp, digest) for path, (stamp, digest) in trusted.items()],
    }
    try:
        atomic_write(_place(folder, root), json.dumps(stored, separators=(",", ":")).encode())
    except OSError:
        return


def _place(folder: Path, root: Path) -> Path:
    return folder / f"hashes-{hashlib.sha256(os.fsencode(root)).hexdigest()[:16]}.json"
