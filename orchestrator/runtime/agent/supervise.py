"""Supervise one run to its end: the process that stays when no client is connected.

It holds the run's lock for as long as it lives. The job begins only after `started.json` is written, and the
run has ended only when `exit.json` is written: whatever dies in between, nothing is run twice and no end is
invented.
"""

# Close to the kernel: descriptors, modes and races need os calls, not pathlib.
# ruff: noqa: PTH118

from __future__ import annotations

import os
import select
import signal
import sys
import time
from dataclasses import dataclass, replace
from typing import Any, Callable, Dict, List, Optional, Set, Tuple

from .. import processes
from ..rundir import GRACE, Reserve, RunDir, log_bytes, read_json, write_json
from ..sampler.sample import Sampler
from ..temporary import own_temporary
from ..transfer import outputs
from ..transfer.stage import read_only
from . import deadline, ending, health, mounts, notices
from .command import Child, Command, launch

_TO_FETCH = 30.0
"""Maximum seconds before the machine's end that are reserved for fetching what the job has saved."""

BEGAN = "ok"

_LEFTOVER_GRACE = 2.0
_MOST_NOTICED = 10
_HEARTBEAT = 0.5
_RSS_UNIT = 1 if sys.platform == "darwin" else 1024


@dataclass
class Ended:
    """How the job's first process ended: `status` as os.wait4 gives it, `peak` its memory in bytes, `at` the
    time in Unix seconds.
    """

    status: int
    peak: int
    at: float


class Supervision:
    """One run from its first process to its exit.json."""

    def __init__(
        self, run: RunDir, command: Command, stall: float = 0.0, stops_for_nan: bool = False
    ) -> None:
        self._run = run
        self._stall, self._stops_for_nan = stall, stops_for_nan
        self._stopped: Optional[health.Stop] = None
        self._noticed: List[Dict[str, Any]] = []
        self._command = command
        self._wake = _wake_on_signals(self._asked_to_stop)
        self._oom_score = processes.spare_from_oom_killer()
        processes.adopt_orphans()
        self._reserve = Reserve(run.exit)
        self._kills = ending.kills_now()
        self._job: Optional[Child] = None
        self._mounts: Optional[mounts.Mounts] = None
        self._kill_at: Optional[float] = None
        self._cancelled = False
        self._heard: Optional[notices.Notice] = None
        self._stop = False

    def start(self) -> None:
        """Write started.json and then release the job. Raises OSError, in which case nothing runs."""
        self._job = launch(self._command, self._run.log, self._oom_score)
        self._began = time.monotonic()
        if self._command.bound:
            self._mounts = mounts.Mounts(self._run, self._job.listener)
        write_json(
            self._run.started,
            {
                "supervisor": {"pid": os.getpid(), "start": processes.start_of(os.getpid())},
                "job": {"pid": self._job.pid, "start": processes.start_of(self._job.pid)},
                "boot_id": processes.boot_id(),
                "started_at": time.time(),
                "argv": list(self._command.argv),
                "cwd": self._command.cwd,
            },
        )
        self._job.release()

    def see_to_the_end(self) -> None:
        """Sample, cancel if requested, wait; then record how it ended."""
        sampler = Sampler(self._run.trace, os.getpid(), lambda text: notices.say(text, self._run.log))
        try:
            ended = self._wait(sampler)
            left = self._end_leftovers(sampler.strangers)
            sampler.ended(ended.peak)
        finally:
            sampler.close()
        self._conclude(ended, left)

    def _wait(self, sampler: Sampler) -> Ended:
        watched = health.Health(
            self._run, self._command.cwd, self._stall, self._stops_for_nan, lambda: _used(sampler)
        )
        self._noticed = watched.noticed
        while True:
            ended = self._reap(sampler)
            if ended is not None:
                self._stopped = self._stopped or watched.look_at_the_end()
                return ended
            self._cancel_if_asked()
            self._heed_notice()
            self._stop_if_ill(watched)
            sampler.sample_if_due()
            self._sleep(min(sampler.wait(), _HEARTBEAT))

    def _sleep(self, seconds: float) -> None:
        listener = self._mounts.listener if self._mounts else None
        awaited = [self._wake] if listener is None else [self._wake, listener]
        ready, _, _ = select.select(awaited, [], [], seconds)
        if self._wake in ready:
            os.read(self._wake, 4096)
        if self._mounts and listener in ready:
            self._mounts.answer_all()

    # ------------------------------------------------------------ processes

    def _reap(self, sampler: Sampler) -> Optional[Ended]:
        """Wait for ended processes. The job's own end is sampled before the kernel drops its accounting."""
        assert self._job is not None
        job = self._job.pid
        while True:
            reaped = _reap_one(lambda pid: sampler.sample() if pid == job else sampler.retire(pid))
            if reaped is None:
                return None
            pid, status, peak = reaped
            if pid == job:
                return Ended(status, peak, time.time())

    def _members(self, strangers: Set[int]) -> List[int]:
        assert self._job is not None
        below = {entry.pid for entry in processes.descendants(os.getpid()) if not entry.zombie}
        marked = processes.members(self._job.pid, self._job.start, self._run.trace)
        return sorted((below | set(marked)) - strangers)

    def _end_leftovers(self, strangers: Set[int]) -> int:
        """End the processes that the job left, so that its files are final; returns their number."""
        left = self._members(strangers)
        if not left:
            return 0
        processes.signal_all(left, signal.SIGTERM)
        until = time.monotonic() + _LEFTOVER_GRACE
        while self._members(strangers):
            if time.monotonic() > until:
                processes.signal_all(self._members(strangers), signal.SIGKILL)
            while _reap_one(lambda _: None):
                pass
            self._sleep(0.02)
        return len(left)

    # ------------------------------------------------------------ stopping

    def _asked_to_stop(self, *_: Any) -> None:
        self._stop = True

    def _cancel_if_asked(self) -> None:
        """On cancel.json, or a signal to this process (the machine shuts down): ask the job to end, and kill
        it later.
        """
        asked = None if self._cancelled else read_json(self._run.cancel)
        if asked is not None:
            self._cancelled = True
            self._ask_to_end(float(asked.get("grace", GRACE)))
        elif self._stop and self._kill_at is None:
            self._ask_to_end(GRACE)
        if self._kill_at is not None and time.monotonic() >= self._kill_at:
            processes.signal_all(self._members(set()), signal.SIGKILL)
            self._kill_at = time.monotonic() + 1.0

    def _heed_notice(self) -> None:
        """Report a notice in the log; before the end of the machine, ask the job to save."""
        notice = notices.published(self._run.base)
        if notice is None or notice == self._heard:
            return
        self._heard = notice
        notices.note(notice, self._run.log, self._run.trace)
        if notice.ends_at is not None and self._kill_at is None:
            self._ask_to_end(_time_to_save(notice.ends_at - time.time()))

    def _stop_if_ill(self, watched: health.Health) -> None:
        stop = watched.look()
        if stop is not None and self._kill_at is None:
            self._stopped = stop
            self._ask_to_end(GRACE)

    def _ask_to_end(self, grace: float) -> None:
        assert self._job is not None
        processes.signal_group(self._job.pid, signal.SIGTERM)
        self._kill_at = time.monotonic() + grace

    # ------------------------------------------------------------ the end

    def _conclude(self, ended: Ended, left: int) -> None:
        facts = self._facts(ended)
        said = ending.explain(facts)
        if left:
            said["detail"] += f" Processes that it left behind had to be ended: {left}."
        try:
            outputs.write(self._run)
        except OSError:  # no space for the list: `outputs` creates it when requested
            pass
        self._reserve.write(
            {
                **said,
                "noticed": self._noticed[:_MOST_NOTICED],
                "ended_at": ended.at,
                "wall_s": round(time.monotonic() - self._began, 3),
                "log_bytes": log_bytes(self._run),
            }
        )

    def _machine_ends(self) -> Optional[Tuple[str, str]]:
        """Return the announcement of the machine's end; if the machine shut down before the watcher received
        it, ask for it now.
        """
        if self._stop and (self._heard is None or self._heard.ends_at is None):
            cloud = str((read_json(os.path.join(self._run.base, "watch.json")) or {}).get("spot", ""))
            self._heard = notices.Listener(cloud).notice() if cloud else None
            if self._heard is None and deadline.saving(self._run.base):
                self._heard = notices.of_deadline(deadline.left(self._run.base) or 0.0)
        if self._heard is None or self._heard.ends_at is None:
            return None
        return self._heard.reason, self._heard.text

    def _facts(self, ended: Ended) -> ending.Facts:
        assert self._job is not None
        signalled = os.WIFSIGNALED(ended.status)
        now = ending.kills_now()
        log_tail = ending.tail(self._run.log)
        return ending.Facts(
            code=None if signalled else os.WEXITSTATUS(ended.status),
            signal=os.WTERMSIG(ended.status) if signalled else None,
            cancelled=self._cancelled,
            machine_ends=self._machine_ends(),
            stopped=self._stopped,
            observed=ending.stopped_after_steps(self._run.observe, self._job.pid),
            group_kills=ending.since(self._kills.group, now.group),
            global_kills=ending.since(self._kills.everywhere, now.everywhere),
            full=ending.full_file_system(self._command.cwd, self._run.root) if ended.status else None,
            log_tail=log_tail,
            data_denied=ending.data_denied(log_tail, self._command.cwd, read_only(self._run)),
            not_found=self._job.failure(),
        )


def _used(sampler: Sampler) -> health.Used:
    used = sampler.used
    return health.Used(used.cpu_user + used.cpu_system, used.asked_read + used.asked_written)


def _time_to_save(left: float) -> float:
    """Return the part of the remaining seconds that the job may use to save; the rest is for fetching what it
    saved.
    """
    return max(2.0, left - min(_TO_FETCH, left / 3))


def supervise(
    run: RunDir,
    command: Command,
    tell: Callable[[str], None],
    stall: float = 0.0,
    stops_for_nan: bool = False,
) -> None:
    """Run the job. Calls `tell` with BEGAN once it began, or with why it could not."""
    with own_temporary(command.environment) as environment:
        try:
            given = replace(command, environment=environment)
            supervision = Supervision(run, given, stall, stops_for_nan)
            supervision.start()
        except OSError as error:
            tell(f"The run could not be started: {error.strerror}.")
            return
        tell(BEGAN)
        supervision.see_to_the_end()


def _wake_on_signals(stop: Any) -> int:
    """Return a pipe that becomes readable at every signal. Hang-ups are ignored; a request to end calls
    `stop`.
    """
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGUSR1, lambda *_: None)
    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    return reading


def _reap_one(look: Callable[[int], None]) -> Optional[Tuple[int, int, int]]:
    """Return (pid, status, peak memory) of an ended child, after calling `look` while it is still in the
    process table.
    """
    try:
        if hasattr(os, "waitid"):
            found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if found is None:
                return None
            look(found.si_pid)
        pid, status, usage = os.wait4(-1, os.WNOHANG)
    except ChildProcessError:
        return None
    return (pid, status, usage.ru_maxrss * _RSS_UNIT) if pid else None
