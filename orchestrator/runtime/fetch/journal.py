"""A journal of the objects of a tree: one line for each, written after its file was put in place.

A fetch that was killed reads it and continues. A line contains the version, so that a changed object is
fetched again. A file whose stamp differs from the recorded one is read before it is accepted.
"""

# Close to the kernel: descriptors, modes and races need os calls, not pathlib.
# ruff: noqa: PTH105, SIM115

from __future__ import annotations

import json
import os
from typing import IO, Dict, Iterator, List, NamedTuple, Optional

from ..transfer import tree


class Came(NamedTuple):
    """A file in its place: its version, SHA-256, and its stamp at that time."""

    path: str
    version: str
    sha256: str
    stamp: tree.Stamp


class Journal:
    """The journal beside the tree at `root`. Only the holder of the tree's lock may write."""

    def __init__(self, root: str) -> None:
        self._path = f"{root}.objects"
        self._file: Optional[IO[str]] = None

    def read(self) -> Dict[str, Came]:
        """Return path -> its last line. Incomplete lines, which a kill can leave, are ignored."""
        found = {}
        for came in self._lines():
            found[came.path] = came
        return found

    def add(self, came: Came) -> None:
        if self._file is None:
            self._file = open(self._path, "a", encoding="ascii")
        self._file.write(json.dumps(came, separators=(",", ":")) + "\n")

    def flush(self) -> None:
        if self._file is not None:
            self._file.flush()

    def rewrite(self, lines: List[Came]) -> None:
        """Replace the journal by these lines."""
        self.close()
        with open(f"{self._path}.part", "w", encoding="ascii") as file:
            file.writelines(json.dumps(came, separators=(",", ":")) + "\n" for came in lines)
        os.replace(f"{self._path}.part", self._path)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _lines(self) -> Iterator[Came]:
        try:
            with open(self._path, encoding="ascii") as file:
                for line in file:
                    try:
                        path, version, sha256, (size, mtime, inode, ctime, device) = json.loads(line)
                    except (ValueError, TypeError):
                        continue
                    yield Came(path, version, sha256, (size, mtime, inode, ctime, device))
        except (OSError, UnicodeDecodeError):
            return
