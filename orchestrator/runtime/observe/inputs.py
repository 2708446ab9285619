"""Observe the file names that a program passes to TensorFlow: datasets of files, lists of names, single
reads; and what it resumes from: checkpoints and stored datasets."""

# ruff: noqa: PTH100, PTH112, PTH116, PTH120, PTH207

from __future__ import annotations

import glob
import os
import time
from typing import Any, Callable, List

from .calls import before, writes
from .files import Files


def watch(tf: Any, files: Files, wants: Callable[[], bool]) -> None:
    """Report to `files` every file name that is passed to these constructors and functions as a constant.

    Names that exist only inside a dataset's function (interleave, map) were passed to the dataset before it.
    """

    def hear(given: Any) -> None:
        if wants():
            files.named(names(tf, given))

    def hear_pattern(given: Any) -> None:
        if wants():
            patterns = [name.decode() if isinstance(name, bytes) else name for name in names(tf, given)]
            for pattern in patterns:
                files.listed(_above_wildcards(pattern))
            files.named(path for pattern in patterns for path in sorted(glob.glob(pattern)))

    def hear_folder(given: Any) -> None:
        if wants():
            for name in names(tf, given):
                files.listed(_above_wildcards(os.fsdecode(name)))

    began = time.time()

    def hear_parts(given: Any) -> None:
        found = [path for name in names(tf, given) for path in _parts(name)] if wants() else []
        files.made(path for path in found if os.stat(path).st_mtime >= began)  # by TensorFlow, not observed
        files.named(found)

    def hear_made(given: Any) -> None:
        files.made(names(tf, given))

    from tensorflow.python.lib.io import file_io
    from tensorflow.python.training import py_checkpoint_reader

    data = tf.data
    for kind in (data.TFRecordDataset, data.TextLineDataset, data.FixedLengthRecordDataset):
        before(kind, "__init__", 1, "filenames", hear)
    before(tf.io.TFRecordWriter, "__init__", 1, "path", hear_made)
    before(file_io.FileIO, "__init__", 1, "name", hear, unless=writes)
    before(data.Dataset, "from_tensor_slices", 0, "tensors", hear, static=True)
    before(data.Dataset, "list_files", 0, "file_pattern", hear_pattern, static=True)
    before(tf.io, "read_file", 0, "filename", hear)
    before(tf.io, "matching_files", 0, "pattern", hear_pattern)
    for listing, argument in (("listdir", "path"), ("walk", "top"), ("glob", "pattern")):
        before(tf.io.gfile, listing, 0, argument, hear_folder)
    before(data.Dataset, "cache", 1, "filename", hear_parts)
    before(py_checkpoint_reader, "NewCheckpointReader", 0, "filepattern", hear_parts)


def names(tf: Any, given: Any) -> List[Any]:
    """Return the strings in a structure of values, tensors and arrays; symbolic tensors are ignored."""
    found: List[Any] = []
    for leaf in tf.nest.flatten(given):
        if isinstance(leaf, (str, bytes)) or hasattr(leaf, "__fspath__"):
            found.append(leaf)
        elif tf.is_tensor(leaf) and getattr(leaf, "dtype", None) == tf.string and hasattr(leaf, "numpy"):
            found += _strings(leaf.numpy())
        elif getattr(getattr(leaf, "dtype", None), "kind", "") in ("U", "S", "O"):
            found += _strings(leaf)
    return found


def _parts(name: Any) -> List[str]:
    """Return the existing files of a checkpoint or stored dataset called `name`."""
    if not name:
        return []
    prefix = os.fsdecode(name)
    return [
        path
        for pattern in (".index", ".data-*-of-*")
        for path in sorted(glob.glob(glob.escape(prefix) + pattern))
    ]


def _above_wildcards(pattern: str) -> str:
    """Return the folder in which a pattern searches; for a path without wildcards, that folder, or the file's
    folder."""
    place = os.path.abspath(pattern)
    while glob.has_magic(place):
        place = os.path.dirname(place)
    return place if os.path.isdir(place) else os.path.dirname(place)


def _strings(array: Any) -> List[Any]:
    import numpy as np

    return [item for item in np.asarray(array).reshape(-1).tolist() if isinstance(item, (str, bytes))]
