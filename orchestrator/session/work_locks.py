"""Locks on runs and machines: file locks, which the kernel releases when their holder dies.

The holder writes its process id, verb and start time into the file, so that a waiting call can name it.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO

from orchestrator.model import Progress
from orchestrator.session.project import Project

_GRACE_SECONDS = 0.5
"""If a lock is free again within this time, the wait is not reported."""
_POLL_SECONDS = 0.05
_MOST_BYTES = 1000


@dataclass(frozen=True)
class Holder:
    """The process that holds a lock, its verb, and since when, in Unix seconds."""

    pid: int
    verb: str
    since: float

    @property
    def words(self) -> str:
        at = datetime.fromtimestamp(self.since, UTC).strftime("%H:%M:%S UTC")
        return f"`orch {self.verb}` (process {self.pid}, since {at})"


class WorkLock:
    """An exclusive lock on a run or machine.

    It can be released before its block ends, and taken again. `what`: the holder's work in a message, such as
    "works on RUN". `verb`: shown to waiting calls. `far`: the lock in the team's store, for its other
    computers.
    """

    def __init__(
        self,
        handle: IO[str],
        verb: str,
        what: str,
        tell: Progress,
        far: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self._handle = handle
        self._far = far
        self._beyond = ExitStack()
        self._verb = verb
        self._what = what
        self._tell = tell
        self._held = False

    def take(self) -> None:
        """Wait for the lock. After a while, report who holds it, and when the wait is over."""
        self.wait(fcntl.LOCK_EX)
        self._held = True
        try:
            self._beyond.enter_context(self._far())
        except BaseException:
            self.release()
            raise
        _sign(self._handle, Holder(os.getpid(), self._verb, time.time()))

    def wait(self, lock: int) -> None:
        """Wait until `lock` is acquired: LOCK_EX, or LOCK_SH, which other waiting calls can hold too."""
        if _soon(self._handle, lock):
            return
        holder = _signed(self._handle)
        name = holder.words if holder else "Another orch"
        self._tell.say(f"{name} {self._what}; waiting for it")
        fcntl.flock(self._handle, lock)
        self._tell.say("The lock is free now; continuing")

    def release(self) -> None:
        if not self._held:
            return
        self._held = False
        self._beyond.close()
        _sign(self._handle, None)
        fcntl.flock(self._handle, fcntl.LOCK_UN)


@contextmanager
def _taking(
    handle: IO[str], verb: str, what: str, tell: Progress, project: Project, name: str
) -> Iterator[WorkLock]:
    """Hold the lock of `handle` in the block or until it is released; wait for its holder first.

    In a team's project also the store's lock `name`, which may raise LockHeld, LockLost and StorageError.
    """

    def far() -> AbstractContextManager[None]:
        team = project.team
        return team.lock(name, tell, what) if team else nullcontext()

    lock = WorkLock(handle, verb, what, tell, far)
    lock.take()
    try:
        yield lock
    finally:
        lock.release()


@contextmanager
def run_lock(project: Project, run_id: str, verb: str, tell: Progress) -> Iterator[WorkLock]:
    """Hold the lock of the run `run_id`: one call at a time starts or pulls it."""
    with (
        _opened(project, f"run-{run_id}") as handle,
        _taking(handle, verb, f"works on {run_id} in this folder", tell, project, f"run-{run_id}") as lock,
    ):
        yield lock


@contextmanager
def free(project: Project, run_id: str) -> Iterator[bool]:
    """Yield whether no other call works on the run `run_id`. If so, other calls wait until the block ends."""
    with _opened(project, f"run-{run_id}") as handle:
        yield _taken(handle)


@contextmanager
def starting(project: Project, lease: str, verb: str, tell: Progress) -> Iterator[None]:
    """Hold the lock for starting a run on the machine of `lease`."""
    with (
        _opened(project, f"start-{lease}") as handle,
        _taking(handle, verb, "starts a run on this machine", tell, project, f"start-{lease}"),
    ):
        yield


@contextmanager
def sweeping(project: Project, name: str, tell: Progress) -> Iterator[None]:
    """Hold the lock for a sweep of the profile `name`; its sweeps use the same machines."""
    with (
        _opened(project, f"sweep-{name}") as handle,
        _taking(handle, "sweep", f"sweeps {name} in this folder", tell, project, f"sweep-{name}"),
    ):
        yield


@contextmanager
def promoting(project: Project, model: str, verb: str, tell: Progress) -> Iterator[None]:
    """Hold the lock for changing which run's model is current."""
    with (
        _opened(project, f"model-{model}") as handle,
        _taking(handle, verb, f"changes the model {model}", tell, project, f"model-{model}"),
    ):
        yield


@contextmanager
def downloading(project: Project, source: str, name: str, tell: Progress) -> Iterator[None]:
    """Hold the lock for downloading the bucket data `source` to this computer. `name`: of the lock."""
    with _opened(project, f"data-{name}") as handle:
        lock = WorkLock(handle, "train", f"downloads {source}", tell)
        lock.take()
        try:
            yield
        finally:
            lock.release()


@contextmanager
def ending_for_task(project: Project, run_id: str, tell: Progress) -> Iterator[None]:
    """Hold the lock for ending the run `run_id` of a task that its scheduler killed."""
    with _opened(project, f"ending-{run_id}") as handle:
        lock = WorkLock(handle, "cancel", f"ends {run_id} for a task that was killed", tell)
        lock.take()
        try:
            yield
        finally:
            lock.release()


@contextmanager
def changing(project: Project, lease: str, verb: str, tell: Progress) -> Iterator[None]:
    """Hold the lock for creating a machine for `lease`, or deleting its machines and closing it.

    `up` holds it from the check that the lease is open to the receipt of the create call; `down` holds it
    from the list of machines to the closing entry. So no machine is created for a lease whose key was
    deleted.
    """
    with (
        _opened(project, f"lease-{lease}") as handle,
        _taking(handle, verb, f"creates or deletes the machine of {lease}", tell, project, f"lease-{lease}"),
    ):
        yield


@contextmanager
def one_at_a_time(project: Project, name: str, verb: str, tell: Progress) -> Iterator[None]:
    """Hold the lock for `up` of the profile `name`: a second call then finds the machine and stack of the
    first.
    """
    project.ignore_state()
    with (
        _file(project.state / f"up-{name}.lock") as handle,
        _taking(handle, verb, f"prepares the machine of {name}", tell, project, f"up-{name}"),
    ):
        yield


def after_up(project: Project, name: str, tell: Progress) -> None:
    """Wait for an `up` of the profile `name` that is running."""
    project.ignore_state()
    with _file(project.state / f"up-{name}.lock") as handle:
        WorkLock(handle, "", f"prepares the machine of {name}", tell).wait(fcntl.LOCK_SH)


def working_on(project: Project, run_id: str) -> Holder | None:
    """The process that starts or pulls the run `run_id` now; None if there is none."""
    path = project.state / "turns" / f"run-{run_id}.lock"
    if not path.exists():
        return None
    with _file(path) as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return _signed(handle)
    return None


@contextmanager
def shared_use(project: Project, name: str) -> Iterator[None]:
    """Hold a shared lock on the machine of the profile `name`: no `run` deletes it during the block."""
    with _opened(project, f"use-{name}") as handle:
        fcntl.flock(handle, fcntl.LOCK_SH)
        yield


@contextmanager
def exclusive_use(project: Project, name: str) -> Iterator[bool]:
    """Yield whether no other call uses the machine of the profile `name`. If so, other calls wait until the
    block ends.
    """
    with _opened(project, f"use-{name}") as handle:
        yield _taken(handle)


@contextmanager
def _opened(project: Project, name: str) -> Iterator[IO[str]]:
    project.ignore_runs()
    folder: Path = project.state / "turns"
    folder.mkdir(exist_ok=True)
    with _file(folder / f"{name}.lock") as handle:
        yield handle


@contextmanager
def _file(path: Path) -> Iterator[IO[str]]:
    """Open a lock file for reading and writing, without truncating it."""
    with open(path, "a+") as handle:
        yield handle


def _taken(handle: IO[str]) -> bool:
    """Take the lock if it is free; returns whether it was taken."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _soon(handle: IO[str], lock: int) -> bool:
    """Whether the lock was acquired without a noticeable wait."""
    limit = time.monotonic() + _GRACE_SECONDS
    while True:
        try:
            fcntl.flock(handle, lock | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() > limit:
                return False
        time.sleep(_POLL_SECONDS)


def _sign(handle: IO[str], holder: Holder | None) -> None:
    """Write the holder into the lock's file, unbuffered, because closing the file would write a buffer again.

    A full disk is ignored.
    """
    with suppress(OSError):
        os.ftruncate(handle.fileno(), 0)
        if holder:
            os.write(handle.fileno(), json.dumps(asdict(holder)).encode())


def _signed(handle: IO[str]) -> Holder | None:
    """The holder of the lock, if it can be read."""
    handle.seek(0)
    try:
        value = json.loads(handle.read(_MOST_BYTES))
        holder = Holder(int(value["pid"]), str(value["verb"]), float(value["since"]))
        return holder if holder.words else None
    except (ValueError, KeyError, TypeError, OverflowError, OSError, RecursionError):
        return None
