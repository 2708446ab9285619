"""What a run wrote for TensorBoard, without what the client has already.

events BASE RUN    standard input: {"have": {path: bytes}}; prints {"files": [{"path", "at", "content"}],
                   "more"}: paths in the working folder, `content` in base64 from byte `at` on. `more`: this
                   is not all, ask again. A file that is shorter than what was had comes anew, `at` 0.
"""

# Close to the kernel: links and races need os calls, not pathlib.
# ruff: noqa: PTH118

from __future__ import annotations

import base64
import json
import os
import stat
import sys
from typing import Any, Dict, Iterator, List

from ..rundir import RunDir, open_run

MARK = "tfevents"
"""The text that TensorBoard looks for in the names of files."""

MOST_FILES = 1_000
_MOST_SEEN = 100_000
"""Maximum number of names in a working folder that are examined."""

_MOST_BYTES = 4 << 20
"""Maximum bytes of one answer."""

_READING = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def main(argv: List[str]) -> int:
    base, run_id = argv
    asked = json.load(sys.stdin)
    json.dump(grown(open_run(base, run_id), asked["have"]), sys.stdout)
    return 0


def grown(run: RunDir, have: Dict[str, int]) -> Dict[str, Any]:
    """Return the answer, as described in the module."""
    files, room = [], _MOST_BYTES
    for path in _found(run.work):
        piece = _piece(os.path.join(run.work, path), have.get(path, 0), room + 1)
        if piece is None:
            continue
        at, content = piece
        files.append({"path": path, "at": at, "content": base64.b64encode(content[:room]).decode()})
        if len(content) > room:
            return {"files": files, "more": True}
        room -= len(content)
    return {"files": files, "more": False}


def _piece(path: str, had: int, most: int) -> Any:
    """Return (offset, bytes) of what a file has beyond what was received; None if nothing."""
    try:
        descriptor = os.open(path, _READING)
    except OSError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_size == had:
            return None
        at = had if found.st_size > had else 0
        file.seek(at)
        return at, file.read(most)


def _found(work: str) -> Iterator[str]:
    """Return event files below the working folder, relative to it, without following links."""
    seen = told = 0
    for folder, folders, names in os.walk(work):
        folders.sort()
        for name in sorted(names):
            path = os.path.relpath(os.path.join(folder, name), work)
            if MARK in name and told < MOST_FILES and _is_plain(path):
                told += 1
                yield path
        seen += len(names) + len(folders)
        if seen > _MOST_SEEN:
            return


def _is_plain(path: str) -> bool:
    """Whether a name is printable. Surrogates, which stand for bytes that are not text, are not."""
    return path.isprintable() and len(path) <= 1_000
