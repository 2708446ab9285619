"""Keeps a repeated run from changing what is the user's: it may write in its copy and in temporary folders.

Python's own file operations are watched by an audit hook, which can refuse them. What native code writes is
not seen.
"""

# Thin over the kernel: paths are compared as text.

from __future__ import annotations

import os
import sys
import tempfile
from typing import Any, Sequence, Tuple

_FIRST = frozenset(("os.remove", "os.rmdir", "os.truncate", "os.mkdir", "shutil.rmtree", "os.chmod"))
_SECOND = frozenset(("os.link", "os.symlink"))
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


class Guard:
    """`kept` folders stay as they are; `free` ones may change, as may temporary ones; so may nothing else.

    Of the folders around a path the innermost decides. What was refused is appended to the file `refusals`,
    one path a line.
    """

    def __init__(self, kept: Sequence[str], free: Sequence[str], refusals: str) -> None:
        self._free = _folders([tempfile.gettempdir(), "/dev", "/proc", *free])
        self._kept = _folders(kept)
        self._refusals = os.open(refusals, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def install(self) -> None:
        """From here on, for the rest of this process: an audit hook cannot be taken off."""
        sys.dont_write_bytecode = True  # Python's own writing is none of the script's
        sys.addaudithook(self._audit)

    def _audit(self, event: str, arguments: Tuple[Any, ...]) -> None:
        if event == "open":
            if _writes(arguments[1], arguments[2]):
                self._check(arguments[0])
        elif event in _FIRST:
            self._check(arguments[0])
        elif event in _SECOND:
            self._check(arguments[1])
        elif event == "os.rename":
            self._check(arguments[0])
            self._check(arguments[1])

    def _check(self, path: Any) -> None:
        if isinstance(path, int) or path is None:
            return
        wanted = os.path.realpath(os.fsdecode(path))
        if _depth(wanted, self._free) <= _depth(wanted, self._kept):
            os.write(self._refusals, os.fsencode(wanted) + b"\n")
            raise PermissionError(13, "A repeated run may not change this", wanted)


def _folders(places: Sequence[str]) -> Tuple[str, ...]:
    return tuple(os.path.realpath(place).rstrip(os.sep) + os.sep for place in places if place)


def _depth(path: str, folders: Sequence[str]) -> int:
    """How long the longest of `folders` around `path` is; 0 where none is."""
    return max((len(folder) for folder in folders if (path + os.sep).startswith(folder)), default=0)


def _writes(mode: Any, flags: Any) -> bool:
    if isinstance(mode, str):
        return any(letter in mode for letter in "wax+")
    return isinstance(flags, int) and bool(flags & _WRITING)
