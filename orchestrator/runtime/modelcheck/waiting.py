"""`check-model --ahead FOLDER`: a check that imports its framework before its files exist.

One line on standard input, {"paths": […]}, starts it. It exits without an answer if standard input ends, if
it has waited for ten minutes, or if memory becomes scarce; the caller then starts a new process to check the
files.
"""

from __future__ import annotations

import os
import select
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, Dict, List, Optional

from ..sampler.room import memory_free
from . import ahead
from .sandbox import Reader, Request, answers

_LONGEST_WAIT = 600.0
_LOOK_SECONDS = 2.0
_ROOM_TO_BEGIN, _ROOM_TO_STAY = 2 << 30, 1 << 30
"""Bytes of free memory that are needed to start, and to go on waiting; with less, all is left to the run."""
_READY_SECONDS = 3.0
"""How long to wait for an import whose lowest priority could not be undone."""
_MEMORY_PER_BYTE = 8
_MOST_LINE = 1 << 20


def checked_ahead(request: Request, folder: str) -> Optional[List[Dict[str, Any]]]:
    """Return the answers for the paths that standard input names; None if there are none or memory is
    scarce."""
    if memory_free() < _ROOM_TO_BEGIN:
        return None
    with Reader(request, folder=folder) as reader:
        ahead.make_way(reader.process.pid)
        paths = _asked()
        if paths is None:
            return None
        wanted = replace(request, paths=[os.path.abspath(path) for path in paths])  # noqa: PTH100 # links stay
        if _fits(reader, folder, wanted.paths) and _is_ready(reader, folder, wanted.paths):
            return answers(wanted, reader)
        reader.process.kill()
    return answers(wanted)


def _asked() -> Optional[List[str]]:
    """Wait for the paths on standard input; None if they do not come, are invalid, or memory becomes
    scarce."""
    source, line, until = sys.stdin.fileno(), b"", time.monotonic() + _LONGEST_WAIT
    while not line.endswith(b"\n"):
        if not select.select([source], [], [], _LOOK_SECONDS)[0]:
            if time.monotonic() > until or memory_free() < _ROOM_TO_STAY:
                return None
            continue
        piece = os.read(source, 1 << 16)
        line += piece
        if not piece or len(line) > _MOST_LINE:
            return None
    paths = (ahead.parsed(line) or {}).get("paths")
    return paths if isinstance(paths, list) and all(isinstance(path, str) for path in paths) else None


def _fits(reader: Reader, folder: str, paths: Any) -> bool:
    """Whether the process can see the files, and its memory limit suffices for the largest."""
    inside = all(path.startswith(f"{folder}/") for path in paths)
    try:
        largest = max(Path(path).stat().st_size for path in paths)
    except OSError:
        return False
    return inside and largest * _MEMORY_PER_BYTE < reader.memory


def _is_ready(reader: Reader, folder: str, paths: Any) -> bool:
    """Send it the paths; returns whether it has imported its framework and sees the same folder."""
    whole = ahead.restore(reader.process.pid)
    limit = time.monotonic() + (_LONGEST_WAIT if whole else _READY_SECONDS)
    assert reader.process.stdin
    try:
        reader.process.stdin.write(ahead.line_for(folder, list(paths)))
        reader.process.stdin.flush()
    except (OSError, ValueError):
        return False
    reader.lines.due = lambda: limit
    for value in reader.lines:
        if "isolation" in value:
            reader.isolation = value["isolation"]
        else:
            return value.get("ready") is True
    return False
