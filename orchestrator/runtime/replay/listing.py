"""Impose an order on the entries of folders, in Python and in tf.io.gfile.

In a copied folder, links appear as their targets do in the original: a folder as a folder, so that os.walk
and rglob enter it.
"""

# Close to the kernel: the functions of os themselves are replaced.
# ruff: noqa: PTH118, PTH119, PTH120

from __future__ import annotations

import glob
import os
import pathlib
from typing import Any, Callable, Dict, Iterator, List, Sequence, Tuple, Union

Wish = Union[None, str, Sequence[str]]
Mirror = Sequence[Sequence[str]]

_REAL_LISTDIR = os.listdir
_REAL_SCANDIR = os.scandir
_REAL_ISLINK = os.path.islink
_LINKS_AS_FILES = getattr(os, "_walk_symlinks_as_files", object())
"""Passed to os.walk by pathlib, from Python 3.13 on, to list links to folders as files."""


def install(wish: Wish, mirror: Mirror) -> None:
    """Let os.listdir and os.scandir, and with them glob, pathlib and os.walk, list in the requested order."""
    order = _order(wish, mirror)

    def listdir(path: Any = ".") -> List[Any]:
        names = _REAL_LISTDIR(path)
        return sorted(names, key=order(path, names)) if _is_place(path) else names

    def scandir(path: Any = ".") -> Any:
        entries = _REAL_SCANDIR(path)
        return (
            _Scan(entries, order(path, None), _links_of_copies(path, mirror)) if _is_place(path) else entries
        )

    os.listdir = listdir
    os.scandir = scandir
    os.walk = _walk(mirror)
    _replace_kept(listdir, scandir)


def _replace_kept(listdir: Any, scandir: Any) -> None:
    """Replace what pathlib (Python 3.9, 3.10) and glob (3.13) store of these functions in their classes."""
    for kind in (getattr(pathlib, "_NormalAccessor", None), *vars(glob).values()):
        if not isinstance(kind, type):
            continue
        for name, real, new in (("listdir", _REAL_LISTDIR, listdir), ("scandir", _REAL_SCANDIR, scandir)):
            if getattr(kind, name, None) is real:
                setattr(kind, name, staticmethod(new))


def _walk(mirror: Mirror) -> Callable[..., Iterator[Tuple[Any, List[Any], List[Any]]]]:
    """Replace os.walk by one for which the links of a copy are the folders that they stand for."""

    def walk(
        top: Any, topdown: bool = True, onerror: Any = None, followlinks: bool = False
    ) -> Iterator[Tuple[Any, List[Any], List[Any]]]:
        top = os.fspath(top)
        as_files = followlinks is _LINKS_AS_FILES
        folders: List[Any] = []
        files: List[Any] = []
        try:
            with os.scandir(top) as entries:
                for entry in entries:
                    (folders if _is_folder(entry, not as_files) else files).append(entry.name)
        except OSError as error:
            if onerror is not None:
                onerror(error)
            return
        if topdown:
            yield top, folders, files
        stands_for = _links_of_copies(top, mirror)
        for name in folders:
            inside = os.path.join(top, name)
            if (followlinks and not as_files) or not _REAL_ISLINK(inside) or stands_for(name):
                yield from walk(inside, topdown, onerror, followlinks)
        if not topdown:
            yield top, folders, files

    return walk


def _is_folder(entry: Any, follow: bool) -> bool:
    try:
        return bool(entry.is_dir(follow_symlinks=follow))
    except OSError:
        return False


def on_tensorflow(tf: Any, wish: Wish, mirror: Mirror) -> None:
    """Do the same for tf.io.gfile.listdir and glob."""
    order = _order(wish, mirror)
    list_, glob = tf.io.gfile.listdir, tf.io.gfile.glob

    def listdir(path: Any) -> Any:
        names = list_(path)
        return sorted(names, key=order(path, names))

    def glob_(pattern: Any) -> Any:
        found = glob(pattern)
        by_folder: Dict[str, List[str]] = {}
        for path in found:
            by_folder.setdefault(os.path.dirname(path), []).append(path)
        for folder, paths in by_folder.items():
            key = order(folder or ".", None)
            paths.sort(key=lambda path, key=key: key(os.path.basename(path)))  # type: ignore[misc]
        return [path for paths in by_folder.values() for path in paths]

    tf.io.gfile.listdir = listdir
    if wish is not None:  # TensorFlow's own glob sorts
        tf.io.gfile.glob = glob_


def _is_place(path: Any) -> bool:
    return isinstance(path, (str, os.PathLike))


Key = Callable[[Any], Tuple[int, str]]


def _order(wish: Wish, mirror: Mirror) -> Callable[[Any, Any], Key]:
    known = {} if wish is None or isinstance(wish, str) else {name: i for i, name in enumerate(wish)}

    def key(path: Any, _names: Any) -> Key:
        ranks = known if wish is not None else _as_in_the_original(path, mirror)
        last = len(ranks)
        return lambda entry: (ranks.get(os.fsdecode(entry), last), os.fsdecode(entry))

    return key


def _as_in_the_original(path: Any, mirror: Mirror) -> Dict[str, int]:
    place = os.path.realpath(os.fspath(path))
    for copy, original in mirror:
        if place == copy or place.startswith(copy + os.sep):
            try:
                return {name: i for i, name in enumerate(_REAL_LISTDIR(original + place[len(copy) :]))}
            except OSError:
                return {}
    try:
        return {name: i for i, name in enumerate(_REAL_LISTDIR(place))}
    except OSError:
        return {}


def _links_of_copies(path: Any, mirror: Mirror) -> Callable[[Any], bool]:
    """Whether a link in a folder, by its name, was created for a copy: the original has no link there."""
    if not mirror or not _is_place(path):
        return lambda _name: False
    place = os.path.realpath(os.fsdecode(path))
    for copy, original in mirror:
        if place == copy or place.startswith(copy + os.sep):
            there = original + place[len(copy) :]
            return lambda name: not _REAL_ISLINK(os.path.join(there, os.fsdecode(name)))
    return lambda _name: False


class _Entry:
    """An entry of os.scandir for a link of a copy: it behaves like its target."""

    def __init__(self, link: Any) -> None:
        self._link = link
        self.name = link.name
        self.path = link.path

    def __fspath__(self) -> Any:
        return self.path

    def is_symlink(self) -> bool:
        return False

    def is_dir(self, **_follow: bool) -> bool:
        return bool(self._link.is_dir())

    def is_file(self, **_follow: bool) -> bool:
        return bool(self._link.is_file())

    def is_junction(self) -> bool:
        return False

    def stat(self, **_follow: bool) -> os.stat_result:
        found: os.stat_result = self._link.stat()
        return found

    def inode(self) -> int:
        return self.stat().st_ino


class _Scan:
    """The result of os.scandir in another order, with the links of a copy as their targets."""

    def __init__(self, entries: Any, key: Key, stands_for: Callable[[Any], bool]) -> None:
        self._entries = entries
        ordered = sorted(entries, key=lambda entry: key(entry.name))
        self._ordered: Iterator[Any] = (
            _Entry(entry) if entry.is_symlink() and stands_for(entry.name) else entry for entry in ordered
        )

    def __iter__(self) -> Iterator[Any]:
        return self._ordered

    def __next__(self) -> Any:
        return next(self._ordered)

    def __enter__(self) -> _Scan:
        return self

    def __exit__(self, *_error: Any) -> None:
        self.close()

    def close(self) -> None:
        self._entries.close()
