"""run: up, train and down in one call, for a scheduled job that may be started twice."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.errors import OrchError
from orchestrator.model import Progress, RunRecord
from orchestrator.model.outcomes import ExitReason
from orchestrator.model.progress import Output, as_progress, notice
from orchestrator.profile import load
from orchestrator.profile.overrides import secrets_of
from orchestrator.session.project import Project, check_run_id

if TYPE_CHECKING:
    from orchestrator.training.managed_run import ManagedRun
    from orchestrator.training.options import RunOptions


def run(
    profile: str | Path,
    *,
    run_id: str,
    overrides: Sequence[str] = (),
    folder: Path | str | None = None,
    local_parity: bool = False,
    resume_proof: bool = False,
    retry_failed: bool = True,
    parallel: bool = False,
    detach: bool = False,
    output: Output | None = None,
    progress: Progress | Callable[[str], None] | None = None,
) -> RunRecord:
    """Run up, train and down. A call with the same `run_id` continues from the record, run or machine that
    exists.

    A success is returned at once if command, code, data and lock are those of its record; otherwise
    UsageError names the difference. A failed or lost run is tried again as a new attempt with the current
    project; without `retry_failed`, its failure is raised and nothing is rented. If two calls use one id, the
    second waits and gets the same result. `parallel`: see `train`.

    `detach` returns once the run has started (exit reason "running"); the machine stays. Call `run` again
    with the same `run_id` to finish: with `detach` it returns at once while the run is active, and finishes
    it once it has ended. If `retry` allows another attempt, that call starts it.

    The machine is deleted at the end, unless results on it could not be downloaded, another call uses it, or
    it existed before (`up`): `progress` or the error's `exists` then report it with its price. Raises what
    `up` and `train` raise, and CleanupUnproven; NotAccepted after the machine was deleted.
    """
    tell = as_progress(progress)
    from orchestrator.training.options import RunOptions

    wish = RunOptions(
        local_parity=local_parity,
        resume_proof=resume_proof,
        detach=detach,
        retry_failed=retry_failed,
        parallel=parallel,
        overrides=overrides,
        verb="run",
        path=str(profile),
        run_id=check_run_id(run_id),
    )
    return run_as(wish, folder, output, tell)


def run_as(asked: RunOptions, folder: Path | str | None, output: Output | None, tell: Progress) -> RunRecord:
    """Like `run`, with its options as one value."""
    project, name = Project.at(folder), asked.run_id
    project.require_runs(name)
    wanted = load(Path(asked.path), overrides=tuple(asked.overrides), files=True)
    from orchestrator.runs import attempts
    from orchestrator.training.elsewhere import bring_record

    project.share(wanted.ledger)
    bring_record(project, wanted, name, tell)
    seen = attempts.latest_attempt(project.run(name))
    wish = replace(asked, seen=seen, overrides=secrets_of(asked.overrides), asked=asked)
    from orchestrator.runs.endings import reported
    from orchestrator.training.managed_run import ManagedRun

    with reported(project, wanted, name, tell) as ended:
        return ended(run_managed(ManagedRun(project, wanted, name, asked.overrides, wish, tell), output))


def run_managed(call: ManagedRun, output: Output | None) -> RunRecord:
    """Train, end the machine, then pass the run through the gate of its profile."""
    from orchestrator.promotion.gate import judge
    from orchestrator.training import managed_run

    managed_run.require(call)
    record = managed_run.run_to_its_end(call, output)
    if record.exit["reason"] == ExitReason.RUNNING:
        notice(call.tell, managed_run.machine_stays(call))
        return record
    try:
        left = managed_run.end_machine(call)
    except OrchError as error:
        error.record = record  # type: ignore[attr-defined]
        raise
    if left:
        notice(call.tell, str(left))
    if call.wish.same_as is not None:
        return record  # a repeated run has no new model
    return judge(call.project, call.profile, record, "run", call.tell)
