"""Find what a run created or changed in its working folder."""

# Close to the kernel: descriptors, modes and races need os calls, not pathlib.
# ruff: noqa: PTH112, PTH114, PTH115, PTH118, PTH119, PTH121, PTH206

from __future__ import annotations

import hashlib
import itertools
import os
import re
import stat
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

from ..rundir import RunDir, is_plain, open_plain, read_json, write_json
from .stage import altered, describe, relative, walk

_BLOCK = 1 << 20
_MOST_MADE = 2000
"""Maximum number of files that are searched for a name like that of a missing output."""

Entry = Dict[str, Any]
"""As model.Entry: path, kind, size, mode, digest, target."""


def outputs(run: RunDir, again: bool = False) -> List[Entry]:
    """List the run's outputs: as recorded at its end, or as found now if they were not recorded.

    With `again`, they are searched for and recorded anew.
    """
    if again:
        write(run)
    written = read_json(run.outputs)
    return list(written["entries"]) if written else find(run)


def write(run: RunDir) -> None:
    """Find the files that the run left, the data that were changed meanwhile, and the outputs that it never
    wrote; record them.
    """
    entries = find(run)
    told = {"entries": entries, "altered": altered(run), "unwritten": _unwritten(run, entries)}
    write_json(run.outputs, told)


def left(run: RunDir, again: bool = False) -> Dict[str, Any]:
    """Return jobs.Left of the client: the outputs, and whether the run read exactly what it was sent."""
    mounts = read_json(run.mounts) or {"mounts": [], "watched": True}
    return {
        "entries": outputs(run, again),
        "altered": altered_data(run),
        "mounts": mounts["mounts"],
        "watched": mounts["watched"],
        "unwritten": unwritten(run),
    }


def altered_data(run: RunDir) -> List[str]:
    """Return the shared data files that were written during the run, at most 1,000, as recorded or as found
    now.
    """
    written = read_json(run.outputs)
    return list(altered(run) if written is None else written.get("altered", []))[:1000]


def unwritten(run: RunDir) -> List[Dict[str, Any]]:
    """Return the outputs that its spec names and that it did not write: {pattern, nearest, no_other}.

    As recorded, or as found now. `nearest`: the created file whose name is most like the pattern; None if the
    run created none. `no_other`: it wrote none of them.
    """
    written = read_json(run.outputs)
    if written is None:
        return _unwritten(run, find(run))
    return list(written.get("unwritten", []))


def _unwritten(run: RunDir, entries: List[Entry]) -> List[Dict[str, Any]]:
    spec = read_json(run.spec) or {}
    paths = [entry["path"] for entry in entries if entry["kind"] != "dir"]
    globs = spec.get("outputs") or []
    lacking = [glob for glob in globs if not any(map(matcher([glob]), paths))]
    if not lacking:
        return []
    made = list(_made(run, spec)) if spec.get("trees") else paths
    alone = len(lacking) == len(globs)
    return [{"pattern": glob, "nearest": _nearest(glob, made), "no_other": alone} for glob in lacking]


def _made(run: RunDir, spec: Dict[str, Any]) -> Iterator[str]:
    """Return the first files that the run created, requested or not."""
    found = _of_trees(run, {**spec, "outputs": []}, matcher([]))
    files = (name for path, name in found if os.path.islink(path) or not os.path.isdir(path))
    return itertools.islice(files, _MOST_MADE)


def _nearest(glob: str, made: List[str]) -> Optional[str]:
    import difflib  # late: every supervisor imports this module, few runs lack an output

    def likeness(name: str) -> float:
        return max(
            difflib.SequenceMatcher(None, glob, name).ratio(),
            difflib.SequenceMatcher(None, os.path.basename(glob), os.path.basename(name)).ratio(),
        )

    return max(made, key=likeness, default=None)


def find(run: RunDir) -> List[Entry]:
    """Find files, links and new folders that did not exist when the run began, or have changed.

    With globs in the spec, only what they match; if no file matches, all, so that no result is lost because
    of its name. New files among shared data are usually a cache: they count only if a glob matches them.
    Bytecode never counts. For devices, pipes, sockets and unreadable files only the name is listed: kind
    "special" or "unreadable". For files that are too large to read, name and size: kind "too_large".
    """
    spec = read_json(run.spec) or {}
    found = _found(run, spec)
    if spec.get("outputs") and spec.get("trees") and all(entry["kind"] == "dir" for entry in found):
        return _found(run, {**spec, "outputs": []})
    return found


def _found(run: RunDir, spec: Dict[str, Any]) -> List[Entry]:
    wanted = matcher(spec.get("outputs") or [])
    paths = _of_trees if spec.get("trees") else _of_folder
    found = paths(run, spec, wanted)
    return [entry for path, name in found if (entry := _entry(path, name)) is not None]


def _of_trees(run: RunDir, spec: Dict[str, Any], wanted: Callable[[str], bool]) -> Iterator[Tuple[str, str]]:
    staged = read_json(run.staged) or {"copied": {}}
    trees = relative(spec["trees"])
    globs = bool(spec.get("outputs"))
    for path, _ in _walk(run.work):
        name = os.path.relpath(path, run.work)
        owner = _owner(name, trees)
        if owner is not None and not owner["copied"]:
            if globs and wanted(name) and not _is_shared(path, name, owner):
                yield path, name
        elif wanted(name) and _touched(path, name, staged["copied"].get(name), owner):
            yield path, name


def _of_folder(run: RunDir, spec: Dict[str, Any], wanted: Callable[[str], bool]) -> Iterator[Tuple[str, str]]:
    """For a run in the user's own folder, without trees: return what globs match, if written by it."""
    started = read_json(run.started)
    if not spec.get("outputs") or started is None:
        return
    top = spec["cwd"]
    for path, is_folder in _walk(top):
        name = os.path.relpath(path, top)
        if not is_folder and wanted(name) and os.lstat(path).st_ctime >= started["started_at"]:
            yield path, name


def _walk(top: str) -> Iterator[Tuple[str, bool]]:
    return ((path, folder) for path, folder in walk(top, skip=[]) if "__pycache__" not in path.split(os.sep))


def _owner(name: str, trees: List[Dict[str, Any]]) -> Optional[Dict[str, Any]]:
    """Return the innermost tree at or above the path."""
    for tree in trees:
        target = os.path.normpath(tree["target"])
        if target == "." or name == target or name.startswith(target + os.sep):
            return tree
    return None


def _source(name: str, owner: Dict[str, Any]) -> str:
    """Return where in its tree a path came from."""
    return os.path.normpath(os.path.join(owner["source"], os.path.relpath(name, owner["target"])))


def _is_shared(path: str, name: str, owner: Dict[str, Any]) -> bool:
    """Whether it is the tree's own file or folder, linked here."""
    source = _source(name, owner)
    try:
        if os.path.isdir(path) and not os.path.islink(path):
            return os.path.isdir(source)
        if os.path.islink(path):
            target = os.readlink(path)
            return target == source or (os.path.islink(source) and os.readlink(source) == target)
        return os.path.samefile(path, source)
    except OSError:
        return False


def _touched(path: str, name: str, before: Optional[List[Any]], owner: Optional[Dict[str, Any]]) -> bool:
    """Whether the run created or wrote it, or changed its mode or target.

    A file that was rewritten counts even if its bytes are the same: a project often contains what an earlier
    run left, and an equal result is a result too.
    """
    if before is None:
        return True
    now = describe(path)
    if now[0] == before[0]:
        return False
    if os.path.isdir(path) and not os.path.islink(path):
        return bool(now[2] != before[2])
    if now[1:4] != before[1:4]:
        return True
    if os.path.islink(path) or owner is None:
        return False
    if now[4] != before[4]:
        return True
    return not _same_content(path, _source(name, owner), before)


def _same_content(path: str, source: str, before: List[Any]) -> bool:
    """Whether a rewritten or touched file still equals its original; without its original it does not."""
    try:
        about = os.lstat(source)
        if (about.st_size, about.st_mtime_ns) != (before[1], before[4]):
            return False
        return sha256(path) == sha256(source)
    except OSError:
        return False


def _entry(path: str, name: str) -> Optional[Entry]:
    try:
        about = os.lstat(path)
        mode = stat.S_IMODE(about.st_mode)
        if stat.S_ISLNK(about.st_mode):
            return _facts(name, "link", 0, 0, target=os.readlink(path))
        if stat.S_ISDIR(about.st_mode):
            return _facts(name, "dir", 0, mode)
        if stat.S_ISREG(about.st_mode):
            if _is_too_large(path, about):
                return _facts(name, "too_large", about.st_size, mode)
            return _file(path, name, about.st_size, mode)
    except FileNotFoundError:  # it was removed between the two calls
        return None
    except OSError:
        return _facts(name, "unreadable", 0, 0)
    return _facts(name, "special", 0, mode)


def _is_too_large(path: str, about: os.stat_result) -> bool:
    """Whether its size exceeds its disk, or it is large and nearly all holes: reading it would take hours."""
    disk = os.statvfs(path)
    return not is_plain(about) or about.st_size > disk.f_blocks * disk.f_frsize


def _file(path: str, name: str, size: int, mode: int) -> Entry:
    """Return a file with the size that it had when it was listed: if it still grows, a prefix."""
    return _facts(name, "file", size, mode, digest=sha256(path, size))


def _facts(path: str, kind: str, size: int, mode: int, digest: str = "", target: str = "") -> Entry:
    return {"path": path, "kind": kind, "size": size, "mode": mode, "digest": digest, "target": target}


def sha256(path: str, size: Optional[int] = None) -> str:
    """Return the lower-case hex hash of a file, or of its first `size` bytes. Raises OSError if it is not a
    plain file.
    """
    digest, left = hashlib.sha256(), size
    with open(open_plain(path), "rb", buffering=0) as file:
        while left is None or left > 0:
            block = file.read(_BLOCK if left is None else min(_BLOCK, left))
            if not block:
                break
            digest.update(block)
            left = None if left is None else left - len(block)
    return digest.hexdigest()


# ---------------------------------------------------------------- globs


def matcher(globs: List[str]) -> Callable[[str], bool]:
    """Return a function that tells whether a path is requested; without globs, every path is.

    `*` and `?` stay within a name, `**` crosses folders, a glob without a slash matches at any depth, and
    what matches a folder matches all below it.
    """
    if not globs:
        return lambda _: True
    patterns = [_pattern(glob) for glob in globs]
    return lambda path: any(pattern.fullmatch(path) for pattern in patterns)


def _pattern(glob: str) -> Any:
    glob = os.path.normpath(glob)
    text = "" if "/" in glob else "(?:.*/)?"
    for part in re.split(r"(\*\*/|\*\*|\*|\?|\[[^\]]+\])", glob):
        text += {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}.get(part) or (
            part.replace("[!", "[^") if part.startswith("[") and part.endswith("]") else re.escape(part)
        )
    return re.compile(f"{text}(?:/.*)?", re.DOTALL) if glob != "." else re.compile(".*", re.DOTALL)
