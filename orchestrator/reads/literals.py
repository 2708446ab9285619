"""Find paths of this computer that a project's code contains as text: in its scripts, including defaults
of options, and in the configuration files that it reads.
"""

from __future__ import annotations

import ast
import glob
import os
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path

from orchestrator.model.paths import is_folder, is_there, with_home
from orchestrator.model.syntax import tree_of
from orchestrator.profile.nearby import looks_like_profile
from orchestrator.profile.settings import SUFFIXES, Unreadable, text_values
from orchestrator.reads.opened import Opened
from orchestrator.reads.undeclared import is_secret

MOST_FILES = 300
LARGEST = 1 << 20
LONGEST = 300
"""Maximum files of code that are read, bytes of a file, and characters of a path."""


_SETTINGS_FOLDERS = ("", "conf", "config", "configs", "settings")
"""Folders of configuration files, relative to a script."""

_OF_TOOLS = re.compile(
    r"\..*|pyproject\.toml|package(-lock)?\.json|tsconfig.*|.*\.lock|docker-compose.*|compose\.ya?ml"
    r"|environment.*\.ya?ml|mkdocs\.ya?ml|poetry\.toml|pylock.*\.toml|cargo\.toml"
)
_WRITTEN = re.compile(
    r"(^|_)(out|outputs?|outdir|logs?|logdir|logging|saved?|results?|te?mp|cache|export|work|workdir|scratch)(_|$)"
)
"""Keys of folders into which a program writes, in lower case with underscores."""


class _Found:
    """Existing files and folders, in the order in which they were named."""

    def __init__(self, project: Path) -> None:
        self.project = project
        self.files: dict[str, str] = {}
        self.folders: dict[str, None] = {}
        self.relative: set[str] = set()
        self._near = {project, *project.parents, Path.home()}

    def add(self, text: str, folders: set[Path], *, inside: bool = False) -> None:
        """Add the files and folders that `text` names relative to `folders`; `inside`: only those below
        the project.
        """
        for base in sorted(folders):
            place = Path(os.path.normpath(base / with_home(Path(text))))
            if place in self._near or (inside and not place.is_relative_to(self.project)):
                continue
            if not with_home(Path(text)).is_absolute():
                self.relative.add(str(place))
            if is_folder(place):
                self.folders.setdefault(str(place))
            elif is_there(place) and place.is_file() and not is_secret(place.name):
                self.files.setdefault(str(place), "named")


def named_paths(project: Path, code: frozenset[str]) -> Opened:
    """Find existing paths among the literals of a project's `code`, and among the values of configuration
    files that it names or that lie beside it. No file is executed."""
    found = _Found(project)
    scripts = sorted(each for each in code if each.endswith(".py"))[:MOST_FILES]
    settings = dict.fromkeys(_beside(scripts, code))
    for name in scripts:
        folder = (project / name).parent
        for text in _strings(project / name):
            found.add(text, {project, folder})
            if text.endswith(SUFFIXES):
                settings.update(dict.fromkeys((project / text, folder / text)))
    for file in list(settings)[:MOST_FILES]:
        for text in _values(project / file):
            found.add(text, {project, (project / file).parent}, inside=True)
    absolute = frozenset({*found.files, *found.folders} - found.relative)
    return Opened(found.files, tuple(found.folders), frozenset(), (), absolute=absolute)


def named_by_settings(project: Path, code: frozenset[str]) -> frozenset[str]:
    """Return the names at the top of the project that configuration files beside its scripts name, or into
    which they name a path.
    """
    scripts = sorted(each for each in code if each.endswith(".py"))[:MOST_FILES]
    files = list(dict.fromkeys(_beside(scripts, code)))[:MOST_FILES]
    texts = (posixpath.normpath(text) for file in files for text in _values(project / file))
    return frozenset(text.partition("/")[0] for text in texts)


def _beside(scripts: list[str], code: frozenset[str]) -> Iterator[Path]:
    """Yield the configuration files beside scripts, except those of tools."""
    near = {posixpath.join(posixpath.dirname(name), sub) for name in scripts for sub in _SETTINGS_FOLDERS}
    folders = {folder.rstrip("/") for folder in near}
    for name in sorted(code):
        folder, _, last = name.rpartition("/")
        if folder in folders and last.endswith(SUFFIXES) and not _OF_TOOLS.fullmatch(last.lower()):
            yield Path(name)


def _values(file: Path) -> Iterator[str]:
    """Yield the texts of a configuration file that may name something that the program reads."""
    try:
        if not file.is_file() or file.stat().st_size > LARGEST or looks_like_profile(file):
            return
        pairs = text_values(file.name, file.read_bytes())
    except (OSError, ValueError, Unreadable):
        return
    texts = {_above_wildcards(text) for key, text in pairs if not _WRITTEN.search(_snake(key))}
    yield from sorted(text for text in texts if _may_be_path(text))


def _snake(key: str) -> str:
    """Return `output_dir` for `outputDir` and `output-dir`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|[-. ]", "_", key).lower()


def _strings(file: Path) -> Iterator[str]:
    try:
        if file.stat().st_size > LARGEST:
            return
        tree = tree_of(file.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError):
        return
    for_people = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    texts = {_above_wildcards(_text(node)) for node in ast.walk(tree) if id(node) not in for_people}
    yield from sorted(text for text in texts if _may_be_path(text))


def _text(node: ast.AST) -> str:
    """Evaluate an expression to a path; if only its beginning is known, to the folder; "" if nothing is."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    if isinstance(node, ast.JoinedStr):
        first = _text(node.values[0]) if node.values else ""
        return posixpath.dirname(first)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
        left, right = _text(node.left), _text(node.right)
        return posixpath.join(left, right) if left and right else ""
    if isinstance(node, ast.Call) and node.args:
        parts = [_text(part) for part in node.args]
        called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        return posixpath.join(*parts) if all(parts) and called in ("Path", "join", "joinpath") else ""
    return ""


def _may_be_path(text: str) -> bool:
    if len(text) > LONGEST or "\n" in text or "\0" in text or "://" in text:
        return False
    return bool(text.strip("./ "))


def _above_wildcards(text: str) -> str:
    """Return `data` for `data/*.csv`."""
    while glob.has_magic(text):
        text = posixpath.dirname(text)
    return text
