"""Check whether the files that a recorded run read and executed are unchanged."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from orchestrator.model.files import sha256_of
from orchestrator.parity.opened import is_cache
from orchestrator.replay.command_line import folder_of
from orchestrator.replay.recipe import Recipe

MOST = 256 << 20
"""Maximum bytes of data files that are hashed again."""


def changed_since(known: Recipe, facts: Mapping[str, Any], *, caches: bool = False) -> str | None:
    """Return the name of the first module or data file that has changed since the run; None if nothing has.

    `facts` are those of its recording (environment.json). `caches`: include caches of libraries.
    """
    return next((name for name, _, _ in _changed(known, facts, caches=caches)), None)


def restored(known: Recipe, facts: Mapping[str, Any], kept: Path) -> dict[str, Path | None]:
    """Return path -> copy in `kept` for the files that have changed since the run and of which there is a
    copy."""
    changed = ((path, kept / digest) for _, path, digest in _changed(known, facts))
    return {str(path): file for path, file in changed if file.is_file()}


def _changed(
    known: Recipe, facts: Mapping[str, Any], *, caches: bool = False
) -> Iterator[tuple[str, Path, str]]:
    """Yield name, path and recorded sha256 of each changed file."""
    roots = [known.cwd]
    beside = folder_of(known.argv, known.cwd)
    if beside:
        roots.append(beside)
    for name, digest in (facts.get("modules") or {}).items():
        if digest not in [sha256_of(root / name) for root in roots]:
            there = next((root for root in roots if (root / name).is_file()), known.cwd)
            yield str(name), there / name, digest
    left = MOST
    for entry in (facts.get("files") or {}).get("list") or []:
        if entry.get("made") or not entry.get("whole") or not entry.get("sha256"):
            continue
        if is_cache(entry) and not caches:
            continue
        left -= int(entry["bytes"])
        if left >= 0 and sha256_of(known.content_at(Path(entry["path"]))) != entry["sha256"]:
            yield str(entry["name"]), Path(entry["path"]), str(entry["sha256"])
