"""Copies of the user's folders for a repeated run: small files are copied, the rest is linked to."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

LARGE = 4 << 20
"""Bytes: larger files are linked to."""

MOST = 64 << 20
"""Bytes copied in all; what comes later is linked to."""

MOST_FILES = 5000

MANY = 5000
WIDE = 200
"""A folder below which lie more names than this, and that holds so many itself, is linked to as a whole."""

MOST_NAMES = 20_000
"""Names that are laid out in all; folders that come later are linked to as a whole."""

_LEFT_OUT = frozenset((".git", ".hg", ".svn", ".orch", "__pycache__", ".mypy_cache", ".ruff_cache"))
_LINKED = frozenset(("runs", "node_modules", "site-packages"))


@dataclass(frozen=True)
class MountedCopy:
    """One folder of the user's: its `original`, its `copy`, and where the run sees the copy. Mounted where
    that is not where it lies; what it hides is then seen at `under`."""

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
    """Copies folders of `seats`, less what is `made`. `opened`: folders that must not be linked to, for
    something in them is to be another; `left_empty`: folders on which something is mounted."""

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
        """Fill `target` with what is in `source`; its folders are linked to unless `deep`."""
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
                    large.append((path, place))  # last: what is small, and may be code, comes first
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
        """Make the folder anew, unless there were too many names already."""
        if self._names < 0 and not self._made_in(folder):
            copy.symlink_to(self._reach(folder))
            return
        self.folder(folder, copy)
        self._drop_made(folder, copy)

    def _made_in(self, folder: Path) -> bool:
        return any(folder in path.parents for path in self._made)

    def _holds_many(self, folder: Path) -> bool:
        """Whether there are too many names below a folder to link to each, and nothing in it is left out."""
        below = (name for _, folders, files in os.walk(folder) for name in (*folders, *files))
        return not self._made_in(folder) and next(islice(below, MANY, None), None) is not None

    def _drop_made(self, folder: Path, copy: Path) -> None:
        """A folder in which nothing lies but what the run made was made by it, too."""
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
        """A link's target: as it is where it stays within its folder, else absolute, in a copy where it leads
        to one."""
        target = link.readlink()
        real = Path(os.path.realpath(folder / target))  # a link to itself has no target, and is no error
        inside = not target.is_absolute() and real.is_relative_to(os.path.realpath(folder))
        if inside:
            return target
        place = Path(os.path.normpath(folder / target))
        seat = next((each for each in self._seats if _is_copied(each, place)), None)
        return seat.seen / place.relative_to(seat.original) if seat else self._reach(place)

    def _reach(self, path: Path) -> Path:
        return reached(self._seats, path)


def _is_copied(seat: MountedCopy, place: Path) -> bool:
    """Whether a copy holds what lies at `place`; what is left out of copies is in none."""
    inside = place.is_relative_to(seat.original) and place != seat.original and not seat.shallow
    return inside and not _LEFT_OUT.intersection(place.relative_to(seat.original).parts)


def _entries(folder: Path) -> Iterator[os.DirEntry[str]]:
    with os.scandir(folder) as found:
        yield from (entry for entry in found if entry.name not in _LEFT_OUT)


def _linked(folder: Path) -> bool:
    return folder.name in _LINKED or (folder / "pyvenv.cfg").exists()
