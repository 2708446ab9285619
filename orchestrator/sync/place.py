"""Put files that were downloaded from a store in their places, after verifying them."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

from orchestrator.errors import SyncError
from orchestrator.model import Entry
from orchestrator.runtime.transfer.confined import Confined, pieces
from orchestrator.runtime.transfer.entries import Row, parents, text
from orchestrator.sync.scan import shown
from orchestrator.sync.sift import sift


def place(part: Path, entries: Sequence[Entry], target: Path) -> None:
    """Move the file `part/<number>` of each entry, numbered as in `entries`, to its path below the folder
    `target`.

    All or none. Raise SyncError if an entry must not be written here, or if a file does not match its entry.
    """
    rows = [Row(e.path, e.kind, e.size, e.mode & 0o777, e.digest, e.target) for e in entries]
    if refused := sift(rows, target.absolute())[1]:
        named = shown([f"{each.path!r} ({each.detail})" for each in refused])
        raise SyncError(
            f"The store offers files that must not be written here: {named}. Nothing was written."
        )
    with Confined(text(os.fsencode(part))) as came:
        for number, row in enumerate(rows):
            if row.kind == "file" and not _is(came, str(number), row):
                raise SyncError(
                    f"{shown([row.path])} in the store does not match its list. Nothing was written."
                )
        target.mkdir(parents=True, exist_ok=True)
        with Confined(text(os.fsencode(target))) as inside:
            for number, row in enumerate(rows):
                _settle(came, str(number), inside, row)


def _is(came: Confined, name: str, row: Row) -> bool:
    hasher, size = hashlib.sha256(), 0
    for piece in pieces(came.open_file(name)):
        hasher.update(piece)
        size += len(piece)
    return (size, hasher.hexdigest()) == (row.size, row.digest)


def _settle(came: Confined, name: str, inside: Confined, row: Row) -> None:
    for folder in parents(row.path):
        if inside.look(folder) is None:
            inside.make_folder(folder, 0o755)
    if row.kind == "dir":
        inside.make_folder(row.path, row.mode)
    elif row.kind == "link":
        inside.make_link(row.path, row.target)
    else:
        came.set_mode(name, row.mode | 0o400)
        from_folder, old = came.at(name)
        to_folder, new = inside.at(row.path)
        os.rename(old, new, src_dir_fd=from_folder, dst_dir_fd=to_folder)
