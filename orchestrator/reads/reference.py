"""The reference side of parity: the user's own folder as it is on this computer, in a copy that the run may
change.

It includes what git ignores, and what lies beside the project. Small files are copied, large ones and
environments are linked to; the runtime's guard refuses to write to anything of the user's.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.errors import LocalError
from orchestrator.model.files import first_line
from orchestrator.profile import DataTree, Profile
from orchestrator.runtime.rundir import open_run

if TYPE_CHECKING:
    from orchestrator.parity.intervention import Intervention
    from orchestrator.replay.sandbox import Copy

CACHES = ("~/.cache", "~/.config", "~/.keras", "~/tensorflow_datasets")
"""Where libraries keep what they download; the reference may write there too."""

_OF_JUPYTER = ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR")
"""Variables that say where Jupyter and IPython write; they write there even if they only execute a
notebook. The reference gets temporary folders, because the user's are not caches.
"""

_OWN = re.compile(r"(above|copy|under)-\d+")
"""Names of folders that a layout creates. An entry of such a name is not linked, because the layout would
then write into the user's folder.
"""

MANY = 100_000
"""Most entries of a folder above the project that are linked to."""


@dataclass(frozen=True)
class Reference:
    """The folder `project`, the `data` that a profile puts into it, and the folder of the `program` if it
    is elsewhere. Files in `made` are left out, because the recorded run created them itself.
    """

    project: Path
    data: tuple[DataTree, ...] = ()
    program: Path | None = None
    made: frozenset[Path] = frozenset()

    @classmethod
    def of(cls, profile: Profile) -> Reference:
        """Return the reference for the runs of a profile."""
        return cls(profile.code.path.resolve(), profile.data)

    @property
    def original(self) -> Path | None:
        """The folder in which the user runs it."""
        return self.project

    def lay_out(
        self, root: Path, imposed: Intervention, base: Path, without: frozenset[Path] = frozenset()
    ) -> Copy:
        """Copy the project below `root`, with the interventions `imposed` and without `without`, and link
        what lies around it.
        """
        levels = _levels(self.project, root)
        below = levels[0][1] if levels else root
        from orchestrator.replay.sandbox import Folders

        copy = Folders(self.project, self.program, without | self.made).lay_out(below, imposed, base)
        for original, place in levels:
            _link_entries(original, place, self.project)
        own = _of_project(copy, self.project)
        _open_runs(own, self.project)
        _link_by_name(levels, self.project, own)
        self._put_data(own, imposed.files)
        return copy

    def _copied(self, root: Path, base: Path) -> Copy:
        """Lay out a copy without interventions. Raise LocalError if the project cannot be copied."""
        try:
            from orchestrator.parity.intervention import Intervention

            return self.lay_out(root, Intervention(), base)
        except OSError as error:
            raise LocalError(
                f"{self.project} could not be copied for the first steps on this computer: "
                f"{error.strerror}: {error.filename}. Without --local-parity no copy is needed.",
            ) from error

    def _put_data(self, own: Path, imposed: Mapping[str, Path | None]) -> None:
        """Link data that lie elsewhere to where the profile says; what the user already has there stays, and
        so does what is `imposed`: then the other files are linked one by one.
        """
        replaced = {own / os.path.relpath(self.project / name, self.project) for name in imposed}
        for tree in self.data:
            place = own / tree.target
            if Path(tree.target).is_absolute() or os.path.lexists(self.project / tree.target):
                continue
            inside = {path for path in replaced if path.is_relative_to(place)}
            if inside or not os.path.lexists(place):
                place.parent.mkdir(parents=True, exist_ok=True)
                _link_except(tree.source.resolve(), place, inside)

    @contextmanager
    def laid_out(self, base: str, run_id: str) -> Iterator[LaidOut]:
        """Yield the copy for the run `run_id` below orch's folder `base`, and remove it afterwards."""
        run, scratch = open_run(base, run_id), open_run(base, f"{run_id}-copy")
        root = Path(scratch.root)
        try:
            root.mkdir(parents=True)
            copy = self._copied(root, Path(base))
            refusals = root / "refused"
            plan = self._plan(copy, (run.root, scratch.root), str(refusals))
            settings = {name: str(root / "jupyter" / name.lower()) for name in _OF_JUPYTER}
            yield LaidOut(copy, self.view(copy, root), plan, refusals, settings)
        finally:
            shutil.rmtree(root, ignore_errors=True)

    def _plan(self, copy: Copy, free: tuple[str, ...], refusals: str) -> dict[str, Any]:
        """Return the interventions that prevent writes to the user's files and keep directory listings as
        they are.
        """
        sources = [str(tree.source) for tree in self.data]
        seats = [(str(seat.original), str(seat.seen)) for seat in copy.seats]
        allowed = [*free, *(seen for _, seen in seats), *map(os.path.expanduser, CACHES)]
        kept = [*(original for original, _ in seats), *sources]
        return {
            "mirror": [[str(s.seen.resolve()), str(s.original.resolve())] for s in copy.seats],
            "guard": {"kept": kept, "free": allowed, "refusals": refusals},
        }

    def view(self, copy: Copy, root: Path) -> View:
        """Return how paths that the run named map to the user's."""
        seats = [(seat.seen, seat.original) for seat in copy.seats]
        around = [(place, original) for original, place in _levels(self.project, root)]
        return View(self.project, tuple((seen.resolve(), path.resolve()) for seen, path in [*seats, *around]))


@dataclass(frozen=True)
class LaidOut:
    """A reference that was laid out. `plan`: the interventions to impose on the run; `refusals`: the file
    that names what the guard refused to write. `view`: how paths that the run named map to the user's.
    `settings`: variables with temporary folders for what libraries write; the profile's own values go before.
    """

    copy: Copy
    view: View
    plan: Mapping[str, Any]
    refusals: Path
    settings: Mapping[str, str]

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables that the plan needs."""
        return {"ORCH_IMPOSE": json.dumps(self.plan)}

    def job(self, command: Sequence[str]) -> dict[str, Any]:
        """Return `argv` and `cwd` of a job that runs `command` in the copy."""
        argv = tuple(str(self.copy.at(Path(word))) if word.startswith("/") else word for word in command)
        return {"argv": argv, "cwd": str(self.copy.cwd)}

    def refused(self) -> str:
        """Return the first path to which the run was refused to write; "" if there was none. Only while
        the copy exists.
        """
        return first_line(self.refusals)


@dataclass(frozen=True)
class Named:
    """A path of the user's. `name`: the path from the working folder by which the program reached it;
    None if the program used an absolute path.
    """

    path: Path
    name: str | None


@dataclass(frozen=True)
class View:
    """Where a run saw the user's folders: (seen, original) pairs, the innermost first."""

    project: Path
    pairs: tuple[tuple[Path, Path], ...] = ()

    def back(self, path: str) -> Named:
        """Return the user's path for one that the run named."""
        seen = Path(path)
        for place, original in self.pairs:
            if seen.is_relative_to(place):
                found = original / seen.relative_to(place)
                return Named(found, os.path.relpath(found, self.project))
        return Named(seen, None)


def in_place(project: Path) -> View:
    """Return the view of a run that took place in the project's own folder: names below it count as
    relative.
    """
    own = project.resolve()
    return View(own, ((own, own),))


def _of_project(copy: Copy, project: Path) -> Path:
    """Return the copy of the project itself, which may be inside the copy of a folder around it."""
    seat = next(seat for seat in copy.seats if project.is_relative_to(seat.original))
    return seat.copy / project.relative_to(seat.original)


def _levels(project: Path, root: Path) -> list[tuple[Path, Path]]:
    """Return (folder above the project, its imitation) pairs, the nearest first, up to the root, so that
    `../` works at any depth. The copy is in the first.
    """
    above = list(project.parents)
    return [
        (folder, root.joinpath(*(f"above-{depth}" for depth in range(len(above), number, -1))))
        for number, folder in enumerate(above)
    ]


def _link_by_name(levels: Sequence[tuple[Path, Path]], project: Path, own: Path) -> None:
    """Link the project and the folders around it by their names, for paths like `../../outer/data`."""
    inner, copy = project, own
    for original, place in levels:
        if not os.path.lexists(place / inner.name):
            (place / inner.name).symlink_to(copy)
        inner, copy = original, place


def _link_entries(original: Path, place: Path, project: Path) -> None:
    """Create links in `place` to the entries of `original`, except the one that contains the project."""
    place.mkdir(parents=True, exist_ok=True)
    for entry in _first_entries(original):
        there = place / entry.name
        ours = _OWN.fullmatch(entry.name) or project.is_relative_to(entry.path)
        if not ours and not os.path.lexists(there):
            there.symlink_to(entry.path)


def _link_except(source: Path, place: Path, replaced: Collection[Path]) -> None:
    """Link `place` to `source`, unless one of the `replaced` paths is below it: then link each entry but
    those.
    """
    if place in replaced:
        return
    if not any(path.is_relative_to(place) for path in replaced):
        if not os.path.lexists(place):
            place.symlink_to(source)
        return
    place.mkdir(exist_ok=True)
    for entry in _first_entries(source):
        _link_except(source / entry.name, place / entry.name, replaced)


def _first_entries(folder: Path) -> Iterator[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as found:
            for number, entry in enumerate(found):
                if number >= MANY:
                    return
                yield entry
    except OSError:
        return


def _open_runs(own: Path, project: Path) -> None:
    """Replace a link to the folder `runs`, which is not copied, by a folder of links, so that the run
    adds nothing to the user's.
    """
    runs = own / "runs"
    if not runs.is_symlink():
        return
    runs.unlink()
    runs.mkdir()
    for entry in _first_entries(project / "runs"):
        (runs / entry.name).symlink_to(entry.path)
