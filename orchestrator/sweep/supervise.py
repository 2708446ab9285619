"""Run a sweep from its first point to its last. Repeatable: points with a successful record are not trained
again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import TYPE_CHECKING

from orchestrator.errors import Interrupted, OrchError, UsageError
from orchestrator.leases.consent import Approve
from orchestrator.model import Progress
from orchestrator.model.counted import counted
from orchestrator.model.progress import notice
from orchestrator.model.sweeps import Point, PointState, Sweep
from orchestrator.runs import record_file
from orchestrator.session.project import Project
from orchestrator.session.work_locks import run_lock, sweeping
from orchestrator.sweep import book
from orchestrator.sweep.machines import Machines, leases_of, spent
from orchestrator.sweep.queueing import Queueing
from orchestrator.sweep.remote import Remote
from orchestrator.sweep.search import Search
from orchestrator.sweep.training import Done, Trainer, ended

if TYPE_CHECKING:
    from orchestrator.sweep.schedule import Schedule

_WRITE_EVERY_S = 1.0


@dataclass(frozen=True)
class SweepSettings:
    """The settings of a sweep. `words`: the command that repeats it. `budget`: US dollars, after which no
    further point is started. `search`: creates the search from the existing points. `scheduler`: the address
    of a Dask cluster, "" for this process. `approve`: called for a machine above the approved price. `told`:
    called with the sweep after each point that has ended. `detach`: the points are only queued on the
    machines, and those that have ended already are downloaded.
    """

    project: Project
    machines: Machines
    tell: Progress
    words: str
    budget: float | None = None
    search: Callable[[Sequence[Point]], Search] | None = None
    scheduler: str = ""
    approve: Approve | None = None
    told: Callable[[Sweep, Point], None] = lambda _sweep, _point: None
    detach: bool = False


def require_dask() -> None:
    """Raise UsageError if the extra `sweep` is not installed."""
    if find_spec("distributed") is None:
        raise UsageError(
            "`orch sweep` needs Dask's package distributed, which is not installed. Nothing was started.",
            next_command="pip install 'orch-train[sweep]'",
        )


def with_known_points(project: Project, sweep: Sweep) -> Sweep:
    """Return the sweep with the points whose runs have a successful record here, and with those that an
    earlier call chose.
    """
    kept = book.read(project, sweep.sweep) if sweep.search else None
    points = []
    for point in kept.points if kept else sweep.points:
        record = record_file.read(project.run(point.run_id))
        points.append(ended(project, point, record) if record is not None and record.succeeded else point)
    return replace(sweep, points=tuple(points), drawn=kept.drawn if kept else sweep.drawn)


def to_the_end(course: SweepSettings, sweep: Sweep) -> Sweep:
    """Train the points that have no successful record, delete the machines, and return the sweep. With
    `detach`, return when they are in the queues of their machines; those without a run are deleted.

    Raises the error that stopped the sweep, after the machines are deleted; errors of single points and
    machines are not raised. Raises Interrupted, which names what is still active.
    """
    with (
        sweeping(course.project, sweep.name, course.tell),
        run_lock(course.project, sweep.sweep, "sweep", course.tell),
    ):
        known = with_known_points(course.project, sweep)
        began = replace(known, began_at=time.time(), detached=course.detach)
        one = _Sweeping(course, began)
        try:
            one.train()
            one.end()
        except KeyboardInterrupt:
            raise one.interrupted() from None
        if one.stopped is not None:
            raise _with_rest(one.stopped, one.sweep, course.words)
        return one.sweep


def _with_rest(error: OrchError, sweep: Sweep, words: str) -> OrchError:
    """Return the error, extended by the state of the sweep and the command that continues it."""
    ended_ = f"{sweep.count(PointState.ENDED)} of {sweep.total} points have ended."
    error.exists = f"{ended_} {' '.join(sweep.left) or 'No machine of the sweep is left.'}"
    again = f"{words}    # after that: it continues from here"
    if error.next_command:
        error.exists += f" To continue: {again}"
    else:
        error.next_command = again
    return error


def _stopped(point: Point) -> Point:
    return replace(point, state=PointState.STOPPED)


class _Sweeping:
    """A running sweep. `stopped`: the error after which no further point was started."""

    def __init__(self, course: SweepSettings, sweep: Sweep) -> None:
        self.sweep = sweep
        self.stopped: OrchError | None = None
        self._course = course
        by = (course.machines, course.tell, course.words, course.approve, self._put)
        self._trainer = Trainer(*by, queued=course.detach)
        self._search = course.search(sweep.points) if course.search else None
        self._lock = threading.Lock()
        self._written = 0.0

    def train(self) -> None:
        self._write()
        if self.sweep.succeeded:
            return
        bound = self._bound()
        others = {number for _, number in bound if number > self.sweep.machines}
        with self._scheduled(len(others)) as given:
            for done in given.each(self._points({point.run_id for point, _ in bound}), bound):
                self._take(done, given)

    def _scheduled(self, more: int) -> AbstractContextManager[Schedule | Queueing]:
        """Return the schedule, in this process or on the cluster, or what queues the points. `more`: further
        machines that have runs of the sweep.
        """
        course, machines = self._course, self.sweep.machines
        if course.detach:
            return nullcontext(Queueing(self._trainer.train, machines))
        from orchestrator.sweep.schedule import schedule_here, schedule_on

        if not course.scheduler:
            return schedule_here(machines, self._trainer.train, course.project.state, more=more)
        of, profile = course.machines, self.sweep.profile
        root = str(course.project.root)
        remote = Remote(root, profile, tuple(of.overrides), of.sweep, of.agreed, course.words)
        return schedule_on(course.scheduler, machines, remote)

    def _points(self, bound: set[str]) -> Iterator[Point]:
        """Yield the points to train, within the budget."""
        search, known_ = self._search, {point.run_id: point for point in self.sweep.points}
        for point in search.points() if search else known_.values():
            before = known_.get(point.run_id, point)
            if before.succeeded and search:
                search.tell(before)
            elif not before.succeeded and point.run_id not in bound:
                if self._is_used_up():
                    return
                yield point
        with self._lock:
            self.sweep = replace(self.sweep, drawn=True)

    def _is_used_up(self) -> bool:
        """Whether the machines have cost the budget. If so, report it."""
        budget = self._course.budget
        if budget is None or spent(self._course.project, self.sweep.sweep)[0] < budget:
            return False
        notice(self._course.tell, f"The budget of ${budget:.2f} is used up; no further run is started.")
        return True

    def end(self) -> None:
        """Delete the machines; with `detach`, those that have no run of the sweep."""
        course, going_on = self._course, self.sweep.going_on if self._course.detach else ()
        busy = {point.lease for point in going_on}
        left = [
            course.machines.end(number, course.tell)
            for number in course.machines.numbers()
            if (lease := course.machines.lease(number)) is None or lease.id not in busy
        ]
        kept = tuple(each for each in left if each)
        for each in kept:
            notice(course.tell, each)
        points = tuple(
            point if point.state is PointState.ENDED or point in going_on else _stopped(point)
            for point in self.sweep.points
        )
        ended_at = None if going_on else time.time()
        self.sweep = replace(self.sweep, points=points, left=kept, ended_at=ended_at)
        self._write()

    def interrupted(self) -> Interrupted:
        """Return Interrupted, with the runs and machines that stay active without this process."""
        self._write()
        machines = len(self._course.machines.numbers())
        words = f"{self._course.words}    # it continues from here"
        if not machines:
            return Interrupted("No machine of the sweep is left; nothing costs money.", words)
        running, hour = len(self.sweep.going_on), self.sweep.usd_hour or 0.0
        first = "orch cancel RUN for each, then " if running else ""
        exists = (
            f"{running} of {counted(self.sweep.total, 'run')} and {counted(machines, 'machine')} continue, "
            f"at ${hour:.2f}/h; no further run is started. To end them: {first}orch down --all"
        )
        return Interrupted(exists, words)

    def _put(self, point: Point) -> None:
        """Store the new state of a point. Also called by the threads of the machines."""
        with self._lock:
            self.sweep = self.sweep.with_point(point)

    def _take(self, done: Done, given: Schedule | Queueing) -> None:
        self._put(done.point)
        if self._search and done.error is None:
            self._search.tell(done.point)
        if done.error is not None:
            self.stopped = self.stopped or done.error
            given.stop()
            return
        self._write_sometimes()
        if done.point.state is PointState.ENDED:
            self._course.told(self.sweep, done.point)

    def _bound(self) -> list[tuple[Point, int]]:
        """Return the points whose runs were started and not downloaded yet, with their machines."""
        points = {point.run_id: point for point in self.sweep.points}
        return [(points[run_id], number) for run_id, number in self._course.machines.bound(points)]

    def _write_sometimes(self) -> None:
        if time.monotonic() - self._written > _WRITE_EVERY_S:
            self._write()

    def _write(self) -> None:
        project = self._course.project
        usd, hour = spent(project, self.sweep.sweep)
        with self._lock:
            self.sweep = replace(
                self.sweep, leases=leases_of(project, self.sweep.sweep), usd=usd, usd_hour=hour
            )
        book.write(self._course.project, self.sweep)
        self._written = time.monotonic()
