"""Decide which entries of the other side may be written into a folder here, and why the others may not."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

from orchestrator.hosts.atomic import scratch_folder
from orchestrator.model import NotFetched, Refused
from orchestrator.runtime.transfer.confined import Confined
from orchestrator.runtime.transfer.entries import Row, parents, raw, refusals, text

_NAME_MAX = 255
_DEEPEST = 200
_PROBE = "orch-Caf\u00e9"
_SAME_NAMES = ("orch-caf\u00e9", "orch-Cafe\u0301")


def sift(rows: Sequence[Row], target: Path) -> tuple[list[Row], list[NotFetched]]:
    """Return the rows to write below the folder `target`, and the others with their reasons.

    Whatever lies below a refused folder is refused with it. `target` need not exist.
    """
    nearest = next(folder for folder in (target, *target.parents) if folder.is_dir())
    found: dict[str, tuple[Refused, str]] = {}
    for refusal in refusals(rows, sealed=True, folding=_folds_names(nearest, rows)):
        found.setdefault(refusal.path, (Refused(refusal.reason), refusal.why))
    for path, why in _too_long(rows, nearest):
        found.setdefault(path, (Refused.NAME_TOO_LONG, why))
    for path, why in _too_large(rows, nearest):
        found.setdefault(path, (Refused.TOO_LARGE, why))
    for path, why in _folders_here(rows, target, found):
        found.setdefault(path, (Refused.FOLDER_HERE, why))
    good, refused = [], []
    for row in rows:
        cause = next((path for path in (row.path, *parents(row.path)) if path in found), None)
        if cause is None:
            good.append(row)
        else:
            refused.append(NotFetched(row.path, row.kind, *found[cause]))
    return good, refused


def _too_long(rows: Sequence[Row], folder: Path) -> Iterator[tuple[str, str]]:
    try:
        limit = os.pathconf(folder, "PC_NAME_MAX")
    except (OSError, ValueError):
        limit = _NAME_MAX
    for row in rows:
        longest = max(len(raw(name)) for name in row.path.split("/"))
        if longest > limit:
            yield row.path, f"a name of {longest} bytes; names here have at most {limit}"
        elif row.path.count("/") > _DEEPEST:
            yield row.path, f"{row.path.count('/')} folders in each other; at most {_DEEPEST} come"


def _too_large(rows: Sequence[Row], folder: Path) -> Iterator[tuple[str, str]]:
    """Yield files that are larger than the whole disk, so that freeing space cannot help."""
    disk = shutil.disk_usage(folder).total
    for row in rows:
        if row.kind == "file" and row.size > disk:
            yield row.path, f"it has {row.size:,} bytes, and the disk here holds {disk:,}"


def _folders_here(
    rows: Sequence[Row], target: Path, refused: dict[str, tuple[Refused, str]]
) -> Iterator[tuple[str, str]]:
    """Yield entries that would replace one of the user's folders, which is never allowed."""
    if not target.is_dir():
        return
    with Confined(text(os.fsencode(target))) as inside:
        for row in rows:
            if row.kind == "dir" or row.path in refused:
                continue
            try:
                about = inside.look(row.path)
            except OSError:  # a link is where a folder is needed: writing will fail there, with the reason
                continue
            if about is not None and stat.S_ISDIR(about.st_mode):
                yield row.path, f"a {row.kind} there, and a folder here"


def _folds_names(folder: Path, rows: Sequence[Row]) -> bool:
    """Return whether `folder` treats names as equal that differ only in case or in Unicode composition."""
    if len(rows) < 2:
        return False
    with scratch_folder(folder, "names") as probe:
        (probe / _PROBE).touch()
        return any((probe / name).exists() for name in _SAME_NAMES)
