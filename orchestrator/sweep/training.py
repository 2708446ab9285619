"""Train one point of a sweep on one of its machines."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from orchestrator.errors import OrchError, RunFailed
from orchestrator.leases.consent import Approve
from orchestrator.ledger import Lease
from orchestrator.model import Progress, RunRecord
from orchestrator.model.files import last_bytes
from orchestrator.model.outcomes import ExitReason
from orchestrator.model.progress import Labelled, notice
from orchestrator.model.records import finite
from orchestrator.model.sweeps import Point, PointError, PointState
from orchestrator.profile.overrides import secrets_of
from orchestrator.runs import attempts, collect
from orchestrator.runs.endings import reported
from orchestrator.runs.find_run import profile_of
from orchestrator.runs.pace import Printed
from orchestrator.session.interrupts import Interrupts
from orchestrator.session.project import Project
from orchestrator.session.reach import MachineGone
from orchestrator.session.work_locks import shared_use
from orchestrator.sweep.machines import Machines, is_of_machine
from orchestrator.sweep.points import overrides_of
from orchestrator.training.on_lease import train_with_retries
from orchestrator.training.options import RunOptions

_TAIL = 1 << 16
"""Bytes at the end of a run's output in which its last metrics are searched."""


@dataclass(frozen=True)
class Done:
    """The result of a point on machine `number`.

    `error`: why it did not end there; then the point is unchanged. `elsewhere`: another machine may train it.
    """

    number: int
    point: Point
    error: OrchError | None = None
    elsewhere: bool = False


class Trainer:
    """Trains points. Several threads may call it, each for another machine.

    `words`: the command that repeats the sweep. `started`: called when the machine of a point is ready.
    `queued`: runs are put into the queue of their machine; only those that have ended already are downloaded.
    """

    def __init__(
        self,
        machines: Machines,
        tell: Progress,
        words: str,
        approve: Approve | None,
        started: Callable[[Point], None],
        queued: bool = False,
    ) -> None:
        self._queued = queued
        self._machines, self._tell, self._words = machines, tell, words
        self._approve, self._started = approve, started
        self._ready: set[int] = set()

    def train(self, number: int, point: Point) -> Done:
        """Train a point on machine `number`, which is created if it does not exist.

        Raises no OrchError. An active run of the point there is followed to its end, or left there if runs
        are queued.
        """
        was_ready = number in self._ready
        self._ready.discard(number)
        try:
            done = Done(number, self._trained(number, point, was_ready))
        except MachineGone as gone:
            return self.train(number, point) if was_ready else self._refused(number, point, gone)
        except RunFailed as failed:
            done = Done(number, _failed(self._machines.project, point, failed))
        except OrchError as error:
            return self._refused(number, point, error)
        if done.point.reason is None or not ExitReason(done.point.reason).interrupted:
            self._ready.add(number)
        return done

    def _refused(self, number: int, point: Point, error: OrchError) -> Done:
        elsewhere = is_of_machine(error)
        if elsewhere:
            name = self._machines.name(number)
            notice(self._tell, f"{name} gets no more runs of this sweep: {error.message}")
        return Done(number, point, error, elsewhere)

    def _trained(self, number: int, point: Point, was_ready: bool) -> Point:
        """Return the point with the facts of its record. `was_ready`: the machine trained another point just
        before.
        """
        machines = self._machines
        tell = Labelled(machines.name(number), self._tell)
        with shared_use(machines.project, machines.name(number)):
            lease = machines.lease(number) if was_ready else None
            lease = lease or machines.ready(number, self._approve, tell)
            now = replace(point, state=PointState.RUNNING, lease=lease.id, error=None)
            self._started(now)
            record = self._record(lease, now, tell)
            if record.exit["reason"] != ExitReason.RUNNING:
                return ended(machines.project, now, record)
            waits = machines.project.ledger(lease.id).lease().runs[point.run_id].waits
            return replace(now, state=PointState.QUEUED if waits else PointState.RUNNING)

    def _record(self, lease: Lease, point: Point, tell: Progress) -> RunRecord:
        project, machines = self._machines.project, self._machines
        overrides = (*secrets_of(machines.overrides), *overrides_of(point.params))
        profile = profile_of(lease, overrides)
        seen = attempts.latest_attempt(project.run(point.run_id))
        wish = RunOptions(retry_failed=True, seen=seen, overrides=overrides, words=self._words)
        wish = replace(wish, detach=self._queued, queued=self._queued)
        job = (project, lease, profile, point.run_id, wish, Interrupts(), None, tell, self._approve)
        with reported(project, profile, point.run_id, tell) as told:
            return told(train_with_retries(*job))


def ended(project: Project, point: Point, record: RunRecord) -> Point:
    """Return the point with the facts of its record."""
    tried = record.attempts
    begun, over = (tried[0].get("started_at"), tried[-1].get("ended_at")) if tried else (None, None)
    known = [usd for each in tried if (usd := each.get("usd")) is not None]
    return replace(
        point,
        state=PointState.ENDED,
        reason=str(record.exit["reason"]),
        metrics=finite(record.metrics) or printed_metrics(project, point.run_id),
        seconds=round(over - begun, 3) if begun and over else None,
        usd=round(sum(known), 6) if known else None,
        attempts=len(tried),
        error=None,
    )


def printed_metrics(project: Project, run_id: str) -> dict[str, float]:
    """Return the metrics that a run printed last, by the part of its output that is on this computer."""
    printed = Printed()
    printed.read(last_bytes(project.run(run_id) / collect.LOG, _TAIL))
    return finite(printed.metrics)


def _failed(project: Project, point: Point, failed: RunFailed) -> Point:
    """Return the point with the failure of its run."""
    what = PointError(failed.kind, failed.message, failed.exit_code, failed.next_command)
    if isinstance(failed.record, RunRecord):
        return replace(ended(project, point, failed.record), error=what)
    return replace(point, state=PointState.ENDED, reason=ExitReason.LOST, error=what)
