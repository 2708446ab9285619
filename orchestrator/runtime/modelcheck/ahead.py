"""The isolated process while it waits for its files: it imports the framework, and is in nobody's way.

The import is most of a check, and needs none of the files. So the process is started while the run goes on,
isolates itself as always, imports with the lowest priority, and only then is told which files to read.
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


# ---------------------------------------------------------------- inside of the isolation


def paths_after_import(folder: str) -> Optional[List[str]]:
    """The paths of standard input, once the framework is imported; None where `folder` is another one than
    the asker sees. The process ends where the asker does."""
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
    """What fails here fails again, and is told, where a file needs it."""
    from .predict import import_framework

    with contextlib.suppress(OSError, AttributeError):
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))  # of this thread
    with contextlib.suppress(Exception):
        import_framework()


def identity(folder: str) -> List[int]:
    """Device and number of a folder. Raises OSError."""
    about = Path(folder).stat()
    return [about.st_dev, about.st_ino]


def line_for(folder: str, paths: List[str]) -> bytes:
    """What the waiting process is told."""
    return json.dumps({"paths": paths, "identity": identity(folder)}).encode() + b"\n"


# ---------------------------------------------------------------- from outside of it


def make_way(pid: int) -> None:
    """Let others go first, also where the kernel shares cores by session, and where memory runs out."""
    _write(f"/proc/{pid}/autogroup", str(_AUTOGROUP_LOWEST))
    _write(f"/proc/{pid}/oom_score_adj", "1000")


def restore(pid: int) -> bool:
    """Give it its turn again, as it is now waited for; whether all of its threads have it."""
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
    """A process and all below it."""
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
    """The object in a line; None for anything else."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
