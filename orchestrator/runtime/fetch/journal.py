"""What of a tree of objects came already: one line for each, written after the file was in its place.

A fetch that was killed reads it and goes on. A line says which version it was, so that a changed object is
fetched again; a file whose stamp is no longer the noted one is read before it counts.
"""

# Thin over the kernel: descriptors, modes and races are said in os calls.
# ruff: noqa: PTH105, SIM115

from __future__ import annotations

import json
import os
from typing import IO, Dict, Iterator, List, NamedTuple, Optional

from ..transfer import tree


class Came(NamedTuple):
    """A file in its place: of which version, its SHA-256, and its stamp then."""

    path: str
    version: str
    sha256: str
    stamp: tree.Stamp


class Journal:
    """The lines beside the tree at `root`. One writer, who holds the tree's lock."""

    def __init__(self, root: str) -> None:
        self._path = f"{root}.objects"
        self._file: Optional[IO[str]] = None

    def read(self) -> Dict[str, Came]:
        """path -> what came last. A line that was cut short, as by a kill, is none."""
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
        """Keep only these lines."""
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
