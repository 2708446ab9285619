"""Copy the user's folders for a repeated run: small files are copied, everything else is linked."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

LARGE = 4 << 20
"""Bytes: larger files are linked."""

MOST = 64 << 20
"""Maximum bytes copied in total; further files are linked."""

MOST_FILES = 5000

MANY = 5000
WIDE = 200
"""A folder with more than MANY names below it and more than WIDE entries of its own is linked as a whole."""

MOST_NAMES = 20_000
"""Maximum names that are created in total; further folders are linked as a whole."""

_LEFT_OUT = frozenset((".git", ".hg", ".svn", ".orch", "__pycache__", ".mypy_cache", ".ruff_cache"))
_LINKED = frozenset(("runs", "node_modules", "site-packages"))


@dataclass(frozen=True)
class MountedCopy:
    """One of the user's folders: `original`, `copy`, and the path at which the run sees the copy. If it
    is mounted over something, that is visible at `under`.
    """

    original: Path
    copy: Path
    seen: Path
    under: Path
    shallow: bool = False

    @property
    def mounted(self) -> bool:
        return self.seen != self.copy


def reached(seats: Sequence[MountedCopy], path: Path) -> Path:
    for seat in seats:
        if seat.mounted and path.is_relative_to(seat.seen):
            return seat.under / path.relative_to(seat.seen)
    return path


class Copier:
    """Copy the folders of `seats` without the files in `made`. `opened`: folders that must be copied
    instead of linked, because something in them is replaced; `left_empty`: folders on which something is
    mounted.
    """

    def __init__(
        self,
        seats: Sequence[MountedCopy],
        opened: frozenset[Path],
        made: frozenset[Path],
        left_empty: frozenset[Path],
    ) -> None:
        self._seats = seats
        self._opened = opened
        self._made = made
        self._left_empty = left_empty
        self._bytes, self._files, self._names = MOST, MOST_FILES, MOST_NAMES

    def folder(self, source: Path, target: Path, *, deep: bool = True) -> None:
        """Fill `target` with the content of `source`; folders in it are linked unless `deep`."""
        target.mkdir(parents=True, exist_ok=True)
        large: list[tuple[Path, Path]] = []
        for entry in _entries(source):
            path, place = Path(entry.path), target / entry.name
            self._names -= 1
            if path in self._made:
                continue
            if path in self._left_empty:
                place.mkdir()
                continue
            if path in self._opened and path.is_dir():
                self.folder(path, place, deep=deep and not entry.is_symlink() and not _linked(path))
            elif entry.is_symlink():
                place.symlink_to(self._target(path, source))
            elif entry.is_dir():
                if deep and not _linked(path) and self._holds_many(path):
                    large.append((path, place))  # last: small folders, which may be code, come first
                elif deep and not _linked(path):
                    self._small(path, place)
                else:
                    place.symlink_to(self._reach(path))
            elif entry.is_file():
                self._file(path, place, entry.stat().st_size)
        for path, place in sorted(large):
            if len(list(islice(_entries(path), WIDE + 1))) > WIDE:
                place.symlink_to(self._reach(path))
            else:
                self._small(path, place)

    def _small(self, folder: Path, copy: Path) -> None:
        """Create the folder with its entries, unless there are too many names already."""
        if self._names < 0 and not self._made_in(folder):
            copy.symlink_to(self._reach(folder))
            return
        self.folder(folder, copy)
        self._drop_made(folder, copy)

    def _made_in(self, folder: Path) -> bool:
        return any(folder in path.parents for path in self._made)

    def _holds_many(self, folder: Path) -> bool:
        """Return whether a folder has too many names to link each of them, and nothing in it is left out."""
        below = (name for _, folders, files in os.walk(folder) for name in (*folders, *files))
        return not self._made_in(folder) and next(islice(below, MANY, None), None) is not None

    def _drop_made(self, folder: Path, copy: Path) -> None:
        """Remove a folder that contains only what the run created: the run created the folder too."""
        if not any(copy.iterdir()) and self._made_in(folder):
            copy.rmdir()

    def _file(self, path: Path, place: Path, size: int) -> None:
        if size > LARGE or size > self._bytes or not self._files:
            place.symlink_to(self._reach(path))
            return
        self._bytes -= size
        self._files -= 1
        shutil.copy2(path, place)

    def _target(self, link: Path, folder: Path) -> Path:
        """Return a link's target: unchanged within its folder, else absolute, and in a copy if it leads
        to a copied folder.
        """
        target = link.readlink()
        real = Path(os.path.realpath(folder / target))  # does not fail for a link to itself
        inside = not target.is_absolute() and real.is_relative_to(os.path.realpath(folder))
        if inside:
            return target
        place = Path(os.path.normpath(folder / target))
        seat = next((each for each in self._seats if _is_copied(each, place)), None)
        return seat.seen / place.relative_to(seat.original) if seat else self._reach(place)

    def _reach(self, path: Path) -> Path:
        return reached(self._seats, path)


def _is_copied(seat: MountedCopy, place: Path) -> bool:
    """Return whether a copy contains what is at `place`."""
    inside = place.is_relative_to(seat.original) and place != seat.original and not seat.shallow
    return inside and not _LEFT_OUT.intersection(place.relative_to(seat.original).parts)


def _entries(folder: Path) -> Iterator[os.DirEntry[str]]:
    with os.scandir(folder) as found:
        yield from (entry for entry in found if entry.name not in _LEFT_OUT)


def _linked(folder: Path) -> bool:
    return folder.name in _LINKED or (folder / "pyvenv.cfg").exists()
