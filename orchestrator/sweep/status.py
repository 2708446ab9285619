"""The current status of a sweep, from its file, the records of its runs and the ledgers. No machine is
contacted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from orchestrator.ledger import Lease, LeasedRun
from orchestrator.model.sweeps import Point, PointState, Sweep
from orchestrator.runs import record_file
from orchestrator.session.project import Project
from orchestrator.session.work_locks import working_on
from orchestrator.sweep import book
from orchestrator.sweep.machines import spent
from orchestrator.sweep.training import ended, printed_metrics


def status_of(project: Project, sweep: str | None) -> tuple[Sweep, bool]:
    """Return the sweep with this id, or the last one, and whether a process is running it.

    Raises UsageError.
    """
    one = book.named(project, sweep)
    active = {run.run_id: (lease, run) for lease in project.open_leases() for run in lease.uncollected}
    points = tuple(_now(project, point, active) for point in one.points)
    usd, hour = spent(project, one.sweep)
    now = replace(one, points=points, usd=usd, usd_hour=hour)
    return now, working_on(project, one.sweep) is not None


def _now(project: Project, point: Point, active: Mapping[str, tuple[Lease, LeasedRun]]) -> Point:
    if there := active.get(point.run_id):
        lease, run = there
        return replace(
            point,
            state=_state(run),
            reason=run.exit_reason,
            lease=lease.id,
            metrics=printed_metrics(project, point.run_id),
        )
    record = record_file.read(project.run(point.run_id))
    if record is not None:
        return replace(ended(project, point, record), error=point.error if not record.succeeded else None)
    gone = point.state in (PointState.RUNNING, PointState.QUEUED)
    return replace(point, state=PointState.WAITING) if gone else point


def _state(run: LeasedRun) -> PointState:
    """Return the state of a run that was not downloaded yet, as it was seen last."""
    if run.exit_reason is not None:
        return PointState.ENDED
    return PointState.QUEUED if run.waits else PointState.RUNNING
