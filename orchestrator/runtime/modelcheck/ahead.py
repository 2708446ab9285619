"""The isolated process before its files exist: it imports the framework without slowing down the run.

The import takes most of the time of a check and needs none of the files. So the process is started during the
run, isolates itself as usual, imports with the lowest priority, and is told afterwards which files to read.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional

_MOST = 1 << 20
"""Bytes of the line that names the files."""
_AUTOGROUP_LOWEST = 19


# ---------------------------------------------------------------- in the isolated process


def paths_after_import(folder: str) -> Optional[List[str]]:
    """Return the paths from standard input once the framework is imported; None if `folder` is not the same
    folder here as in the process that asks. Exits if standard input ends without a line."""
    importing = threading.Thread(target=_import_framework, daemon=True)
    importing.start()
    line = sys.stdin.buffer.readline(_MOST)
    if not line.endswith(b"\n"):
        os._exit(0)
    ask = json.loads(line)
    importing.join()
    try:
        same = identity(folder) == ask["identity"]
    except OSError:
        same = False
    return [str(path) for path in ask["paths"]] if same else None


def _import_framework() -> None:
    """Import the framework with the lowest priority. Errors are ignored: they recur, and are reported, when a
    file needs it."""
    from .predict import import_framework

    with contextlib.suppress(OSError, AttributeError):
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))  # of this thread
    with contextlib.suppress(Exception):
        import_framework()


def identity(folder: str) -> List[int]:
    """Return the device and inode of a folder. Raises OSError."""
    about = Path(folder).stat()
    return [about.st_dev, about.st_ino]


def line_for(folder: str, paths: List[str]) -> bytes:
    """Return the line that tells the waiting process its paths."""
    return json.dumps({"paths": paths, "identity": identity(folder)}).encode() + b"\n"


# ---------------------------------------------------------------- in the process that starts it


def make_way(pid: int) -> None:
    """Give a process the lowest priority, even if the kernel divides cores by session, and let it be killed
    first if memory runs out."""
    _write(f"/proc/{pid}/autogroup", str(_AUTOGROUP_LOWEST))
    _write(f"/proc/{pid}/oom_score_adj", "1000")


def restore(pid: int) -> bool:
    """Restore normal priority, because the result is now being waited for. Returns whether this succeeded for
    all threads."""
    _write(f"/proc/{pid}/autogroup", "0")
    whole = True
    for process in _family(pid):
        for thread in _numbers(f"/proc/{process}/task"):
            try:
                os.sched_setscheduler(thread, os.SCHED_OTHER, os.sched_param(0))
            except ProcessLookupError:
                continue
            except (OSError, AttributeError):
                whole = False
    return whole


def _family(pid: int) -> Iterator[int]:
    """Yield the id of a process and of all its descendants."""
    yield pid
    with contextlib.suppress(OSError, ValueError):
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split():
            yield from _family(int(child))


def _numbers(folder: str) -> List[int]:
    with contextlib.suppress(OSError):
        return [int(name) for name in os.listdir(folder)]  # noqa: PTH208
    return []


def _write(path: str, text: str) -> None:
    with contextlib.suppress(OSError):
        Path(path).write_text(text, encoding="ascii")


def parsed(line: bytes) -> Optional[Dict[str, Any]]:
    """Return the JSON object in a line; None for anything else."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
