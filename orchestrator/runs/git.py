"""The git revision of a run's code, and which of its files differ from it, read from the user's own
repository.

Nothing is written to the repository: comparisons use a temporary index. No program that the repository
configures is started, except the filters of its attributes.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_REVISION = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")
_SECONDS = 60.0
_MOST = 1 << 26
"""Most bytes of a file in a revision that are read."""
_SETTINGS = ("-c", "diff.autoRefreshIndex=true")
"""Compare the content of files whose times differ."""
_COMPARED = ("--no-ext-diff", "--no-textconv", "--no-renames", "--relative", "--ignore-submodules=all")
_PATHS = 1000
"""Most paths that a diff names on a command line."""


@dataclass(frozen=True)
class Revision:
    """The revision that was checked out, and the paths of the code that differ from it. Paths are relative to
    the code.

    `branch`: None if none is checked out. `changed`: paths with other content than in the revision, new
    paths, and removed ones. `ignored`: those that the ignore rules match.
    """

    id: str
    branch: str | None
    changed: frozenset[str]
    ignored: frozenset[str]

    @property
    def dirty(self) -> bool:
        return bool(self.changed)


def revision_of(folder: Path, files: Collection[str]) -> Revision | None:
    """Return the revision of the repository around `folder`, compared with `files`, the paths of the code
    there.

    None if there is no repository, revision or git, or if git fails or takes too long.
    """
    found = _text(_git(folder, "rev-parse", "--verify", "HEAD"))
    if not _REVISION.fullmatch(found):
        return None
    branch = _text(_git(folder, "symbolic-ref", "--quiet", "--short", "HEAD"))
    compared = _compared(folder, found, set(files))
    gone = _paths(folder, "ls-files", "-z", "--deleted", "--", ".")
    removals = ("--cached", "--name-only", "--no-renames", "--diff-filter=D", "-z", "--relative")
    staged = _paths(folder, "diff", *removals, found)
    if compared is None or gone is None or staged is None:
        return None
    changed, ignored = compared
    removed = {path for path in gone | staged if path not in files and not os.path.lexists(folder / path)}
    return Revision(found, branch or None, frozenset(changed | removed), frozenset(ignored))


def _compared(folder: Path, revision: str, files: set[str]) -> tuple[set[str], set[str]] | None:
    """Return which of `files` below `folder` differ from the revision, and which of those are ignored;
    None if git fails.
    """
    with tempfile.TemporaryDirectory() as scratch:
        index = {"GIT_INDEX_FILE": f"{scratch}/index"}
        if _git(folder, "read-tree", revision, variables=index) is None:
            return None
        listed = _git(folder, "ls-files", "-z", "--stage", "--", ".", variables=index)
        other = _paths(folder, "diff", "--name-only", "-z", *_COMPARED, "--", ".", variables=index)
    if listed is None or other is None:
        return None
    blobs, modules = _listed(listed)
    inside = {path: module for path in files if (module := _module_of(path, modules)) is not None}
    own = files - set(inside)
    changed = {path for path in own if path not in blobs or path in other}
    ignored = _ignored(folder, {path for path in own if path not in blobs})
    for module in set(inside.values()):
        mine = {path.removeprefix(f"{module}/") for path, of in inside.items() if of == module}
        found = _compared(folder / module, modules[module], mine) if _is_module(folder / module) else None
        below = found if found is not None else (mine, set())
        changed |= {f"{module}/{path}" for path in below[0]}
        ignored |= {f"{module}/{path}" for path in below[1]}
    return changed, ignored


def _listed(answer: bytes) -> tuple[set[str], dict[str, str]]:
    """Return the files of an index, and its submodules with their revisions."""
    blobs: set[str] = set()
    modules: dict[str, str] = {}
    for line in answer.split(b"\0"):
        facts, _, path = line.partition(b"\t")
        mode, _, rest = facts.partition(b" ")
        if mode == b"160000":
            modules[os.fsdecode(path)] = os.fsdecode(rest.split(b" ")[0])
        elif path:
            blobs.add(os.fsdecode(path))
    return blobs, modules


def _module_of(path: str, modules: Mapping[str, str]) -> str | None:
    return next((module for module in modules if path.startswith(f"{module}/")), None)


def _is_module(folder: Path) -> bool:
    """Return whether it is a repository of its own; for other folders, git would use the repository
    around them.
    """
    return (folder / ".git").exists()


def is_ignored(file: Path) -> bool:
    """Return whether ignore rules match a file that git does not track; False outside of a repository."""
    if not _text(_git(file.parent, "rev-parse", "--verify", "HEAD")):
        return False
    known = _git(file.parent, "ls-files", "--error-unmatch", "-z", "--", f":(literal){file.name}")
    return known is None and bool(_ignored(file.parent, {file.name}))


def _ignored(folder: Path, paths: set[str]) -> set[str]:
    """Return those of `paths` that the ignore rules match; all of them if git fails."""
    if not paths:
        return set()
    asked = b"".join(os.fsencode(path) + b"\0" for path in sorted(paths))
    found = _git(folder, "check-ignore", "-z", "--stdin", given=asked, fine=(0, 1))
    return paths if found is None else {os.fsdecode(path) for path in found.split(b"\0") if path}


def diff_of(folder: Path, revision: str, paths: Sequence[str]) -> bytes:
    """Return the changes to `paths` since the revision, as `git diff` shows them; b"" if there are none."""
    few = sorted(paths)[:_PATHS]
    if not few:
        return b""
    with tempfile.TemporaryDirectory() as scratch:
        index = {"GIT_INDEX_FILE": f"{scratch}/index", "GIT_LITERAL_PATHSPECS": "1"}
        if _git(folder, "read-tree", revision, variables=index) is None:
            return b""
        known = _git(folder, "ls-files", "-z", "--", *few, variables=index) or b""
        new = sorted({*few} - {os.fsdecode(path) for path in known.split(b"\0")})
        here = [path for path in new if os.path.lexists(folder / path)]
        if here:
            _git(folder, "add", "--intent-to-add", "--", *here, variables=index)
        return _git(folder, "diff", "-p", "--no-color", *_COMPARED, "--", *few, variables=index) or b""


def contents_at(folder: Path, revision: str, path: str) -> Iterator[bytes]:
    """Yield the content of a file below `folder` in a revision: as git stores it, then as git would check
    it out.
    """
    if not _REVISION.fullmatch(revision):
        return
    for form in ((), ("--filters",)):
        words = ("cat-file", *(form or ("blob",)), f"{revision}:./{path}")
        found = _git(folder, *words)
        if found is not None and len(found) <= _MOST:
            yield found
    parts = path.split("/")
    for count in range(1, len(parts)):
        module = "/".join(parts[:count])
        found_at = _text(_git(folder, "rev-parse", "--verify", f"{revision}:./{module}"))
        if _REVISION.fullmatch(found_at) and _is_module(folder / module):
            yield from contents_at(folder / module, found_at, "/".join(parts[count:]))


def _text(answer: bytes | None) -> str:
    return (answer or b"").decode("utf-8", "replace").strip()


def _paths(folder: Path, *words: str, variables: Mapping[str, str] | None = None) -> set[str] | None:
    found = _git(folder, *words, variables=variables)
    return None if found is None else {os.fsdecode(path) for path in found.split(b"\0") if path}


def _git(
    folder: Path,
    *words: str,
    variables: Mapping[str, str] | None = None,
    given: bytes = b"",
    fine: tuple[int, ...] = (0,),
) -> bytes | None:
    """Run a git command and return what it prints; None if it fails."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    quiet = {"GIT_OPTIONAL_LOCKS": "0", "GIT_NO_LAZY_FETCH": "1", "GIT_TERMINAL_PROMPT": "0"}
    try:
        done = subprocess.run(
            ["git", "-c", "core.fsmonitor=false", "-c", "core.quotePath=false", *_SETTINGS, *words],
            cwd=folder,
            env={**clean, **quiet, **(variables or {})},
            capture_output=True,
            check=False,
            input=given,
            timeout=_SECONDS,
        )
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
    return done.stdout if done.returncode in fine else None
