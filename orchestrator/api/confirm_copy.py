"""A working folder for a run that is repeated: a copy, so that nothing of the user's is changed.

Small files are copied. Large ones, and environments, are linked to: they are read, and the guard of the
runtime refuses to write them.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from orchestrator.model import TreeLink
from orchestrator.runtime.rundir import open_run
from orchestrator.runtime.stage import stage

LARGE = 4 << 20
"""Bytes: larger files are linked to."""

MOST = 64 << 20
"""Bytes copied in all; what comes later is linked to."""

MOST_FILES = 5000

_LEFT_OUT = frozenset((".git", ".hg", ".svn", ".orch", "__pycache__", ".mypy_cache", ".ruff_cache"))
_LINKED = frozenset(("runs", "node_modules", "site-packages"))


@dataclass(frozen=True)
class Copy:
    """Where a repeated run works. `moved`: (original folder, its copy) pairs; none where it is in place."""

    cwd: Path
    moved: tuple[tuple[Path, Path], ...] = ()
    removable: tuple[Path, ...] = ()

    def at(self, path: Path) -> Path:
        """Where an original path lies in the copy; itself where it was not copied."""
        for original, copy in self.moved:
            if path.is_relative_to(original):
                return copy / path.relative_to(original)
        return path


@dataclass(frozen=True)
class Folders:
    """Originals to copy: the working folder, and the program's own where it lies elsewhere."""

    cwd: Path
    program: Path | None = None

    @property
    def original(self) -> Path | None:
        """Where a run can take place without a copy."""
        return self.cwd

    def lay_out(self, root: Path, files: Mapping[str, Path | None], times: Mapping[str, float]) -> Copy:
        """Copy below `root`, `files` put in their places (relative to either folder) or taken away."""
        pairs = tuple((original, root / f"copy-{i}") for i, original in enumerate(self._originals()))
        room = _Room()
        for original, copy in pairs:
            _copy_folder(original, copy, room)
        whole = Copy(self.cwd, pairs, tuple(copy for _, copy in pairs))
        result = replace(whole, cwd=whole.at(self.cwd))
        _put_all(result, [copy for _, copy in pairs], files, times)
        return result

    def _originals(self) -> list[Path]:
        """The fewest folders that hold both."""
        if self.program is None or self.program.is_relative_to(self.cwd):
            return [self.cwd]
        if self.cwd.is_relative_to(self.program):
            return [self.program]
        return [self.cwd, self.program]


@dataclass(frozen=True)
class Staged:
    """Synced trees, laid out as for a run of the profile."""

    trees: Sequence[TreeLink]
    base: str

    @property
    def original(self) -> Path | None:
        """There is none: every run has a folder of its own."""
        return None

    def lay_out(self, root: Path, files: Mapping[str, Path | None], times: Mapping[str, float]) -> Copy:
        """As the run's own working folder was laid out; `root` is a run's folder under the base."""
        run = open_run(self.base, root.name)
        stage(run, [{"source": t.source, "target": t.target, "copied": t.copied} for t in self.trees])
        work = Path(run.work)
        _put_all(Copy(work), [work], files, times)
        return Copy(work, removable=(work,))


class _Room:
    """How much may still be copied."""

    def __init__(self) -> None:
        self._bytes, self._files = MOST, MOST_FILES

    def take(self, size: int) -> bool:
        """Whether a file of `size` bytes is copied; it is counted."""
        if size > LARGE or size > self._bytes or not self._files:
            return False
        self._bytes -= size
        self._files -= 1
        return True


def _copy_folder(source: Path, target: Path, room: _Room) -> None:
    target.mkdir(parents=True, exist_ok=True)
    for entry in _entries(source):
        place = target / entry.name
        path = Path(entry.path)
        if entry.is_symlink():
            place.symlink_to(_target(path, source))
        elif entry.is_dir():
            _copy_subfolder(path, place, room)
        elif entry.is_file():
            if room.take(entry.stat().st_size):
                shutil.copy2(path, place)
            else:
                place.symlink_to(path)


def _entries(folder: Path) -> Iterator[os.DirEntry[str]]:
    with os.scandir(folder) as found:
        yield from (entry for entry in found if entry.name not in _LEFT_OUT)


def _copy_subfolder(source: Path, target: Path, room: _Room) -> None:
    if source.name in _LINKED or (source / "pyvenv.cfg").exists():
        target.symlink_to(source)
    else:
        _copy_folder(source, target, room)


def _target(link: Path, folder: Path) -> Path:
    """A link's target: as it is where it stays within its folder, else absolute."""
    target = link.readlink()
    inside = not target.is_absolute() and (folder / target).resolve().is_relative_to(folder.resolve())
    return target if inside else (folder / target).absolute()


def _put_all(
    copy: Copy, folders: Sequence[Path], files: Mapping[str, Path | None], times: Mapping[str, float]
) -> None:
    places = (copy.cwd, *folders)
    for name, source in files.items():
        there = next((folder for folder in places if os.path.lexists(folder / name)), places[0])
        _put(there / name, source)
    for name, moment in times.items():
        for folder in places:
            if (folder / name).is_file() and not (folder / name).is_symlink():
                os.utime(folder / name, (moment, moment))
                break


def _put(place: Path, source: Path | None) -> None:
    if os.path.lexists(place):
        place.unlink()
    if source is not None:
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(source) if source.stat().st_size > LARGE else shutil.copy2(source, place)
