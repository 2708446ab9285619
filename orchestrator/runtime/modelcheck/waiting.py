"""`check-model --ahead FOLDER`: a check that is ready before its files are there.

One line of standard input, {"paths": […]}, begins it. It ends without an answer at the end of standard input,
when it has waited for ten minutes, and when memory becomes scarce: whoever asks then has the files checked
by a new process.
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
"""Bytes of free memory without which the run has it all to itself."""
_READY_SECONDS = 3.0
"""For an import that still has the lowest priority, when others keep the cores busy."""
_MEMORY_PER_BYTE = 8
_MOST_LINE = 1 << 20


def checked_ahead(request: Request, folder: str) -> Optional[List[Dict[str, Any]]]:
    """The answers for the paths that standard input names; None where nobody asked, or in vain."""
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
    """The paths to read, waited for."""
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
    """Whether the process may see the files, and has the memory for them that it was given before."""
    inside = all(path.startswith(f"{folder}/") for path in paths)
    try:
        largest = max(Path(path).stat().st_size for path in paths)
    except OSError:
        return False
    return inside and largest * _MEMORY_PER_BYTE < reader.memory


def _is_ready(reader: Reader, folder: str, paths: Any) -> bool:
    """Tell it the paths; whether it has imported what it needs and sees the same folder."""
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
