"""Undeclared data: files that a run on this computer reads, and that are neither sent as code nor
declared as data.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from orchestrator.reads.opened import Opened
from orchestrator.reads.reference import Named, View, in_place
from orchestrator.reads.sent import Sent
from orchestrator.runtime.observe.project import of_the_system

MUCH = 4
"""How many times larger a whole folder may be than the part of it that was read, to be declared whole."""

_SECRET = re.compile(r"SECRET|PASSWORD|PASSWD|CREDENTIAL|API_?KEY|PRIVATE|ID_RSA", re.IGNORECASE)
_TOOLS = (".git", ".orch", ".dvc", ".ipynb_checkpoints", "mlruns", "wandb")
_OURS = frozenset((*_TOOLS, "__pycache__", "site-packages", "node_modules"))
"""Folders of tools, which contain neither data nor code."""

_LIBRARIES = ("tensorflow_datasets", "nltk_data", "scikit_learn_data", "mlruns")
_TEMPORARY = ("/tmp", "/var/tmp")
_STATE = ("/var/lib/", "/var/cache/", "/snap/", "/nix/", "/opt/orch/")


@dataclass(frozen=True)
class Undeclared:
    """One folder or file to declare. `path`: on this computer; `name`: as a user of the project calls it;
    `target`: where the program looks for it, None if that is its place in the project. `reachable`:
    whether a profile can put it there (it is not above the project).
    """

    path: Path
    name: str
    target: str | None
    bytes: int
    files: int
    is_folder: bool
    reachable: bool = True

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "path": str(self.path)}


def is_secret(name: str) -> bool:
    """Return whether a file is named like one with secrets, which are better passed as variables."""
    return name.startswith(".env") or bool(_SECRET.search(name))


def undeclared(
    opened: Opened,
    sent: Sent,
    view: View,
    *,
    outputs: Sequence[str] = (),
    begun: float | None = None,
    there: Collection[str] = (),
) -> tuple[Undeclared, ...]:
    """Group the paths in `opened` that `sent` lacks into few entries.

    `outputs`: those of the profile, which the run may list. Files newer than `begun` (Unix seconds) were made
    by the run itself. `there`: digests of the files that the machine read: what a library downloaded again
    there is not lacking.
    """
    lacking = [named for named in _read(opened, view) if _is_data(named.path, sent.project, begun)]
    absent = [each for each in lacking if not sent.has(each, opened.files.get(str(each.path), "python"))]
    files = [*(_as_reached(each, sent) for each in absent), *_settings(opened, view, sent, begun)]
    files += _fetched(opened, view, sent, begun, there)
    folders = list(_listed(opened, sent, view, files, outputs))
    return _entries(files, folders, sent)


def unsent_among(opened: Opened, sent: Sent, *, outputs: Sequence[str] = ()) -> tuple[Undeclared, ...]:
    """Group paths that code names, though no run was seen to open them, as `undeclared` does. Existing
    outputs are left out; folders outside the project are not.
    """
    view = _Literally(opened.absolute, in_place(sent.project))
    lacking = [named for named in _read(opened, view) if _is_data(named.path, sent.project, None)]
    files = [n for n in lacking if not sent.has(n) and not _is_output_of(n, sent, outputs)]
    folders = [*_listed(opened, sent, view, files, outputs), *_elsewhere(opened, sent, view, outputs)]
    return _entries(files, folders, sent)


@dataclass(frozen=True)
class _Literally:
    """A view in which the paths in `absolute` are not reachable from the working folder."""

    absolute: frozenset[str]
    view: View

    def back(self, path: str) -> Named:
        return Named(Path(path), None) if path in self.absolute else self.view.back(path)


def _is_output_of(named: Named, sent: Sent, outputs: Sequence[str]) -> bool:
    """Return whether a path in the project is one of its outputs, however it is named."""
    inside = named.path.is_relative_to(sent.project)
    return _is_output(named.name or (str(named.path.relative_to(sent.project)) if inside else ""), outputs)


def _elsewhere(opened: Opened, sent: Sent, view: _Literally, outputs: Sequence[str]) -> Iterator[Named]:
    """Yield folders with files that are named by their absolute paths, without those near the root, outputs,
    and temporary ones outside the project.
    """
    for named in map(view.back, opened.folders):
        if named.name is not None or len(named.path.parts) <= 2 or _is_elsewhere(named.path):
            continue
        inside = named.path.is_relative_to(sent.project)
        if (str(named.path).startswith(_TEMPORARY) and not inside) or sent.has(named):
            continue
        if _is_output_of(named, sent, outputs):
            continue
        if next(_files_below(named.path), None) is not None:
            yield named


def _entries(files: Sequence[Named], folders: Sequence[Named], sent: Sent) -> tuple[Undeclared, ...]:
    found: dict[Path, _Entry] = {}
    for place in _places(files, folders, sent):
        found.setdefault(place.path, place)
    outermost = [p for p in sorted(found) if not any(p != q and p.is_relative_to(q) for q in found)]
    return tuple(_measured(found[path]) for path in outermost)


def _read(opened: Opened, view: View | _Literally) -> Iterator[Named]:
    seen: set[Named] = set()
    for path in (*opened.files, *opened.modules):
        named = view.back(path)
        if named not in seen:
            seen.add(named)
            yield named


def _settings(opened: Opened, view: View, sent: Sent, begun: float | None) -> Iterator[Named]:
    """Yield hidden files of the home folder that the project's own code names: ~/.config/job/seed. The
    code does not name those that libraries look for by themselves.
    """
    home = Path.home()
    for path in map(Path, dict.fromkeys(str(view.back(path).path) for path in opened.files)):
        if not path.is_relative_to(home) or path.is_relative_to(sent.project) or path == home:
            continue
        inside = path.relative_to(home)
        if not inside.parts[0].startswith(".") or inside.parts[0] == ".cache" or _OURS & set(inside.parts):
            continue
        if sent.names_in_home(inside) and path.is_file() and not (begun and path.stat().st_ctime > begun):
            yield Named(path, f"~/{inside}")


def _fetched(
    opened: Opened, view: View, sent: Sent, begun: float | None, there: Collection[str]
) -> Iterator[Named]:
    """Yield data sets and models that a library had fetched into the home folder before the run."""
    home = Path.home()
    for path, folder in opened.fetched.items():
        named, whole = view.back(path), view.back(folder)
        if path not in opened.files or opened.digests.get(path) in there or not _is_hidden(named.path):
            continue
        if named.path.is_relative_to(sent.project) or sent.has(named, opened.files[path]):
            continue
        if named.path.is_file() and not (begun and named.path.stat().st_ctime > begun):
            yield Named(whole.path, f"~/{whole.path.relative_to(home)}")


def _is_hidden(path: Path) -> bool:
    home = Path.home()
    return path.is_relative_to(home) and path != home and path.relative_to(home).parts[0].startswith(".")


def _as_reached(named: Named, sent: Sent) -> Named:
    """Treat a path in or near the project, whose folder no code contains as an absolute path, as reached
    from the working folder.
    """
    near = [folder for folder in (sent.project, *list(sent.project.parents)[:2]) if len(folder.parts) > 2]
    inside = any(named.path.is_relative_to(folder) for folder in near if folder != Path.home())
    if named.name is not None or not inside or sent.is_written_out(named.path):
        return named
    return Named(named.path, os.path.relpath(named.path, sent.project))


def _is_data(path: Path, project: Path, begun: float | None) -> bool:
    """Return whether a file here is one that a run can need: not a library's, not a cache, not made by
    the run.
    """
    try:
        if begun is not None and path.stat().st_ctime > begun:
            return False
        if not path.is_file():
            return False
    except OSError:
        return False
    if path.is_relative_to(project):
        inside = path.relative_to(project).parts
        ours = _OURS & set(inside) or any(part.endswith((".egg-info", ".dist-info")) for part in inside)
        return not ours and inside[0] != "runs" and not _in_environment(path, project)
    return not _is_elsewhere(path)


def _in_environment(path: Path, project: Path) -> bool:
    return any((f / "pyvenv.cfg").exists() for f in path.parents if f.is_relative_to(project))


def _is_elsewhere(path: Path) -> bool:
    """Return whether a path outside the project belongs to the system or a library, or is hidden in the
    home folder.
    """
    if of_the_system(str(path)) or str(path).startswith(_STATE) or _OURS & set(path.parts):
        return True
    home = Path.home()
    if not path.is_relative_to(home) or path == home:
        return False
    first = path.relative_to(home).parts[0]
    return first.startswith(".") or first in _LIBRARIES


def _listed(
    opened: Opened, sent: Sent, view: View | _Literally, files: Sequence[Named], outputs: Sequence[str]
) -> Iterator[Named]:
    """Yield folders of the project that were listed and contain files, none of which is sent.

    Folders that were met on a walk through the whole project, and folders into which the run wrote, are left
    out.
    """
    named = [view.back(path) for path in opened.folders]
    walked = {each.path for each in named}
    made = [view.back(path).path for path in opened.made]
    for each in named:
        name = each.name
        if name is None or name == "." or name.startswith("..") or each.path.parent in walked:
            continue
        if sent.holds_any(name) or sent.has(each) or _is_output(name, outputs):
            continue
        if any(path.is_relative_to(each.path) for path in (*made, *(file.path for file in files))):
            continue
        first = next(_files_below(each.path), None)
        if first is not None and _is_data(first, sent.project, None):
            yield each


def _is_output(name: str, outputs: Sequence[str]) -> bool:
    return any(name == out.rstrip("/") or name.startswith(f"{out.rstrip('/')}/") for out in outputs)


# ---------------------------------------------------------------- the fewest entries


@dataclass(frozen=True)
class _Entry:
    path: Path
    name: str
    target: str | None
    reachable: bool = True


def _places(files: Iterable[Named], folders: Iterable[Named], sent: Sent) -> Iterator[_Entry]:
    inside: dict[str, set[str]] = {}
    above: set[str] = set()
    absolute: set[Path] = set()
    whole: set[Path] = set()
    for named, is_folder in [*((f, False) for f in files), *((f, True) for f in folders)]:
        if named.name is None:
            (whole if is_folder else absolute).add(named.path)
        elif named.name.startswith(".."):
            above.add(_first_above(named.name))
        elif named.name.startswith("~/"):
            yield _Entry(named.path, named.name, None, reachable=False)
        else:
            top = _whole(named.name, is_folder, sent)
            around = named.name if is_folder or top == named.name else _folder_of(named.name)
            inside.setdefault(top, set()).add(around)
    for top, read in inside.items():
        name = _not_much_more(sent.project, top, os.path.commonpath(read))
        yield _Entry(sent.project / name, name, None)
    for name in sorted(above):
        yield _Entry(Path(os.path.normpath(sent.project / name)), name, None, reachable=False)
    for path in sorted(whole | set(_together(absolute, sent.project))):
        yield _Entry(path, str(path), str(path))


def _whole(name: str, is_folder: bool, sent: Sent) -> str:
    """Return the outermost folder around `name` in which no code is sent; `name` itself if there is none."""
    found = name
    place = name if is_folder else _folder_of(name)
    while place and not sent.holds_code(place):
        found, place = place, _folder_of(place)
    return found


def _folder_of(name: str) -> str:
    """Return the folder of a path; "" for what is directly in the project's folder."""
    return name.rpartition("/")[0]


def _not_much_more(project: Path, top: str, read: str) -> str:
    """Return the whole folder, unless what was read in it is a small part; then return that part."""
    if top == read or not (project / read).is_dir():
        return top
    whole, part = _size(project / top)[0], _size(project / read)[0]
    return top if whole <= MUCH * max(part, 1 << 20) else read


def _first_above(name: str) -> str:
    """Return `../data` for `../data/train/a.png`."""
    parts = Path(name).parts
    climbed = sum(1 for part in parts if part == "..")
    return str(Path(*parts[: climbed + 1]))


def _together(paths: set[Path], project: Path) -> list[Path]:
    """Return the folders of absolute paths, joined if they are in a common folder of data."""
    near = {*project.parents, project, Path.home(), *Path.home().parents, Path("/tmp"), Path("/dev/shm")}
    groups: list[Path] = []
    for path in sorted(paths):
        folder = path if path.parent in near else path.parent
        for number, known in enumerate(groups):
            both = Path(os.path.commonpath([known, folder]))
            if both not in near and len(both.parts) > 2:
                groups[number] = both
                break
        else:
            groups.append(folder)
    return groups


# ---------------------------------------------------------------- how much


def _measured(entry: _Entry) -> Undeclared:
    size, count = _size(entry.path)
    return Undeclared(entry.path, entry.name, entry.target, size, count, entry.path.is_dir(), entry.reachable)


def _size(path: Path) -> tuple[int, int]:
    """Return (bytes, files)."""
    size = count = 0
    for file in _files_below(path) if path.is_dir() else [path]:
        try:
            size += file.stat().st_size
            count += 1
        except OSError:
            continue
    return size, count


def _files_below(folder: Path) -> Iterator[Path]:
    for place, names, files in os.walk(folder):
        names[:] = sorted(name for name in names if name not in _OURS)
        yield from (Path(place) / name for name in files)
