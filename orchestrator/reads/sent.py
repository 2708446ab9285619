"""The paths that a machine receives: the code that is sent and the data that the profile declares."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path, PurePath, PurePosixPath

from orchestrator import sync
from orchestrator.profile import DataTree, Profile
from orchestrator.reads.reference import Named
from orchestrator.session.trees import code_ignored

_CODE = (".py", ".ipynb", ".sh", ".toml", ".yaml", ".yml", ".cfg", ".ini")
_TEXT = (*_CODE, ".json", ".txt", ".conf", ".env")
"""Files in which a program may name a path."""
_LARGEST_TEXT = 1 << 20
_MOST_ENTRIES = 2000
_NO_DATA = frozenset(("runs", "__pycache__", "node_modules", "site-packages", "mlruns", "wandb"))


@dataclass(frozen=True)
class Sent:
    """What a machine receives. `code`: relative paths below `project` that are sent; `words`: the command
    line and the values of the run's variables.
    """

    project: Path
    code: frozenset[str]
    data: tuple[DataTree, ...] = ()
    words: tuple[str, ...] = ()
    _of_data: dict[Path, frozenset[str]] = field(default_factory=dict, repr=False, compare=False)
    _spelled: dict[Path, bool] = field(default_factory=dict, repr=False, compare=False)

    def has(self, named: Named, way: str = "python") -> bool:
        """Return whether the machine has what a program on this computer reached in this way."""
        at_its_place = any(_inside(named.path, t.target) for t in self.data if t.target.startswith("/"))
        if named.name is not None and not (at_its_place and self.is_written_out(named.path)):
            return self._has_relative(named.name) or self._has_target_of_link(named.path)
        if at_its_place:
            return True
        links_to = self._has_by_content(named.path)
        return links_to and (way == "descriptor" or not self.is_written_out(named.path))

    def holds_code(self, folder: str) -> bool:
        """Return whether files of code below this folder of the project are sent."""
        return folder in self._folders_of_code

    def holds_any(self, folder: str) -> bool:
        """Return whether anything below this folder of the project is sent."""
        return folder in self._folders

    def reaches(self, link: Path) -> bool:
        """Return whether a link of the project leads on the machine to what it leads to here."""
        name = str(link.relative_to(self.project))
        return any(self._in_tree(tree, name) for tree in self.data) or self._has_target_of_link(link)

    # ------------------------------------------------------------ inside

    def _has_relative(self, name: str) -> bool:
        return name in self.code or any(self._in_tree(tree, name) for tree in self.data)

    def _in_tree(self, tree: DataTree, name: str) -> bool:
        target = os.path.normpath(tree.target)
        if name != target and not name.startswith(f"{target}/"):
            return False
        inside = os.path.relpath(name, target)
        return inside == "." or not tree.source.is_dir() or inside in self._members(tree.source)

    def _members(self, source: Path) -> frozenset[str]:
        """Return the files of a data source that are sent, and the folders around them."""
        if source not in self._of_data:
            files = sync.members(source, data=True)
            self._of_data[source] = files | {folder for name in files for folder in _above(name)}
        return self._of_data[source]

    def _has_target_of_link(self, path: Path) -> bool:
        """Return whether a link within the project leads to something that is sent. A link that leads out
        of it leads nowhere on the machine.
        """
        real = path.resolve()
        return real != path and real.is_relative_to(self.project) and self._has_by_content(real)

    def _has_by_content(self, path: Path) -> bool:
        """Return whether what is at an absolute path of this computer is sent, to whatever path."""
        if path.is_relative_to(self.project) and self._has_relative(str(path.relative_to(self.project))):
            return True
        return any(path.is_relative_to(place) for t in self.data for place in {t.source, t.source.resolve()})

    def is_written_out(self, path: Path) -> bool:
        """Return whether the program names a folder around the path by its absolute path."""
        folder = path.parent
        if folder not in self._spelled:
            self._spelled[folder] = any(words in text for words in _spellings(folder) for text in self._texts)
        return self._spelled[folder]

    def names_absolutely(self, path: Path) -> bool:
        """Return whether the program's text contains this path itself, as an absolute one."""
        return any(str(path) in text for text in self._texts)

    def names_in_home(self, inside: PurePath) -> bool:
        """Return whether the program's text names a file in the home folder by its first two parts:
        .config/job for .config/job/seed, in one string or in several. For a file directly in the home
        folder, whether it has the file's name.
        """
        first, *more = inside.parts
        if not more:
            return any(first in text for text in self._texts)
        quoted = [(f'"{part}"', f"'{part}'") for part in (first, more[0])]
        return any(
            f"{first}/{more[0]}" in text or all(any(q in text for q in either) for either in quoted)
            for text in self._texts
        )

    def found(self, pattern: re.Pattern[str]) -> Iterator[str]:
        """Yield the first group of each match in the program's text, settings and command line."""
        return (match[1] for text in self._texts for match in pattern.finditer(text))

    @cached_property
    def _texts(self) -> tuple[str, ...]:
        return (*self.words, *_read(self.project, self.code))

    @cached_property
    def _folders(self) -> frozenset[str]:
        return frozenset(folder for name in self.code for folder in _above(name))

    @cached_property
    def _folders_of_code(self) -> frozenset[str]:
        return frozenset(folder for name in self.code if name.endswith(_CODE) for folder in _above(name))


def not_sent(sent: Sent) -> tuple[str, ...]:
    """Return the outermost files and folders of a project of which nothing is sent, except hidden ones."""
    waiting, found, left = [sent.project], [], _MOST_ENTRIES
    while waiting and left > 0:
        entries = sorted(waiting.pop(0).iterdir())
        left -= len(entries)
        for path in entries:
            name = str(path.relative_to(sent.project))
            if path.name.startswith(".") or path.name in _NO_DATA or (path / "pyvenv.cfg").exists():
                continue
            if path.is_symlink():
                found += [name] if path.exists() and not sent.reaches(path) else []
            elif path.is_dir() and sent.holds_any(name):
                waiting.append(path)
            elif not sent.has(Named(path, name)):
                found.append(name)
    return tuple(found)


def sent_of(profile: Profile) -> Sent:
    """List the paths that a sync of the profile sends, without reading their content."""
    project = profile.code.path.resolve()
    code = sync.members(project, ignore=code_ignored(profile))
    values = (value for value in profile.train.env.values() if isinstance(value, str))
    return Sent(project, code, profile.data, (*profile.train.command, *values))


def sent_without_profile(project: Path, data: tuple[DataTree, ...] = ()) -> Sent:
    """List the paths that the sync of a first profile would send from a folder."""
    own = project.resolve()
    return Sent(own, sync.members(own, ignore=("/runs/",)), data)


def _spellings(folder: Path) -> Iterator[str]:
    """Yield the ways in which a program may write a folder, or one around it, on this computer."""
    home = Path.home()
    for each in (folder, *folder.parents):
        if len(each.parts) > 2 and each != home:
            yield str(each)
            if each.is_relative_to(home):
                yield f"~/{each.relative_to(home)}"


def _above(name: str) -> Iterator[str]:
    return (str(folder) for folder in PurePosixPath(name).parents if str(folder) != ".")


def _inside(path: Path, folder: str) -> bool:
    return path.is_relative_to(folder)


def _read(project: Path, code: frozenset[str]) -> Iterator[str]:
    for name in sorted(code):
        path = project / name
        try:
            if name.endswith(_TEXT) and path.stat().st_size <= _LARGEST_TEXT:
                yield path.read_text("utf-8", errors="replace")
        except OSError:
            continue
