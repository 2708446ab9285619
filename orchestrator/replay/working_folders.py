"""Files of two working folders that differ although no run was seen to read them."""

from __future__ import annotations

import filecmp
import shlex
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from orchestrator.model.outcomes import Kind
from orchestrator.parity.intervention import Candidate, Intervention
from orchestrator.parity.naming import LETTERS, SideNames
from orchestrator.parity.plan import as_one_candidate

MOST = 2000
"""Maximum number of files that are compared in each folder."""

WHOLE = 32 << 20
"""Bytes: of two larger files of equal size, only the times are compared."""

_LEFT_OUT = frozenset(("runs", "node_modules", "site-packages", "__pycache__"))

_FIX = "Sync the project's folder: both sides must have the same files."


@dataclass(frozen=True)
class Tree:
    """The working folder of `side` ("A" or "B"), the folder of its recording, and the files that its run
    created.
    """

    folder: Path | None
    observe: Path | None = None
    made: frozenset[str] = frozenset()
    side: str = "A"

    @cached_property
    def began_with(self) -> frozenset[str]:
        """Return the files of the folder that its run did not create."""
        return frozenset(files_of(self.folder)) - self.made if self.folder else frozenset()

    @cached_property
    def listed(self) -> frozenset[str]:
        """Return the other entries: empty folders, and hidden names directly below the folder."""
        return frozenset(_besides(self.folder)) if self.folder else frozenset()

    def wrote(self, name: str) -> bool:
        """Return whether a file was last changed after the recorded steps, or does not exist."""
        assert self.folder
        try:
            observed = (self.observe or self.folder).joinpath("environment.json").stat().st_mtime
            return (self.folder / name).stat().st_mtime > observed
        except OSError:
            return not (self.folder / name).exists()


def unseen(
    mine: Tree, theirs: Tree, seen: Set[str], facts: Mapping[str, Any], called: SideNames = LETTERS
) -> Iterator[Candidate]:
    """Return one candidate for all differing files, except those in `seen` and those that the runs
    created: by their `facts`, or because they are newer than the recorded steps. None if both sides ran
    in one folder, or one folder is not here.
    """
    if mine.folder is None or theirs.folder is None or mine.folder.resolve() == theirs.folder.resolve():
        return
    made = {str(e["name"]) for e in (facts.get("files") or {}).get("list") or [] if e.get("made")}
    sides = _Sides(mine, theirs, mine.folder, theirs.folder, called)
    differing = sides.differing() - seen - made
    names = sorted(name for name in differing if not (mine.wrote(name) and theirs.wrote(name)))
    parts = [sides.candidate(name) for name in names]
    if len(parts) == 1:
        yield parts[0]
    elif parts:
        yield as_one_candidate(parts, _FIX)


@dataclass(frozen=True)
class _Sides:
    """The files of two folders when their runs began. `here`: the folder of the run that is repeated;
    `there`: the other one.
    """

    mine: Tree
    theirs: Tree
    here: Path
    there: Path
    called: SideNames

    def differing(self) -> set[str]:
        left, right = self.mine.began_with, self.theirs.began_with
        linked = {n for n in left ^ right if (self.here / n).is_symlink() or (self.there / n).is_symlink()}
        alone = (left ^ right) - {n for n in linked if _same(self.here / n, self.there / n)}
        return {n for n in left & right if not _same(self.here / n, self.there / n)} | alone

    def candidate(self, name: str) -> Candidate:
        """Return the candidate that replaces this side's file by the other side's."""
        has = [tree.side for tree in (self.mine, self.theirs) if name in tree.began_with]
        what = "is not the same" if len(has) == 2 else f"is {self.called.inside(has[0])} alone"
        fix = f"Decide which {name} is right, and copy it to the other side."
        if len(has) == 1:
            lacks = "B" if has == ["A"] else "A"
            fix = f"Delete {name} {self.called.inside(has[0])}, or copy it {self.called.to(lacks)} too."
        there = self.there / name if name in self.theirs.began_with else None
        imposed = Intervention(files={str(self.here / name): there})
        words = f"the file {name} {what} (no run was seen to open it)"
        return Candidate("data", words, fix, imposed, name=name)


def _same(one: Path, other: Path) -> bool:
    try:
        if one.stat().st_size != other.stat().st_size:
            return False
        return filecmp.cmp(one, other, shallow=one.stat().st_size > WHOLE)
    except OSError:
        return True


def not_sent(
    folder: Path, names: Sequence[str], side: str, called: SideNames = LETTERS
) -> Iterator[Candidate]:
    """Return one candidate for the files that only `folder` of `side` has because they were not sent:
    their presence may change results.
    """
    parts = []
    for name in names:
        words = f"{name} is {called.inside(side)} alone (no run was seen to open it)"
        fix = f"Declare it, if the script needs it: orch init --add-data {shlex.quote(name)}. Else remove it."
        imposed = Intervention(files={str(folder / name): None})
        parts.append(Candidate("data", words, fix, imposed, name=name))
    if len(parts) == 1:
        yield parts[0]
    elif parts:
        yield as_one_candidate(parts, "Declare as data what the script needs: orch init --add-data PATH.")


def only_listed(mine: Tree, theirs: Tree, called: SideNames = LETTERS) -> Iterator[Candidate]:
    """Return a probe for entries without data that only one side has, such as empty folders or files of
    file managers: a program that counts names counts them.
    """
    if mine.folder is None or theirs.folder is None or mine.folder.resolve() == theirs.folder.resolve():
        return
    differing = sorted(mine.listed ^ theirs.listed)
    if differing:
        lists = {n: (mine if n in mine.listed else theirs).side for n in differing[:3]}
        said = [f"{n} is {called.inside(side)} alone" for n, side in lists.items()]
        words = "; ".join(said) + ("; …" if len(differing) > 3 else "")
        fix = f"Delete {differing[0]}, and have the script choose what it lists by suffix or by name."
        files = {
            str(mine.folder / name): theirs.folder / name if name in theirs.listed else None
            for name in differing
        }
        yield Candidate("order", f"what folders list: {words}", fix, Intervention(files=files), Kind.PROBE)


def appeared(before: Set[str], folder: Path) -> Set[str]:
    """Return the files of a project that were not there `before` (see files_of); none if there are too
    many.
    """
    return set(files_of(folder)) - before if len(before) < MOST else set()


def files_of(folder: Path) -> Iterator[str]:
    """Return relative paths of the first files of a project, without environments and hidden folders."""
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


def _besides(folder: Path) -> Iterator[str]:
    """Return relative paths of what files_of leaves out directly below the folder, and of empty folders."""
    waiting, left = [folder], MOST
    while waiting and left > 0:
        place = waiting.pop(0)
        entries = sorted(place.iterdir())
        left -= len(entries)
        if not entries and place != folder:
            yield place.relative_to(folder).as_posix()
        for entry in entries:
            if entry.name.startswith("."):
                if place != folder:
                    yield entry.relative_to(folder).as_posix()
            elif entry.is_dir() and not (entry.is_symlink() or entry.name in _LEFT_OUT):
                waiting += [] if (entry / "pyvenv.cfg").exists() else [entry]
