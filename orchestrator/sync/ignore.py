"""Decide which paths belong to a tree, and give the reason for each that does not.

In order of precedence: what is never sent (.git, .orch, bytecode, virtual environments), the caller's
patterns, .orchignore files, .gitignore files, the repository's info/exclude. Within each kind a deeper file
overrides one above it. A file that git tracks is kept, whatever .gitignore says, as in a fresh clone.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from orchestrator.model.answers import Malformed
from orchestrator.model.files import regular_bytes
from orchestrator.runtime.transfer.entries import parents, raw, text
from orchestrator.runtime.transfer.tree import Chooser
from orchestrator.sync.patterns import Pattern, PatternList, parse

_NEVER = {
    ".git": "never sent: git's own data",
    ".orch": "never sent: our own state",
    "__pycache__": "never sent: bytecode",
}
_BYTECODE = "__pycache__"
_LARGEST = 1 << 30


class _Placed(NamedTuple):
    """A pattern list and the folder that it applies to, relative to the repository's top, with a trailing
    slash.
    """

    base: bytes
    patterns: PatternList


class _Rules(NamedTuple):
    """The pattern lists that apply in one folder, those of highest precedence first."""

    asked: tuple[_Placed, ...]
    orch: tuple[_Placed, ...]
    git: tuple[_Placed, ...]
    exclude: tuple[_Placed, ...]

    def lists(self, *, tracked: bool) -> tuple[_Placed, ...]:
        ours = self.asked + self.orch
        return ours if tracked else ours + self.git + self.exclude


class Ignore(Chooser):
    """Selects paths in one walk over `root`. `skipped` is (path, why), folders with a trailing slash."""

    def __init__(self, root: Path, ignore: Sequence[str] = (), *, gitignore: bool = True) -> None:
        self.skipped: list[tuple[str, str]] = []
        self._root = root
        self._gitignore = gitignore
        self._top = (_repository(root) if gitignore else None) or root
        inside = root.relative_to(self._top)
        self._prefix = b"" if inside == Path() else os.fsencode(inside) + b"/"
        asked = parse("\n".join(ignore).encode("utf-8", "surrogateescape"), "profile")
        exclude = self._read(self._top / ".git/info/exclude")
        self._first = _Rules(_placed(self._prefix, asked), (), (), _placed(b"", exclude))
        self._tracked = _tracked(root) if gitignore and (self._top / ".git").exists() else frozenset()
        self._tracked_folders = {folder for path in self._tracked for folder in parents(path)}
        self._rules: dict[str, _Rules] = {}
        self._lists: dict[str, tuple[tuple[_Placed, ...], tuple[_Placed, ...]]] = {}
        self._closed: dict[str, str] = {}

    def enter(self, path: str, names: set[str]) -> bool:
        if path and "pyvenv.cfg" in names:
            self.skipped.append((path + "/", "never sent: a virtual environment (pyvenv.cfg)"))
            return False
        above = self._rules[path.rpartition("/")[0]] if path else self._rules_above()
        rules = self._rules[path] = self._with(above, path, names)
        self._lists[path] = (rules.lists(tracked=False), rules.lists(tracked=True))
        return True

    def keep(self, path: str, is_folder: bool) -> bool:
        why = self._why_not(path, is_folder)
        if why is not None:
            self.skipped.append((path + "/" if is_folder else path, why))
        return why is None

    def _why_not(self, path: str, is_folder: bool) -> str | None:
        folder, _, name = path.rpartition("/")
        if name in _NEVER and (is_folder or name != _BYTECODE):
            return _NEVER[name]
        if (path in self._tracked_folders) if is_folder else (path in self._tracked):
            return self._why_not_though_tracked(path, is_folder)
        if folder in self._closed:
            return self._closed[folder]
        return _reason(self._decide(path, is_folder, tracked=False))

    def _why_not_though_tracked(self, path: str, is_folder: bool) -> str | None:
        """Return why a tracked path does not belong; None if it does. Git's own rules do not apply to
        tracked paths. In a folder that they ignore, only the tracked files are exempt.
        """
        why = _reason(self._decide(path, is_folder, tracked=True))
        git_says = self._closed.get(path.rpartition("/")[0]) or _reason(
            self._decide(path, is_folder, tracked=False)
        )
        if why is None and is_folder and git_says:
            self._closed[path] = git_says
        return why

    def _decide(self, path: str, is_folder: bool, *, tracked: bool) -> Pattern | None:
        lists = self._lists[path.rpartition("/")[0]][tracked]
        if not lists:
            return None
        full = self._prefix + raw(path)
        name = full.rpartition(b"/")[2]
        for base, patterns in lists:
            if decided := patterns.decide(full[len(base) :], name, is_folder):
                return decided
        return None

    def _rules_above(self) -> _Rules:
        """Return the rules that the repository's folders above the root set for it."""
        rules = self._first
        folder = self._top
        for part in self._root.relative_to(self._top).parts:
            rules = self._read_both(rules, folder)
            folder = folder / part
        return rules

    def _with(self, above: _Rules, path: str, names: set[str]) -> _Rules:
        if names.isdisjoint((".gitignore", ".orchignore")):
            return above
        return self._read_both(above, self._root / os.fsdecode(raw(path)) if path else self._root)

    def _read_both(self, above: _Rules, folder: Path) -> _Rules:
        inside = folder.relative_to(self._top)
        base = b"" if inside == Path() else os.fsencode(inside) + b"/"
        orch = self._read(folder / ".orchignore")
        git = self._read(folder / ".gitignore") if self._gitignore else PatternList(())
        return above._replace(orch=_placed(base, orch) + above.orch, git=_placed(base, git) + above.git)

    def _read(self, path: Path) -> PatternList:
        """Return the patterns of a file; none if it is absent, unreadable, a pipe or a link (which git
        does not follow).
        """
        try:
            patterns = regular_bytes(path, _LARGEST)
        except (OSError, Malformed):
            return PatternList(())
        return parse(patterns, text(os.fsencode(os.path.relpath(path, self._root))))


def _placed(base: bytes, patterns: PatternList) -> tuple[_Placed, ...]:
    return (_Placed(base, patterns),) if patterns else ()


def _reason(decided: Pattern | None) -> str | None:
    return None if decided is None or decided.negated else decided.why


def _repository(root: Path) -> Path | None:
    return next((folder for folder in (root, *root.parents) if (folder / ".git").exists()), None)


def _tracked(root: Path) -> frozenset[str]:
    """Return the files below `root` that git tracks though its ignore rules match them; none without git."""
    command = ["git", "ls-files", "-z", "--cached", "--ignored", "--exclude-standard"]
    clean = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        done = subprocess.run(command, cwd=root, env=clean, capture_output=True, check=False)
    except OSError:
        return frozenset()
    return (
        frozenset(text(path) for path in done.stdout.split(b"\0") if path)
        if done.returncode == 0
        else frozenset()
    )
