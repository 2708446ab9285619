"""A copy of the working folder for a repeated run, so that no file of the user is changed.

Small files are copied. Large ones, folders with very many names, and environments are linked: they can be
read, and the runtime's guard refuses to write them. A copy can appear at another path: the run then has its
own mounts.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from orchestrator.parity.intervention import SHARED, Intervention
from orchestrator.replay.copier import LARGE, Copier, MountedCopy, reached


class Unplaceable(Exception):
    """A file cannot be replaced for one run only, because of where it is. Contains the reason."""


@dataclass(frozen=True)
class Copy:
    """The folders of a repeated run: `cwd` as the run sees it, and `seats` for each folder. `mounts`:
    pairs (folder, path at which the run sees it), see runtime.replay.mounting. `removable` is deleted
    afterwards.
    """

    cwd: Path
    seats: tuple[MountedCopy, ...] = ()
    mounts: tuple[tuple[Path, Path], ...] = ()
    removable: tuple[Path, ...] = ()

    @property
    def moved(self) -> tuple[tuple[Path, Path], ...]:
        """Return pairs (original folder, path at which the run sees its copy)."""
        return tuple((seat.original, seat.seen) for seat in self.seats)

    def at(self, path: Path) -> Path:
        """Return the path at which the run sees what is at an original path; the path itself if it was not
        copied."""
        for original, seen in self.moved:
            if path.is_relative_to(original):
                return seen / path.relative_to(original)
        return path

    def reach(self, path: Path) -> Path:
        """Return the path by which the run reaches `path` if a mount hides it."""
        return reached(self.seats, path)


class Layout(Protocol):
    """The folder of a repeated run as that run sees it."""

    @property
    def original(self) -> Path | None:
        """The folder of the recorded run; None if every run has a folder of its own."""

    def lay_out(self, root: Path, imposed: Intervention, base: Path) -> Copy:
        """Create it below `root`, with the intervention. `base`, which contains root, stays visible to the
        run."""


@dataclass(frozen=True)
class Folders:
    """The originals to copy: the working folder, and the program's folder if it is elsewhere. Files in
    `made` are left out, because the recorded run created them itself.
    """

    cwd: Path
    program: Path | None = None
    made: frozenset[Path] = frozenset()

    @property
    def original(self) -> Path | None:
        """The folder of the recorded run."""
        return self.cwd

    def lay_out(self, root: Path, imposed: Intervention, base: Path) -> Copy:
        """Copy below `root`, with the intervention. `base`, which contains root, stays visible to the run."""
        copies = []
        for number, original in enumerate(self._originals()):
            copy = root / f"copy-{number}"
            seen = _seen(original, self.cwd, imposed.path) if imposed.path else copy
            copies.append(MountedCopy(original, copy, seen, root / f"under-{number}"))
        copies += self._neighbours(root, imposed, len(copies))
        copies += _also(copies[0], self.cwd, imposed, root, len(copies))
        seats = (*copies, *_outside(copies, imposed, root))
        _fill(seats, imposed, base, self.made, self.program)
        made = Copy(self.cwd, seats)
        return Copy(made.at(self.cwd), seats, _mounts(seats, base), _removable(seats))

    def _neighbours(self, root: Path, imposed: Intervention, number: int) -> list[MountedCopy]:
        """Return a seat for what is around the working folder, so that it also appears around the imposed
        path, and only the path differs.

        None for folders that are shared by all programs, or if the home folder is below them.
        """
        if imposed.path is None or imposed.around or imposed.path.parent == self.cwd.parent:
            return []
        seen = imposed.path.parent
        if {seen, self.cwd.parent} & SHARED or Path.home().is_relative_to(seen):
            return []
        copy, under = root / f"copy-{number}", root / f"under-{number}"
        return [MountedCopy(self.cwd.parent, copy, seen, under, shallow=True)]

    def _originals(self) -> list[Path]:
        """Return the fewest folders that contain both."""
        if self.program is None or self.program.is_relative_to(self.cwd):
            return [self.cwd]
        if self.cwd.is_relative_to(self.program):
            return [self.program]
        return [self.cwd, self.program]


def _seen(original: Path, cwd: Path, path: Path) -> Path:
    """Return the path at which a folder must appear for the working folder to appear at `path`."""
    if not cwd.is_relative_to(original):
        return original
    inside = cwd.relative_to(original).parts
    if path.parts[len(path.parts) - len(inside) :] != inside:
        return original
    return Path(*path.parts[: len(path.parts) - len(inside)])


def _also(seat: MountedCopy, cwd: Path, imposed: Intervention, root: Path, number: int) -> list[MountedCopy]:
    """Mount the same copy at the paths of the other side too, if the run has mounts."""
    asked = (_seen(seat.original, cwd, place) for place in imposed.also if seat.mounted)
    places = [place for place in asked if place not in (seat.seen, seat.original)]
    return [
        MountedCopy(seat.original, seat.copy, place, root / f"under-{n}")
        for n, place in enumerate(places, number)
    ]


def _outside(seats: Sequence[MountedCopy], imposed: Intervention, root: Path) -> tuple[MountedCopy, ...]:
    """Return a seat for each folder outside `seats` in which a file is replaced: the copy is mounted over
    it.
    """
    names = [Path(name) for name in (*imposed.files, *imposed.times) if name.startswith("/")]
    beside = {_standing(n.parent) for n in names if not any(n.is_relative_to(s.original) for s in seats)}
    outermost = [f for f in sorted(beside) if not any(f != o and f.is_relative_to(o) for o in beside)]
    return tuple(
        MountedCopy(folder, root / f"copy-{number}", folder, root / f"under-{number}", shallow=True)
        for number, folder in enumerate(outermost, len(seats))
    )


def _standing(folder: Path) -> Path:
    """Return the folder, or the nearest existing one above it, since a mount needs one. Raises Unplaceable if
    that is the root."""
    found = next(each for each in (folder, *folder.parents) if each.is_dir())
    if found == found.parent:
        raise Unplaceable(f"{folder} is not on this computer")
    return found


def _mounts(seats: Sequence[MountedCopy], base: Path) -> tuple[tuple[Path, Path], ...]:
    """Return the mounts in order: copies over their originals, outer folders first; then orch's own folder if
    they hide it; then the paths under which hidden folders stay visible."""
    mounted = sorted((seat for seat in seats if seat.mounted), key=lambda seat: len(seat.seen.parts))
    found = [(seat.copy, seat.seen) for seat in mounted]
    if any(base.is_relative_to(seat.seen) for seat in mounted):
        found.append((base, base))
    for seat in mounted:
        seat.under.mkdir(exist_ok=True)
        found.append((seat.seen, seat.under))
    return tuple(found)


def _removable(seats: Sequence[MountedCopy]) -> tuple[Path, ...]:
    return tuple(path for seat in seats for path in (seat.copy, seat.under))


def _fill(
    seats: Sequence[MountedCopy],
    imposed: Intervention,
    base: Path,
    made: frozenset[Path],
    program: Path | None,
) -> None:
    """Copy the seats' originals without the files in `made`, then put in what is imposed. Folders on which
    other seats or `base` are mounted are created empty."""
    opened = _opened(seats, imposed, program)
    filled: set[Path] = set()
    for seat in seats:
        places = _mounted_on(seat, seats, base)
        if seat.copy not in filled:
            ways = opened | {folder for place in places for folder in place.parents}
            copier = Copier(seats, ways, made, places)
            copier.folder(seat.original, seat.copy, deep=not seat.shallow)
            filled.add(seat.copy)
        for place in places:
            (seat.copy / place.relative_to(seat.original)).mkdir(parents=True, exist_ok=True)
    _put_all(seats, imposed, program)


def _mounted_on(seat: MountedCopy, seats: Sequence[MountedCopy], base: Path) -> frozenset[Path]:
    """Return the folders below a mounted seat on which something else is mounted, by their original names."""
    if not seat.mounted:
        return frozenset()
    targets = [other.seen for other in seats if other.mounted and other is not seat] + [base]
    inside = (target for target in targets if target != seat.seen and target.is_relative_to(seat.seen))
    return frozenset(seat.original / target.relative_to(seat.seen) for target in inside)


def _opened(seats: Sequence[MountedCopy], imposed: Intervention, program: Path | None) -> frozenset[Path]:
    """Return every original folder above a file that is replaced."""
    places = [_original(seats, name, program, imposed) for name in (*imposed.files, *imposed.times)]
    return frozenset(folder for place in places for folder in place.parents)


def _original(seats: Sequence[MountedCopy], name: str, program: Path | None, imposed: Intervention) -> Path:
    """Return where a replaced file is, or would be.

    A relative name belongs to the first folder that has it (also if it is put back at its absolute path),
    else to the first that has its parent folder. The program's folder comes before the others.
    """
    folders = [*([program] if program else []), *(seat.original for seat in seats)]
    places = [folder / name for folder in folders]
    there = [place for place in places if os.path.lexists(place) or str(place) in imposed.files]
    return next(iter(there or [place for place in places if place.parent.is_dir()]), seats[0].original / name)


def _put_all(seats: Sequence[MountedCopy], imposed: Intervention, program: Path | None) -> None:
    for name, source in imposed.files.items():
        _put(_copied(seats, name, program, imposed), source, lambda path: reached(seats, path))
    for name, moment in imposed.times.items():
        _touch(_copied(seats, name, program, imposed), moment)


def _copied(seats: Sequence[MountedCopy], name: str, program: Path | None, imposed: Intervention) -> Path:
    original = _original(seats, name, program, imposed)
    seat = next((each for each in seats if original.is_relative_to(each.original)), seats[0])
    return seat.copy / original.relative_to(seat.original)


def _put(place: Path, source: Path | None, reach: Callable[[Path], Path]) -> None:
    if place.is_dir() and not place.is_symlink():
        shutil.rmtree(place)
    elif os.path.lexists(place):
        place.unlink()
    if source is None:
        return
    place.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        place.mkdir()  # only its name matters
        return
    if source.stat().st_size > LARGE:
        place.symlink_to(reach(source))
    else:
        shutil.copy2(source, place)


def _touch(place: Path, moment: float) -> None:
    """Set the modification time of a file of the copy to `moment`. A linked file stays unchanged."""
    if place.is_symlink() or not place.is_file():
        return
    if place.stat().st_nlink > 1:  # a hard link: it shares bytes and times with a synced tree
        own = place.with_name(f"{place.name}.own")
        shutil.copy2(place, own)
        own.replace(place)
    os.utime(place, (moment, moment))
