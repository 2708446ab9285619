"""train, attach: one run on a lease's machine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.model import Progress, RunRecord
from orchestrator.model.progress import Output, as_progress
from orchestrator.runs.find_run import known_run, profile_of
from orchestrator.session.interrupts import Interrupts
from orchestrator.session.project import Project, check_run_id, new_run_id
from orchestrator.session.work_locks import run_lock, shared_use

if TYPE_CHECKING:
    from orchestrator.leases.consent import Approve
    from orchestrator.ledger import Lease
    from orchestrator.profile import Profile
    from orchestrator.training.options import RunOptions


def train(
    *,
    run_id: str | None = None,
    lease: str | None = None,
    folder: Path | str | None = None,
    local_parity: bool = False,
    resume_proof: bool = False,
    detach: bool = False,
    retry_failed: bool = False,
    parallel: bool = False,
    new_data: bool = False,
    overrides: Sequence[str] = (),
    strict: bool = False,
    output: Output | None = None,
    approve: Approve | None = None,
    progress: Progress | Callable[[str], None] | None = None,
) -> RunRecord:
    """Send, verify, run, follow, pull and check one run of the lease's profile; returns its record.

    `local_parity` first runs the first steps here and on the machine, and stops if they differ.
    `resume_proof` first kills the command here after a checkpoint, resumes it, and stops if the result is not
    that of a run without interruption. `parallel` allows several runs on the machine. `new_data` accepts the
    objects of buckets as they are now. `detach` returns once the run has started (exit reason "running");
    `attach` or `pull` fetches its results. With `strict`, lint errors are raised.

    With a `run_id` that was used before, an active run is followed; a success is returned if command, code,
    data and lock are those of its record, else UsageError is raised; a failure is raised, or with
    `retry_failed` tried anew. Of two calls the second waits. If the profile's `retry` allows it, an
    interrupted or failed attempt is followed by another, if necessary on another machine; `approve` is asked,
    as by `up`, if that costs more. Raises UsageError, LintRefused, StackMismatch, SyncError, ParityMismatch,
    ResumeRefused, RunFailed (the record is in `runs/<id>/`), HostError (the run continues), NotAccepted.
    """
    tell = as_progress(progress)
    from orchestrator.training.options import RunOptions

    options = (local_parity, resume_proof, detach, strict, retry_failed, parallel)
    wish = RunOptions(*options, overrides=overrides, new_data=new_data)
    wish = replace(wish, run_id=run_id or "", lease=lease or "")
    return train_as(wish, folder, output, approve, tell)


def train_as(
    wish: RunOptions,
    folder: Path | str | None,
    output: Output | None,
    approve: Approve | None,
    tell: Progress,
) -> RunRecord:
    """Like `train`, with its options as one value."""
    with Interrupts(wish.command) as interrupts:
        project = Project.at(folder)
        held = project.lease(wish.lease or None)
        profile = profile_of(held, wish.overrides)
        from orchestrator.promotion.gate import judge
        from orchestrator.runs import attempts
        from orchestrator.runs.endings import reported
        from orchestrator.training.elsewhere import bring_record
        from orchestrator.training.on_lease import train_with_retries
        from orchestrator.training.one_run import refuse_another_machine

        refuse_another_machine(profile_of(held, ()), profile, held.up_command, wish.overrides)
        name = check_run_id(wish.run_id) if wish.run_id else new_run_id(profile.name)
        interrupts.run_id, interrupts.price = name, held.price
        project.require_runs(name)
        bring_record(project, profile, name, tell)
        seen = attempts.latest_attempt(project.run(name))
        wish = replace(wish, seen=seen, new_id=not wish.run_id)
        job = (project, held, profile, name, wish, interrupts, output, tell, approve)
        with reported(project, profile, name, tell) as ended:
            with shared_use(project, profile.name):
                record = train_with_retries(*job)
            return ended(judge(project, profile, record, "train", tell))


def train_again(
    project: Project,
    held: Lease,
    profile: Profile,
    name: str,
    wish: RunOptions,
    output: Output | None,
    tell: Progress,
) -> RunRecord:
    """Train `profile` on the machine of `held`; the lease keeps its own profile. See `rerun`."""
    from orchestrator.training.on_lease import train_with_retries

    with Interrupts(partial(wish.command, profile)) as interrupts, shared_use(project, profile.name):
        return train_with_retries(project, held, profile, name, wish, interrupts, output, tell, None)


def attach(
    run_id: str | None = None,
    *,
    lease: str | None = None,
    folder: Path | str | None = None,
    output: Output | None = None,
    progress: Progress | Callable[[str], None] | None = None,
) -> RunRecord:
    """Follow a run that was started before until it ends, and download its results. Raises what `train`
    raises.
    """
    project = Project.at(folder)
    held, run = known_run(project, run_id, lease)
    profile = profile_of(held, ())
    from orchestrator.promotion.gate import judge
    from orchestrator.runs.endings import reported
    from orchestrator.runs.outcome import raise_for_outcome
    from orchestrator.training.one_run import finish, opened

    tell = as_progress(progress)
    with reported(project, profile, run.run_id, tell, began=True) as ended:
        if project.gang_of(held) and not run.collected:
            from orchestrator.training.one_run import run_on_all
            from orchestrator.training.options import RunOptions

            again = RunOptions(parallel=True, run_id=run.run_id, words=f"orch logs -f {run.run_id}")
            job = (project, held, profile, run.run_id, again, Interrupts(), output, tell)
            with shared_use(project, profile.name):
                done = run_on_all(*job)
            return ended(replace(judge(project, profile, done, "attach", tell), started=False))
        with (
            shared_use(project, profile.name),
            run_lock(project, run.run_id, "attach", tell) as lock,
            opened(project, held, run.run_id, profile, tell, again=f"orch logs -f {run.run_id}") as session,
        ):
            lock.release()
            done = raise_for_outcome(
                finish(session, run.run_id, output, lock), held.profile["path"], up=held.up_command
            )
        return ended(replace(judge(project, profile, done, "attach", tell), started=False))
