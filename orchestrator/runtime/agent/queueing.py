"""The queue of a machine: runs that begin one after another, in the order in which they were queued.

There is no process that manages it. Each queued run has its supervisor from the start, which waits until
every run with a lower number in `queued.json` has ended, and every run that was not queued. A waiting
supervisor holds its run's lock, as a supervising one does. So the machine counts as used, and if one is
killed, the kernel releases its lock, and the others go on.
"""

# Close to the kernel: descriptors, modes and races need os calls, not pathlib.
# ruff: noqa: PTH108, PTH110, PTH118

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import time
from typing import Any, Callable, Dict, Optional

from ..rundir import RunDir, all_runs, held, log_bytes, read_json, unwatched, write_json
from ..transfer import record
from ..transfer.stage import SHARED
from . import deadline, notices
from .supervise import BEGAN

NEXT_S = 0.5
LATER_S = 2.0
"""Seconds between two checks of the run that is next, and of those behind it: a check takes 0.2 ms."""
_CANCELLED = "It was cancelled before it began."


def enter(run: RunDir) -> None:
    """Give the run the next number. The caller holds the run's lock."""
    lock = os.open(os.path.join(run.base, "queue.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        last = max(map(_number, all_runs(run.base)), default=0)
        write_json(run.queued, {"number": last + 1, "pid": os.getpid(), "queued_at": time.time()})
    finally:
        os.close(lock)


def leave(run: RunDir) -> None:
    """Forget an earlier place of a run that is prepared anew, whose supervisor was killed before it began."""
    for path in (run.queued, run.cancel):
        try:
            os.unlink(path)
        except FileNotFoundError:
            continue


def is_next(run: RunDir) -> bool:
    """Whether the run may begin now."""
    return _nearest_ahead(run, _number(run)) is None and not _machine_ends(run.base)


def wait(run: RunDir) -> bool:
    """Wait until no run before this one is active. Return False if it was cancelled meanwhile; that is then
    recorded as its end.

    Most checks look at one run only, so that a long queue costs the running job nothing. While the end of the
    machine is announced, no run begins.
    """
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    number, ahead = _number(run), None
    while not os.path.exists(run.cancel):
        if ahead is None or not _is_ahead(ahead, number):
            ahead = _nearest_ahead(run, number)
        if ahead is None and not _machine_ends(run.base):
            return True
        time.sleep(LATER_S if ahead is not None and _is_waiting(ahead) else NEXT_S)
    end_unbegun(run, "cancelled", _CANCELLED)
    return False


def renew_stamps(run: RunDir) -> None:
    """Note the present stamps of the shared files, before a run that was staged a while ago begins.

    Other runs were given the same files meanwhile, and each link changes a stamp; with the old ones, the end
    of the run would have to read all its data.
    """
    told = read_json(run.path(SHARED)) or {"trees": []}
    for shared in told["trees"]:
        with contextlib.suppress(OSError), record.locked(shared["folder"]):
            now = record.proven(shared["folder"], {path: row[1] for path, row in shared["files"].items()})
            same = {path: stamp for path, stamp in now.items() if stamp[2] == shared["files"][path][0][2]}
            shared["files"].update({path: [s, shared["files"][path][1], True] for path, s in same.items()})
    write_json(run.path(SHARED), told)


def teller(run: RunDir) -> Callable[[str], None]:
    """Return a function that records why the run could not begin; nobody else waits for that answer."""

    def tell(text: str) -> None:
        if text != BEGAN:
            end_unbegun(run, "failed", text)

    return tell


def end_unbegun(run: RunDir, reason: str, detail: str) -> None:
    """Record the end of a run that never began."""
    notices.say(detail, run.log)
    ended: Dict[str, Any] = {"code": None, "signal": None, "reason": reason, "detail": detail, "noticed": []}
    write_json(run.exit, {**ended, "ended_at": time.time(), "wall_s": 0.0, "log_bytes": log_bytes(run)})


def _nearest_ahead(run: RunDir, number: int) -> Optional[RunDir]:
    """Return the last run before the one with this number that is active; None if it is the run's turn."""
    ahead = [other for other in all_runs(run.base) if other != run and _is_ahead(other, number)]
    return max(ahead, key=_number, default=None)


def _is_ahead(other: RunDir, number: int) -> bool:
    return _number(other) < number and (held(other) or unwatched(other))


def _is_waiting(run: RunDir) -> bool:
    return os.path.exists(run.queued) and not os.path.exists(run.started)


def _number(run: RunDir) -> int:
    """Return a run's number in the queue; 0 for one that was not queued, or is not yet."""
    return int((read_json(run.queued) or {"number": 0})["number"])


def _machine_ends(base: str) -> bool:
    notice = notices.published(base)
    return deadline.saving(base) or (notice is not None and notice.ends_at is not None)
