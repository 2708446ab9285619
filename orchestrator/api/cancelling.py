"""cancel: stop an active run, or report how and when it had ended."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from orchestrator.errors import Busy, RunFailed, UsageError
from orchestrator.ledger import Lease, LeasedRun
from orchestrator.model import CancelReport, Progress, RunState
from orchestrator.model.outcomes import ExitReason, failure_of
from orchestrator.model.progress import as_progress
from orchestrator.runs.find_run import (
    known_ids,
    known_run,
    no_such_run,
    open_with_runs,
    profile_of,
    with_runs_there,
)
from orchestrator.session.project import Project
from orchestrator.session.work_locks import working_on

_NOTHING = "Nothing was cancelled."


def cancel(
    run_id: str | None = None,
    *,
    lease: str | None = None,
    folder: Path | str | None = None,
    progress: Progress | Callable[[str], None] | None = None,
) -> CancelReport:
    """Stop a run on its machine; without `run_id` the latest active one. Its files can still be pulled.

    A run that had already ended is a success; the report says so. Raises RunLost or a related error for a run
    that was lost with its machine, UsageError for an unknown id, with similar ids, and Busy for a run that is
    still starting.
    """
    project = Project.at(folder)
    if run_id and lease is None and not any(run_id in each.runs for each in open_with_runs(project)):
        return _without_machine(project, run_id)
    held, run = known_run(project, run_id or _going_on(project, lease), lease)
    if run.lost is not None:
        raise _lost(run)
    # For a lost run only the supervisor is known to be gone; its job may still be running.
    watched = run.exit_reason != ExitReason.LOST
    if run.collected and watched and (report := _recorded(project, run.run_id)):
        return report
    tell = as_progress(progress)
    report = _on_its_machine(project, held, run.run_id, tell)
    if report.cancelled and (others := project.gang_of(held)):
        from orchestrator.training.gang import cancel_on

        cancel_on(project, others, run.run_id, tell)
    return report


def _going_on(project: Project, lease: str | None) -> str | None:
    """The latest run whose end was not observed, or None."""
    held = with_runs_there(project, project.lease(lease))
    unseen = [run.run_id for run in held.runs.values() if run.exit_reason is None and run.lost is None]
    return unseen[-1] if unseen else None


def _on_its_machine(project: Project, lease: Lease, run_id: str, tell: Progress) -> CancelReport:
    profile = profile_of(lease, ())
    from orchestrator import jobs
    from orchestrator.runs.follow import note_end
    from orchestrator.training.one_run import opened

    try:
        with opened(project, lease, run_id, profile, tell, again=f"orch cancel {run_id}") as session:
            before = jobs.state(session.host, session.agent, run_id)
            if before.state == "absent":
                raise _not_begun(project, run_id)
            goes_on = before.state != "ended"
            after = jobs.cancel(session.host, session.agent, run_id) if goes_on else before
            note_end(session, run_id, after.exit)
    except RunFailed as error:  # the machine turned out to be gone
        error.exists = f"{_NOTHING} {error.exists or ''}".rstrip()
        raise
    return _report(run_id, after, goes_on)


def _report(run_id: str, state: RunState, went_on: bool) -> CancelReport:
    """Build the report. The run may have ended by itself just before it was cancelled."""
    ended = state.exit
    cancelled = went_on and (ended is None or ended.reason in (ExitReason.CANCELLED, ExitReason.LOST))
    if ended is None:
        return CancelReport(run_id, cancelled, ExitReason.CANCELLED)
    return CancelReport(
        run_id, cancelled, ended.reason, ended.code, ended.signal, ended.detail, ended_at=state.ended_at
    )


def _without_machine(project: Project, run_id: str) -> CancelReport:
    """The report on a run that no open lease knows, from its record."""
    report = _recorded(project, run_id)
    if report:
        return report
    if working_on(project, run_id):
        raise _not_begun(project, run_id)
    raise no_such_run(f"There is no run {run_id} in {project.root}. {_NOTHING}", run_id, known_ids(project))


def _recorded(project: Project, run_id: str) -> CancelReport | None:
    from orchestrator.runs import record_file

    record = record_file.read(project.run(run_id))
    if record is None:
        return None
    ended = record.exit
    return CancelReport(
        run_id,
        False,
        str(ended.get("reason")),
        ended.get("code"),
        ended.get("signal"),
        str(ended.get("detail") or ""),
        ended_at=record.attempts[-1].get("ended_at") if record.attempts else None,
        fetched=True,
    )


def _not_begun(project: Project, run_id: str) -> UsageError:
    holder = working_on(project, run_id)
    if holder:
        return Busy(
            f"{run_id} is being started by {holder.words}: no job runs on the machine yet. {_NOTHING}",
            exists="That call goes on.",
            next_command=f"kill -INT {holder.pid}    # stops it; or, once it trains: orch cancel {run_id}",
        )
    return UsageError(
        f"The start of {run_id} was interrupted: no job of it runs on the machine. {_NOTHING}",
        next_command=f"orch train --run-id {run_id}    # starts it; or: orch down --discard",
    )


def _lost(run: LeasedRun) -> RunFailed:
    return failure_of(run.exit_reason or ExitReason.LOST)(
        f"{run.run_id} is lost with its machine: {run.lost} {_NOTHING}",
        exists="What is known of it is in runs/.",
        next_command="orch down",
    )
