"""Folders that list their entries in an order that is imposed, in Python and in tf.io.gfile."""

# Thin over the kernel: what is replaced are os functions.
# ruff: noqa: PTH119, PTH120

from __future__ import annotations

import os
from typing import Any, Callable, Dict, Iterator, List, Sequence, Tuple, Union

Wish = Union[None, str, Sequence[str]]
Mirror = Sequence[Sequence[str]]

_REAL_LISTDIR = os.listdir
_REAL_SCANDIR = os.scandir


def install(wish: Wish, mirror: Mirror) -> None:
    """os.listdir and os.scandir, and with them glob, pathlib and os.walk, list in the order wished for."""
    order = _order(wish, mirror)

    def listdir(path: Any = ".") -> List[Any]:
        names = _REAL_LISTDIR(path)
        return sorted(names, key=order(path, names)) if _is_place(path) else names

    def scandir(path: Any = ".") -> Any:
        entries = _REAL_SCANDIR(path)
        return _Scan(entries, order(path, None)) if _is_place(path) else entries

    os.listdir = listdir
    os.scandir = scandir


def on_tensorflow(tf: Any, wish: Wish, mirror: Mirror) -> None:
    """The same for tf.io.gfile.listdir and glob."""
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


class _Scan:
    """What os.scandir gives, in another order."""

    def __init__(self, entries: Any, key: Key) -> None:
        self._entries = entries
        self._ordered: Iterator[Any] = iter(sorted(entries, key=lambda entry: key(entry.name)))

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
