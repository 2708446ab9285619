"""Prevent a repeated run from writing anywhere but in its copy and in temporary folders.

An audit hook watches Python's own file operations and can refuse them. Of native code, writes by TensorFlow
and HDF5 are watched in the Python functions that call them, once these are imported (`watch_tensorflow`,
`watch_hdf5`); other native code is not seen. If the copy contains a link to a file that must not change, the
link is replaced by a copy of the file before it is written.
"""

# Close to the kernel: paths are compared as text.
# ruff: noqa: PTH100, PTH105, PTH113, PTH114, PTH118

from __future__ import annotations

import functools
import os
import shutil
import sys
import tempfile
from typing import Any, Callable, Optional, Sequence, Tuple

from .temporary import EVERYBODYS

_CONTENTS = frozenset(("os.truncate", "os.chmod"))
_FIRST = frozenset(("os.remove", "os.rmdir", "os.mkdir", "shutil.rmtree"))
_SECOND = frozenset(("os.link", "os.symlink"))
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


class Guard:
    """`kept` folders must not change; `free` and temporary ones may; nothing else may.

    Of the folders around a path the innermost decides. Refused paths are appended to the file `refusals`, one
    a line.
    """

    def __init__(self, kept: Sequence[str], free: Sequence[str], refusals: str) -> None:
        self._free = _folders([tempfile.gettempdir(), *EVERYBODYS, "/dev", "/proc", *free])
        self._kept = _folders(kept)
        self._refusals = os.open(refusals, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def install(self) -> None:
        """Install the hook for the rest of this process: an audit hook cannot be removed."""
        sys.dont_write_bytecode = True  # bytecode that Python writes is not written by the script
        sys.addaudithook(self._audit)
        global _installed
        _installed = self

    def _audit(self, event: str, arguments: Tuple[Any, ...]) -> None:
        if event == "open":
            if _writes(arguments[1], arguments[2]):
                self.writes(arguments[0])
        elif event in _CONTENTS:
            self.writes(arguments[0])
        elif event in _FIRST:
            self._names(arguments[0])
        elif event in _SECOND:
            self._names(arguments[1])
        elif event == "os.rename":
            self._names(arguments[0])
            self._names(arguments[1])

    def writes(self, path: Any) -> None:
        """Check a file whose content is about to change. Raises PermissionError if it must not."""
        if isinstance(path, int) or path is None:
            return
        wanted, entry = os.path.realpath(os.fsdecode(path)), _entry(path)
        if self._may(wanted):
            return
        if os.path.islink(entry) and self._may(entry) and os.path.isfile(wanted):
            part = f"{entry}.own"
            shutil.copyfile(wanted, part)
            os.replace(part, entry)
            return
        self._refuse(wanted)

    def _names(self, path: Any) -> None:
        """Check a name that is about to be replaced or removed: a link itself, not its target."""
        if isinstance(path, int) or path is None:
            return
        entry = _entry(path)
        if not self._may(entry):
            self._refuse(entry)

    def _may(self, path: str) -> bool:
        return _depth(path, self._free) > _depth(path, self._kept)

    def _refuse(self, path: str) -> None:
        os.write(self._refusals, os.fsencode(path) + b"\n")
        raise PermissionError(13, "A repeated run must not change this", path)


_installed: Optional[Guard] = None


def watch_tensorflow() -> None:
    """Watch what TensorFlow's Python writes by native code: records, and files of its own file system."""
    if _installed is None:
        return
    from tensorflow.python.lib.io import file_io, tf_record

    writer, files = tf_record.TFRecordWriter, file_io.FileIO
    writer.__init__ = _watched(_installed, writer.__init__, lambda given, _: given[1:2])
    name = f"_{files.__name__}__name"
    files._prewrite_check = _watched(
        _installed, files._prewrite_check, lambda given, _: [getattr(given[0], name, None)]
    )


def watch_hdf5() -> None:
    """Watch what h5py writes, if it was imported: Keras' weights are such files."""
    kind = getattr(sys.modules.get("h5py"), "File", None)
    if _installed is not None and kind is not None:
        kind.__init__ = _watched(_installed, kind.__init__, _of_hdf5)


def _of_hdf5(given: Sequence[Any], named: Any) -> Sequence[Any]:
    mode = given[2] if len(given) > 2 else named.get("mode", "r")
    name = given[1] if len(given) > 1 else named.get("name")
    return [name] if mode not in (None, "r") and isinstance(name, (str, bytes, os.PathLike)) else []


def _watched(
    guard: Guard, original: Callable[..., Any], paths: Callable[..., Sequence[Any]]
) -> Callable[..., Any]:
    if getattr(original, "_orch_watched", False):
        return original

    @functools.wraps(original)
    def watched(*args: Any, **kwargs: Any) -> Any:
        for path in paths(args, kwargs):
            guard.writes(path)
        return original(*args, **kwargs)

    watched._orch_watched = True  # type: ignore[attr-defined]
    return watched


def _entry(path: Any) -> str:
    """Return a path whose folder is resolved, and whose last name is not."""
    folder, name = os.path.split(os.path.abspath(os.fsdecode(path)))
    return os.path.join(os.path.realpath(folder), name)


def _folders(places: Sequence[str]) -> Tuple[str, ...]:
    return tuple(os.path.realpath(place).rstrip(os.sep) + os.sep for place in places if place)


def _depth(path: str, folders: Sequence[str]) -> int:
    """Return the length of the longest of `folders` that contains `path`; 0 if none does."""
    return max((len(folder) for folder in folders if (path + os.sep).startswith(folder)), default=0)


def _writes(mode: Any, flags: Any) -> bool:
    if isinstance(mode, str):
        return any(letter in mode for letter in "wax+")
    return isinstance(flags, int) and bool(flags & _WRITING)
