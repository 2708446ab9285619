"""Copy a run's checkpoints while it runs, in a process of its own.

checkpoints BASE RUN    prints {"snapshots": [{"seq", "taken_at", "files"}], "hindrance"}, the newest last;
                        of a run that has ended, once its last copy is taken. `hindrance`: {"kind", "path",
                        "since"} of a copy that has been due for a while and cannot be taken, or null
"""

# Close to the kernel: descriptors, modes and races need os calls, not pathlib.
# ruff: noqa: PTH108, PTH110, PTH118

from __future__ import annotations

import fcntl
import json
import os
import signal
import sys
import time
from typing import Any, Dict, List, Optional

from ..processes import alive, set_oom_score
from ..rundir import RunDir, held, open_run, read_json, write_json
from .snapshot import Hindrance, Keeper, hold, manifest, numbers

_POLL_S = 1.0
_QUICK_S = 0.2
"""Seconds between two checks when the machine's end is announced, and between two for the end of the run."""
_PATIENCE_S = 10.0
_SHARE = 10.0
"""Checking and copying take at most this fraction of the time: one part in ten."""
_TELL_S = 30.0
"""Seconds for which a copy must be due before its hindrance is reported."""
_LAST_S = 30.0
"""Maximum seconds for the last copy, after the run has ended."""
_FIRST_KILLED = "500"
_KILLED_IN_SHELL = 128 + signal.SIGKILL


def main(argv: List[str]) -> int:
    base, run_id = argv
    run = open_run(base, run_id)
    await_last(run)
    newest = max(numbers(run), default=None)
    if newest is not None:
        hold(run, newest, "client")
    told = [found for found in (manifest(run, seq) for seq in numbers(run)) if found is not None]
    json.dump({"snapshots": told, "hindrance": read_json(_told(run))}, sys.stdout)
    return 0


def claim(run: RunDir) -> int:
    """Return a descriptor: while it or a duplicate of it is open, more copies may come."""
    descriptor = os.open(_claim(run), os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    return descriptor


def keep(run: RunDir, spec: Dict[str, Any]) -> None:
    """Copy the run's checkpoints as they change until it has ended, and once more at its end.

    If the run is ended because its loss is not finite, nothing more is copied: only earlier copies are
    useful.
    """
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # at a shutdown, the last save is the most important one
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.nice(5)
    set_oom_score(_FIRST_KILLED)
    keeper = Keeper(run, list(spec["checkpoints"]), lambda: _was_killed(run))
    hindrance = _Told(_told(run))
    while not _is_over(run):
        if _lost_its_loss(run, spec):
            return
        begun = time.monotonic()
        keeper.look(_PATIENCE_S)
        hindrance.tell(keeper.hindrance)
        _pause(run, max(_POLL_S, _SHARE * (time.monotonic() - begun)))
    if not _lost_its_loss(run, spec):
        keeper.look(0.0)


def _lost_its_loss(run: RunDir, spec: Dict[str, Any]) -> bool:
    """Whether the run is ended because its loss is not finite. The supervisor records it before the job can
    save again.
    """
    if spec.get("on_nan") != "stop":
        return False
    noticed = (read_json(run.path("noticed.json")) or {}).get("noticed", [])
    return any(each["what"] == "not_finite" for each in noticed)


def _is_over(run: RunDir) -> bool:
    return os.path.exists(run.exit) or not held(run)


def _was_killed(run: RunDir) -> bool:
    """Whether the job was killed; a job that handles a signal, saves and exits was not."""
    ended = read_json(run.exit)
    if ended is not None:
        return ended.get("signal") is not None or ended.get("code") == _KILLED_IN_SHELL
    job = (read_json(run.started) or {}).get("job")
    return job is not None and not alive(job["pid"], job["start"])


def _pause(run: RunDir, seconds: float) -> None:
    """Wait; only briefly once the run has ended or the end of the machine is announced."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        time.sleep(min(_QUICK_S, seconds))
        if os.path.exists(run.exit) or os.path.exists(os.path.join(run.base, "notice.json")):
            return


def await_last(run: RunDir) -> None:
    """Wait until no more copies of an ended run will come."""
    until = time.monotonic() + _LAST_S
    while os.path.exists(run.exit) and time.monotonic() < until and _is_claimed(run):
        time.sleep(_QUICK_S)


def _is_claimed(run: RunDir) -> bool:
    try:
        descriptor = os.open(_claim(run), os.O_RDWR)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


class _Told:
    """Record in the file `path` what prevents a copy that has been due for a while."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._since: Optional[float] = None
        self._said: Optional[Hindrance] = None

    def tell(self, found: Optional[Hindrance]) -> None:
        if found is None:
            self._since = None
        elif self._since is None:
            self._since = time.time()
        due = self._since is not None and time.time() - self._since >= _TELL_S
        said = found if due else None
        if said == self._said:
            return
        self._said = said
        try:
            if said is None:
                os.unlink(self._path)
            else:
                write_json(self._path, {**said._asdict(), "since": self._since})
        except OSError:  # a full disk: it is written at the next change
            self._said = None


def _claim(run: RunDir) -> str:
    return run.path("checkpoints.lock")


def _told(run: RunDir) -> str:
    return run.path("checkpoints.json")
