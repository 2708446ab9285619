"""Files of two working folders that differ although no run was seen to read them."""

from __future__ import annotations

import filecmp
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchestrator.parity.imposed import Candidate, Imposed
from orchestrator.parity.plan import together

MOST = 2000
"""Files looked at in each folder."""

WHOLE = 32 << 20
"""Bytes: of two larger files of one size, only the times are compared."""

_LEFT_OUT = frozenset(("runs", "node_modules", "site-packages", "__pycache__"))

_FIX = "Sync the project's folder: both sides must have the same files."


@dataclass(frozen=True)
class Tree:
    """The working folder of one side, and where its recording lies."""

    folder: Path | None
    observe: Path | None = None

    def wrote(self, name: str) -> bool:
        """Whether a file was last changed after the steps that were observed, or is not there."""
        assert self.folder
        try:
            observed = (self.observe or self.folder).joinpath("environment.json").stat().st_mtime
            return (self.folder / name).stat().st_mtime > observed
        except OSError:
            return not (self.folder / name).exists()


def unseen(mine: Tree, theirs: Tree, seen: Set[str], facts: Mapping[str, Any]) -> Iterator[Candidate]:
    """One candidate for all files that differ, those in `seen` left out, and those that the runs made
    themselves: by their `facts`, or because they are newer than what was observed. None where both sides ran
    in one folder, or one of the folders is not here."""
    if mine.folder is None or theirs.folder is None or mine.folder.resolve() == theirs.folder.resolve():
        return
    made = {str(e["name"]) for e in (facts.get("files") or {}).get("list") or [] if e.get("made")}
    differing = _differing(mine.folder, theirs.folder) - seen - made
    names = sorted(name for name in differing if not (mine.wrote(name) and theirs.wrote(name)))
    parts = [_candidate(name, theirs.folder / name) for name in names]
    if len(parts) == 1:
        yield parts[0]
    elif parts:
        yield together(parts, _FIX)


def _candidate(name: str, there: Path) -> Candidate:
    words = f"the file {name} is not the same (no run was seen to open it)"
    return Candidate(
        "data", words, f"Sync {name}.", Imposed(files={name: there if there.is_file() else None})
    )


def _differing(mine: Path, theirs: Path) -> set[str]:
    left, right = set(files_of(mine)), set(files_of(theirs))
    both = {name for name in left & right if not _same(mine / name, theirs / name)}
    return both | (left ^ right)


def _same(one: Path, other: Path) -> bool:
    try:
        if one.stat().st_size != other.stat().st_size:
            return False
        return filecmp.cmp(one, other, shallow=one.stat().st_size > WHOLE)
    except OSError:
        return True


def appeared(before: Set[str], folder: Path) -> Set[str]:
    """Files of a project that were not there `before` (see files_of); none where there are too many."""
    return set(files_of(folder)) - before if len(before) < MOST else set()


def files_of(folder: Path) -> Iterator[str]:
    """Relative paths of the first files of a project, environments and hidden folders left out."""
    waiting, left = [folder], MOST
    while waiting and left > 0:
        place = waiting.pop(0)
        for entry in sorted(place.iterdir()):
            if entry.is_symlink() or entry.name in _LEFT_OUT or entry.name.startswith("."):
                continue
            if entry.is_dir():
                waiting += [] if (entry / "pyvenv.cfg").exists() else [entry]
            elif left > 0:
                left -= 1
                yield entry.relative_to(folder).as_posix()
