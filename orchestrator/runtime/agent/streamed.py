"""Data that arrive during a run: whether a download failed, or will never finish."""

# Close to the kernel: descriptors and races need os calls, not pathlib.
# ruff: noqa: PTH118, PTH120

from __future__ import annotations

import fcntl
import os
from typing import Any, Dict, Iterator, Optional

from ..rundir import RunDir, read_json

_SENTENCES = {
    "object_changed": "was changed in its bucket while it was fetched",
    "object_missing": "is no longer in its bucket",
    "object_denied": "may not be read any more with the link that was made for it",
    "object_corrupt": "came damaged every time",
    "object_passing": "did not come",
}


def failure(run: RunDir) -> Optional[str]:
    """Return a sentence on what failed; None if nothing did."""
    for path in _states(run):
        found = _failure(path)
        if found is not None:
            return found
    return None


def _states(run: RunDir) -> Iterator[str]:
    for tree in (read_json(run.spec) or {}).get("trees", []):
        if tree.get("stream"):
            yield tree["stream"]


def _failure(path: str) -> Optional[str]:
    told = read_json(path) or {"state": "gone"}
    if told["state"] == "failed":
        return _sentence(told)
    if told["state"] == "done" or _is_held(os.path.join(os.path.dirname(path), "lock")):
        return None
    again = read_json(path) or told  # it may have ended between the two reads
    return (
        None if again["state"] == "done" else "The process that fetches its data ended before all had come."
    )


def _sentence(told: Dict[str, Any]) -> str:
    text = str(told.get("text", ""))[:500]
    if told.get("path"):
        return f"{told['path']} of its data {_SENTENCES.get(told['kind'], 'was refused')}: {text}"
    return f"Its data could not be fetched to the end: {text}"


def _is_held(path: str) -> bool:
    try:
        lock = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False
