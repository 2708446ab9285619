"""Lay out a run's working folder from synced trees.

Copied trees belong to the run. Files of the others are shared by hard link (by symbolic link across file
systems), but their folders belong to the run, so that new files beside the data stay with the run. An
absolute target becomes a symbolic link at that path; it never replaces anything that orch did not create.

A tree that was sent here has a digest, and is verified before it is laid out. The files of a shared one are
read-only, and `shared.json` records their stamps and hashes, so that the run's end can tell whether they are
still what the run was given.
"""

# Close to the kernel: descriptors, modes and races need os calls, not pathlib.
# ruff: noqa: PTH100, PTH101, PTH103, PTH105, PTH108, PTH110, PTH112, PTH114, PTH115, PTH116, PTH117, PTH118, PTH119, PTH120, PTH121, PTH208, PTH211

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
from typing import Any, Callable, Dict, Iterator, List, Optional, Set, Tuple

from ..rundir import RunDir, RunError, held, open_run, read_json, write_json
from . import record
from . import tree as tree_
from .entries import raw

SHARED = "shared.json"

Tree = Dict[str, Any]
"""As model.TreeLink: source, target, copied, digest, stream."""


def stage(run: RunDir, trees: List[Tree], restored: Optional[Tree] = None) -> None:
    """Create `<run>/work` and the links at absolute targets, and record what was put there.

    `restored` is what an earlier attempt had saved: it replaces files of the other trees, and belongs to the
    run. May be called again after an interruption: it starts from the beginning. Raises RunError of kind
    stage, or taken where another run is active at an absolute target.
    """
    shutil.rmtree(run.work, ignore_errors=True)
    shutil.rmtree(run.path("mapped"), ignore_errors=True)
    os.makedirs(run.work)
    shared = []
    for tree in sorted(trees, key=lambda tree: _depth(tree["target"])):
        if not os.path.lexists(tree["source"]):
            raise RunError("stage", f"The tree {tree['source']} is not on this machine; sync it first.")
        with _verified(tree) as verified:
            if os.path.isabs(tree["target"]):
                _map(run, tree)
            else:
                _place(run, tree, _inside(run.work, tree["target"]))
            if verified is not None and _is_sealed(tree):
                shared.append({**_sealed(tree, *verified), "view": _view(run, tree)})
    for each in shared:
        each["hidden"] = [path for path in each["files"] if not _is_in_view(each, path)]
    streams = [
        {"source": os.path.abspath(tree["source"]), "view": _view(run, tree)}
        for tree in trees
        if tree.get("stream")
    ]
    write_json(run.path(SHARED), {"trees": shared, "streams": streams})
    facts = _facts(run.work, trees)
    if restored:
        with _verified(restored):
            _place(run, restored, run.work)
            _make_writable(run, restored)
    write_json(run.staged, {"copied": facts, "trees": trees})


def _make_writable(run: RunDir, restored: Tree) -> None:
    """Make checkpoints writable: sent data are read-only, and a job writes to its checkpoints."""
    for path, is_folder in walk(restored["source"], skip=[]):
        if not is_folder and not os.path.islink(path):
            place = os.path.join(run.work, os.path.relpath(path, restored["source"]))
            os.chmod(place, stat.S_IMODE(os.stat(place).st_mode) | stat.S_IRUSR | stat.S_IWUSR)


@contextlib.contextmanager
def _verified(tree: Tree) -> Iterator[Optional[Tuple[Dict[str, str], Set[str]]]]:
    """Yield the result of record.verify, with the tree locked meanwhile; None for a tree that was not sent
    here."""
    if not tree.get("digest"):
        yield None
        return
    folder = record.folder_of(os.path.abspath(tree["source"]))
    with record.locked(folder):
        try:
            verified = record.verify(folder, tree["digest"])
        except record.Altered as error:
            raise RunError("stage", f"{error} Start the run again, which sends the differences.") from error
        yield verified


def _sealed(tree: Tree, hashes: Dict[str, str], read: Set[str]) -> Dict[str, Any]:
    """Return a shared tree's folder, and for each file its stamp after linking, its hash, and whether an
    equal stamp proves it unchanged."""
    source = os.path.abspath(tree["source"])
    folder = record.folder_of(source)
    stamps = record.restamp(folder, list(hashes), read)
    files = {path: [stamps[path], hashes[path], path not in read] for path in hashes}
    return {"folder": folder, "files": files, "single": folder != source}


def _view(run: RunDir, tree: Tree) -> str:
    """Return where the run has its names of a tree's files."""
    target = os.path.normpath(tree["target"])
    base = run.path("mapped") if os.path.isabs(target) else run.work
    return os.path.normpath(os.path.join(base, target.lstrip("/")))


def altered(run: RunDir) -> List[str]:
    """Return the shared files, sorted, that differ from what the run was given: written by force, or replaced
    by a file of the run.
    """
    told = read_json(run.path(SHARED)) or {"trees": []}
    found = [path for stream in told.get("streams", []) for path in _replaced_in(stream)]
    for shared in told["trees"]:
        hidden = set(shared["hidden"])
        for path, known in shared["files"].items():
            place = os.path.join(shared["folder"], path)
            if not _is_still(raw(place), *known) or (path not in hidden and _is_replaced(shared, path)):
                found.append(path)
    return sorted(found)


def _is_in_view(shared: Dict[str, Any], path: str) -> bool:
    """Whether the run was given this file, rather than one of a tree that was laid over it."""
    try:
        return bool(os.stat(_seen_at(shared, path)).st_ino == shared["files"][path][0][2])
    except OSError:
        return False


def _is_replaced(shared: Dict[str, Any], path: str) -> bool:
    """Whether the file, its folder, or a link was replaced in the run's folder."""
    stamp, hashed, _ = shared["files"][path]
    place = _seen_at(shared, path)
    try:
        now = os.stat(place)
        if now.st_ino == stamp[2]:
            return False
        return not stat.S_ISREG(now.st_mode) or bool(tree_.content(os.path.realpath(place))[0] != hashed)
    except (FileNotFoundError, NotADirectoryError):  # the run may remove its name of a file
        return False
    except OSError:
        return True


def _replaced_in(stream: Dict[str, str]) -> Iterator[str]:
    """Yield the files of a streamed tree that the run has replaced by something else."""
    source = stream["source"]
    single = not os.path.isdir(source)
    for path, is_folder in [(source, False)] if single else walk(source, skip=[]):
        name = os.path.basename(source) if single else os.path.relpath(path, source)
        place = stream["view"] if single else os.path.join(stream["view"], name)
        try:
            if not is_folder and not os.path.samefile(path, place):
                yield name
        except (FileNotFoundError, NotADirectoryError):  # the run may remove its name of a file
            continue
        except OSError:
            yield name


def _seen_at(shared: Dict[str, Any], path: str) -> bytes:
    return raw(shared["view"] if shared["single"] else os.path.join(shared["view"], path))


def read_only(run: RunDir) -> List[str]:
    """Return the absolute paths of the shared trees, as the run sees them."""
    trees = (read_json(run.staged) or {"trees": []})["trees"]
    places = [os.path.join(run.work, tree["target"]) for tree in trees if _is_sealed(tree)]
    return [os.path.normpath(place) for place in places]


def _is_sealed(tree: Tree) -> bool:
    return bool(tree.get("digest")) and not tree["copied"]


def _is_still(place: bytes, stamp: List[int], hashed: str, tells: bool) -> bool:
    """Whether the file has its content. True if it was replaced or removed in the tree: the run keeps the
    file that it was given."""
    try:
        now = tree_.stamp_of(os.lstat(place))
        if now[2] != stamp[2] or (tells and now == tuple(stamp)):
            return True
        return now[:2] == tuple(stamp[:2]) and tree_.content(place)[0] == hashed
    except FileNotFoundError:
        return True
    except OSError:
        return False


def _depth(target: str) -> int:
    """Sort key: the tree "." comes first, then those inside it."""
    return 0 if os.path.normpath(target) == "." else 1 + os.path.normpath(target).count("/")


def _inside(work: str, target: str) -> str:
    path = os.path.normpath(os.path.join(work, target))
    if path != work and not path.startswith(work + os.sep):
        raise RunError(
            "stage",
            f"The target {target!r} lies outside the run's working folder: "
            "give an absolute path, or one inside it.",
        )
    return path


def _place(run: RunDir, tree: Tree, target: str) -> None:
    put = _copy if tree["copied"] else _share
    source = os.path.abspath(tree["source"])
    os.makedirs(os.path.dirname(target), exist_ok=True)
    if os.path.isdir(source):
        _fill(source, target, put, skip=os.path.abspath(run.base))
    else:
        _replace(source, target, put)


def _fill(source: str, target: str, put: Callable[[str, str], None], skip: str) -> None:
    """Copy every entry of the folder `source` to `target`; modes last, because a folder may be read-only.

    `skip` is orch's own folder, which may lie inside the project.
    """
    if os.path.lexists(target) and not (os.path.isdir(target) and not os.path.islink(target)):
        os.unlink(target)
    os.makedirs(target, exist_ok=True)
    with os.scandir(source) as entries:
        for entry in entries:
            place = os.path.join(target, entry.name)
            if entry.is_dir(follow_symlinks=False):
                if entry.path != skip:
                    _fill(entry.path, place, put, skip)
            elif entry.is_symlink() or entry.is_file(follow_symlinks=False):
                _replace(entry.path, place, put)
    os.chmod(target, stat.S_IMODE(os.stat(source).st_mode))


def _replace(source: str, target: str, put: Callable[[str, str], None]) -> None:
    """Let a later tree replace an earlier one, file by file."""
    if os.path.isdir(target) and not os.path.islink(target):
        shutil.rmtree(target)
    elif os.path.lexists(target):
        os.unlink(target)
    if os.path.islink(source):
        os.symlink(os.readlink(source), target)
    else:
        put(source, target)


def _copy(source: str, target: str) -> None:
    shutil.copy2(source, target, follow_symlinks=False)


def _share(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError as error:
        # Another file system, a foreign owner, or too many links to one file already.
        if error.errno not in (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP):
            raise
        os.symlink(source, target)


# ---------------------------------------------------------------- absolute targets


def _map(run: RunDir, tree: Tree) -> None:
    """Make the tree appear at an absolute path."""
    target = os.path.normpath(tree["target"])
    source = os.path.abspath(tree["source"])
    if os.path.exists(target) and os.path.samefile(target, source):
        return
    sent = tree.get("digest") or tree.get("stream")  # the next tree that is sent replaces such a tree
    if tree["copied"] or sent:
        private = os.path.join(run.path("mapped"), target.lstrip("/"))
        _place(run, tree, private)
        source = private
    _link(run, source, target)


def _link(run: RunDir, source: str, target: str) -> None:
    if os.path.lexists(target):
        _refuse_unless_ours(run, target)
    try:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        temporary = f"{target}.{os.getpid()}.tmp"
        os.symlink(source, temporary)
        os.replace(temporary, target)
    except OSError as error:
        raise RunError("stage", f"{target} cannot be created: {error.strerror}.") from error


def _refuse_unless_ours(run: RunDir, target: str) -> None:
    points_to = os.readlink(target) if os.path.islink(target) else None
    if points_to is None or not points_to.startswith(run.base + os.sep):
        raise RunError(
            "stage",
            f"{target} exists on this machine and was not made by a run, so it is not replaced. "
            "Map the data to another path.",
        )
    user = _active_user(run, target)
    if user is not None:
        words = f"The run {user} has its data at {target} until it ends, and a path serves one run at a time."
        raise RunError("taken", words, by=user)


def _active_user(run: RunDir, target: str) -> Optional[str]:
    """Return the run of the user to which another active job belongs that has something at `target`.

    Not even the same tree is shared: the folders at a target belong to one run, which may write beside its
    data, and they go when it goes.
    """
    for other in _others(run):
        spec = read_json(other.spec) or {}
        targets = [os.path.normpath(tree["target"]) for tree in spec.get("trees", [])]
        if target in targets and held(other):
            return str(spec.get("serves") or other.run_id)
    return None


def _others(run: RunDir) -> Iterator[RunDir]:
    for name in os.listdir(os.path.join(run.base, "runs")):
        if name != run.run_id:
            try:
                yield open_run(run.base, name)
            except RunError:
                continue


# ---------------------------------------------------------------- facts of what was staged


def _facts(work: str, trees: List[Tree]) -> Dict[str, List[Any]]:
    """Return path -> [ctime_ns, size, mode, link target, mtime_ns] of everything that the run has its own
    copy of.
    """
    facts = {}
    for tree in relative(trees):
        if tree["copied"]:
            top = _inside(work, tree["target"])
            deeper = [_inside(work, other["target"]) for other in relative(trees)]
            for path in [top, *(path for path, _ in walk(top, skip=deeper))]:
                facts[os.path.relpath(path, work)] = describe(path)
    return facts


def describe(path: str) -> List[Any]:
    """Return facts that show whether a path was touched: any write changes its ctime, which programs cannot
    set.
    """
    about = os.lstat(path)
    link = os.readlink(path) if stat.S_ISLNK(about.st_mode) else ""
    return [about.st_ctime_ns, about.st_size, stat.S_IMODE(about.st_mode), link, about.st_mtime_ns]


def relative(trees: List[Tree]) -> List[Tree]:
    """Return the trees inside the working folder, innermost first."""
    inside = [tree for tree in trees if not os.path.isabs(tree["target"])]
    return sorted(inside, key=lambda tree: -_depth(tree["target"]))


def walk(top: str, skip: List[str]) -> Iterator[Tuple[str, bool]]:
    """Yield (path, is a folder) of everything below `top`, sorted within each folder, without `skip`."""
    left = [_listed(top)]  # one for each level: folders may be nested deeper than calls
    while left:
        if not left[-1]:
            left.pop()
            continue
        entry = left[-1].pop()
        if entry.path in skip:
            continue
        is_folder = entry.is_dir(follow_symlinks=False)
        yield entry.path, is_folder
        if is_folder:
            left.append(_listed(entry.path))


def _listed(folder: str) -> List["os.DirEntry[str]"]:
    """List a folder, the last name first; empty if it cannot be listed."""
    try:
        with os.scandir(folder) as entries:
            return sorted(entries, key=lambda entry: entry.name, reverse=True)
    except OSError:
        return []
