"""Power a machine off at its deadline, or after a time without use, with no client connected.

    watch BASE --left S --idle S [--late S] [--spot CLOUD] [-- COMMAND…]

The deadline is `--left` seconds from now by this machine's clock; once armed it stays, whatever later calls
say. Active jobs are asked to end some time before it, so that they save, and results can be fetched.
`--late`: the cloud itself ends the machine at the deadline, so COMMAND waits so many seconds longer. 0 means
never, for --left and --idle. COMMAND is `poweroff` by default. There is one watcher for each BASE: a later
call changes its numbers for idleness. These count as use: an active or queued run, a run whose results were
not fetched and are not all in its store, the end of a run, the fetching of its results, and any touch of
`BASE/active`. On a spot machine of CLOUD (aws, gcp) it also asks for the cloud's announcement of its end, and
notifies every run. Prints {"pid", "left", "idle"}.
"""

# Close to the kernel: descriptors, modes and races need os calls, not pathlib.
# ruff: noqa: PTH100, PTH103, PTH116, PTH118

from __future__ import annotations

import argparse
import fcntl
import json
import os
import signal
import subprocess
import sys
import time
import traceback
from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Optional, Tuple

from .. import processes, rundir
from . import deadline, notices

_TICK = 1.0
_AGAIN = 30.0
"""Seconds after which the command is repeated if the machine still exists."""


@dataclass(frozen=True)
class Orders:
    """When to end the machine, and by which command; `spot` names the cloud that may preempt it, if any."""

    idle: float
    command: List[str]
    late: float = 0.0
    spot: str = ""


def main(argv: List[str]) -> int:
    parser = argparse.ArgumentParser(prog="orch-runtime watch")
    parser.add_argument("base")
    parser.add_argument("--left", type=float, required=True)
    parser.add_argument("--idle", type=float, required=True)
    parser.add_argument("--late", type=float, default=0.0)
    parser.add_argument("--spot", choices=notices.CLOUDS, default="")
    end = argv.index("--") if "--" in argv else len(argv)
    arguments = parser.parse_args(argv[:end])
    command = argv[end + 1 :] or ["poweroff"]
    base = os.path.abspath(arguments.base)
    if arguments.left:
        deadline.arm(base, arguments.left)
    pid = watch(base, Orders(arguments.idle, command, arguments.late, arguments.spot))
    print(json.dumps({"pid": pid, "left": deadline.left(base), "idle": arguments.idle}))
    return 0


def watch(base: str, orders: Orders) -> int:
    """Store the orders and make sure that a watcher of this version runs; returns its pid."""
    os.makedirs(base, exist_ok=True)
    rundir.write_json(_orders(base), vars(orders))
    give_up = time.monotonic() + 30
    while time.monotonic() < give_up:
        known = rundir.read_json(_watcher(base))
        if known is not None and processes.alive(known["pid"], known["start"]):
            if known.get("program") == _program():
                return int(known["pid"])
            processes.signal_all([known["pid"]], signal.SIGKILL)  # of a version with other orders
        else:
            _detach(base)
        time.sleep(0.02)
    raise SystemExit("The watcher did not start.")


def _program() -> str:
    return os.path.abspath(__file__)


class Idleness:
    """Seconds since the machine was last used, by a monotonic clock."""

    def __init__(self, base: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._base = base
        self._clock = clock
        self._marks: Optional[Tuple[Optional[float], ...]] = None
        self._since = clock()

    def seconds(self) -> float:
        """Return seconds since the last use that was seen. Call it more often than the limit."""
        marks = _marks(self._base)
        if marks != self._marks or _active(self._base):
            self._marks, self._since = marks, self._clock()
        return self._clock() - self._since

    def used(self) -> None:
        """Start counting again, after a use that changes no file."""
        self._since = self._clock()


def due(base: str, orders: Orders, idle: float) -> Optional[str]:
    """Return why the machine must end now; None if it must not. `idle`: seconds since its last use."""
    left = deadline.left(base)
    if left is not None and left + orders.late <= 0:
        return "deadline"
    if orders.idle and idle >= orders.idle:
        return "idle"
    return None


def _watch(base: str) -> None:
    """Watch. Never returns while the machine lives."""
    ears, idleness = NoticeListener(base), Idleness(base)
    while True:
        orders = _read_orders(base)
        ears.listen(orders.spot)
        if deadline.saving(base):
            ears.announce(notices.of_deadline(deadline.left(base) or 0.0))
        why = due(base, orders, idleness.seconds())
        if why == "idle" and processes.naming(base):  # such as an installation or a program of the user
            idleness.used()
        elif why is not None:
            print(f"{time.time():.0f} {why}: {' '.join(orders.command)}", file=sys.stderr, flush=True)
            subprocess.run(orders.command, stdin=subprocess.DEVNULL, check=False)
            time.sleep(_AGAIN)
        time.sleep(_TICK)


class NoticeListener:
    """Ask for the announcement of a spot machine's end, at the interval that its cloud recommends."""

    def __init__(self, base: str) -> None:
        self._base = base
        self._listener: Optional[notices.Listener] = None
        self._next = 0.0
        self._heard: Optional[notices.Notice] = None
        notices.clear(base)

    def listen(self, cloud: str) -> None:
        """Ask if the interval has passed, and notify the runs of what is new."""
        if not cloud or time.monotonic() < self._next:
            return
        self._listener = self._listener or notices.Listener(cloud)
        self._next = time.monotonic() + notices.EVERY[cloud]
        heard = self._listener.notice()
        if heard is not None:
            self.announce(heard)

    def announce(self, heard: notices.Notice) -> None:
        """Notify the runs, unless they were notified of such an end before."""
        if self._heard and _kind(heard) == _kind(self._heard):
            return
        self._heard = heard
        notices.publish(self._base, heard)
        print(f"{time.time():.0f} {heard.text}", file=sys.stderr, flush=True)


def _kind(notice: notices.Notice) -> bool:
    """Return whether a notice is the end itself rather than a risk; of each kind only the first one
    counts.
    """
    return notice.ends_at is not None


def _read_orders(base: str) -> Orders:
    return Orders(**(rundir.read_json(_orders(base)) or {}))


def _active(base: str) -> bool:
    """Whether a run is active, queued or about to start, or has unfetched results."""
    runs = rundir.all_runs(base)
    return any(rundir.held(run) or rundir.unwatched(run) or rundir.uncollected(run) for run in runs)


def _marks(base: str) -> Tuple[Optional[float], ...]:
    """Return a value that changes with every use: the modification times of these files."""
    ends = [mark for run in rundir.all_runs(base) for mark in (run.exit, run.collected, run.stored)]
    return tuple(_modified(mark) for mark in (os.path.join(base, "active"), *ends))


def _modified(path: str) -> Optional[float]:
    try:
        return os.stat(path).st_mtime
    except OSError:
        return None


def _orders(base: str) -> str:
    return os.path.join(base, "watch.json")


def _watcher(base: str) -> str:
    return os.path.join(base, "watcher.json")


# ---------------------------------------------------------------- the process that stays


def _detach(base: str) -> None:
    """Fork a watcher into a session of its own. If there is one already, the new one ends at once."""
    first = os.fork()
    if first > 0:
        os.waitpid(first, 0)
        return
    try:
        os.setsid()
        if os.fork() == 0:
            _stay(base)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(0)


def _stay(base: str) -> None:
    lock = os.open(os.path.join(base, "watch.lock"), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return
    diary = os.open(os.path.join(base, "watch.log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nothing, 0), (diary, 1), (diary, 2)):
        os.dup2(source, target)
    os.chdir("/")
    own: Dict[str, Any] = {
        "pid": os.getpid(),
        "start": processes.start_of(os.getpid()),
        "program": _program(),
    }
    rundir.write_json(_watcher(base), own)
    processes.set_oom_score("-900")
    _watch(base)
