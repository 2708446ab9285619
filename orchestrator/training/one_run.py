"""One run on a lease's machine, from the first byte sent to its record here. Shared by `train` and `run`."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

from orchestrator import jobs
from orchestrator.errors import (
    DeadlineReached,
    DiskFull,
    HostError,
    LocalError,
    OrchError,
    Preempted,
    RunFailed,
    RunLost,
    UsageError,
)
from orchestrator.leases.remains import naming
from orchestrator.leases.settle import require_gone, settle, settle_on_exit
from orchestrator.ledger import Lease
from orchestrator.model import Progress, RunRecord
from orchestrator.model.plain import moment
from orchestrator.model.progress import Output
from orchestrator.profile import Profile, load
from orchestrator.profile.overrides import without_secrets
from orchestrator.runs import attempts, collect, follow, record_file, space
from orchestrator.runs.lint_check import check_project, report_once
from orchestrator.runs.metrics import is_finished
from orchestrator.runs.outcome import raise_for_outcome
from orchestrator.runs.parameters import report_unused
from orchestrator.runs.program import require_program
from orchestrator.runs.spec import require_given
from orchestrator.session.interrupts import Interrupts
from orchestrator.session.project import Project
from orchestrator.session.reach import ending_of_machine
from orchestrator.session.session import Session, open_session
from orchestrator.session.work_locks import WorkLock, after_up, run_lock
from orchestrator.training import elsewhere
from orchestrator.training.checkers import checkers_ahead
from orchestrator.training.download import download_run
from orchestrator.training.options import RunOptions
from orchestrator.training.start import begin, prepared, running


def run_on_all(
    project: Project,
    lease: Lease,
    profile: Profile,
    name: str,
    options: RunOptions,
    interrupts: Interrupts,
    output: Output | None,
    tell: Progress,
) -> RunRecord:
    """Like `one_run`, on all machines of the profile: see Gang.train."""
    if profile.resources.nodes == 1:
        return one_run(project, lease, profile, name, options, interrupts, output, tell)
    from orchestrator.training.gang import Gang

    return Gang(project, lease, profile, name, options, tell).train(interrupts, output)


def one_run(
    project: Project,
    lease: Lease,
    profile: Profile,
    name: str,
    options: RunOptions,
    interrupts: Interrupts,
    output: Output | None,
    tell: Progress,
) -> RunRecord:
    """Like `train`, after its arguments were resolved."""
    anew = options.anew(profile)
    interrupts.begun = _pending(project, lease, name)  # another call may have started it
    if far := elsewhere.followed(project, lease, name, options.verb, output, tell):
        return far
    with run_lock(project, name, options.verb, tell) as lock:
        pending = interrupts.begun = _pending(project, lease, name)
        if not pending:
            done = recorded(project, profile, name, options, tell)
            if done:
                return done
        require_given(lease, options.overrides, options.command(profile))
        after_up(project, profile.name, tell)
        if not pending:
            load(profile.path, overrides=(*lease.profile["overrides"], *options.overrides), files=True)
            require_program(profile)
            _require_space(project, lease, profile, name, options)
            report_once(check_project(profile, strict=options.strict), profile, project.state, tell)
            if options.verb == "train" and options.overrides:  # `up` reports those of the profile
                report_unused(profile, tell, *options.overrides)
        with opened(project, lease, name, profile, tell, again=options.command(profile, name)) as session:
            draft = None
            if not pending:
                draft = prepared(session, name, options)
            if options.node:
                draft = options.node.wait(session, name, draft)
            interrupts.begun = True
            if not begin(session, name, draft, options):
                return raise_for_outcome(
                    _lost(session, name), lease.profile["path"], again=anew, up=lease.up_command
                )
            lock.release()
            if options.detach and not (pending and _has_ended(session, name)):
                return running(session, name)
            done = finish(session, name, output, lock)
            done = raise_for_outcome(done, lease.profile["path"], again=anew, up=lease.up_command)
            return replace(done, started=not pending)


def _require_space(project: Project, lease: Lease, profile: Profile, name: str, options: RunOptions) -> None:
    """Raise LocalError if the disk has no room. A detached run needs room for records only: its results can
    wait on the machine.
    """
    exists = f"Nothing was sent. The machine of {lease.id} is still running, at ${lease.price:.2f}/h."
    again = options.command(profile, name)
    if options.detach:
        space.require_records(project, exists, again)
    else:
        space.require_results(project, profile, exists, again)


def recorded(
    project: Project, profile: Profile, run_id: str, options: RunOptions, tell: Progress
) -> RunRecord | None:
    """Return the record that answers the call, if no attempt has to be started; this is reported. None
    otherwise.

    Raises what `attempts.answering_record` does.
    """
    try:
        done = attempts.answering_record(
            project,
            profile,
            run_id,
            retry=options.retry_failed,
            seen=options.seen,
            command=partial(options.command, profile),
        )
    except RunFailed as error:
        error.exists = f"This is the result of an earlier call; nothing was started now. {error.exists}"
        error.next_command = f"orch logs {run_id}    # to retry: the same command with --retry-failed"
        raise
    if done is None:
        return None
    tell.say(
        f"{run_id} ended{when(done)} and is here, and nothing has changed since. Nothing was started or "
        "rented."
    )
    return replace(done, started=False)


def when(record: RunRecord) -> str:
    """Return " on <date>", or "" if the record has no date."""
    ended = record.attempts[-1].get("ended_at") if record.attempts else None
    return f" on {moment(ended)}" if ended else ""


_OF_THE_MACHINE = (
    "cloud", "region", "zone", "image", "resources", "max_duration", "idle_duration", "max_price",
)  # fmt: skip


def other_machine(leased: Profile, wanted: Profile) -> list[str]:
    """Return the names of the profile's machine fields in which two profiles differ."""
    return [name for name in _OF_THE_MACHINE if getattr(leased, name) != getattr(wanted, name)]


def refuse_another_machine(leased: Profile, wanted: Profile, up: str, overrides: Sequence[str]) -> None:
    """Refuse overrides that describe the machine: it exists already, so they would have no effect.

    `up`: the command that leased it; `overrides`: those that were given now.
    """
    changed = other_machine(leased, wanted)
    if changed:
        flags = [f"--set {shlex.quote(each)}" for each in without_secrets(overrides)]
        raise UsageError(
            f"`train --set` cannot change {', '.join(changed)}: the machine exists already, as `up` "
            "created it.",
            exists="The machine is still running; `orch status` shows it.",
            next_command=" ".join(("orch down &&", up, *flags)),
        )


@contextmanager
def opened(
    project: Project, lease: Lease, run_id: str, profile: Profile, tell: Progress, *, again: str
) -> Iterator[Session]:
    """Open the lease's machine. If it is gone, its runs are settled and `run_id` is reported as lost.

    Refusals of this computer's disk become a LocalError that names the machine. `again`: the command that
    continues after a failure.
    """
    ledger = project.ledger(lease.id)
    with (
        naming(ledger, again),
        settle_on_exit(project, ledger, run_id),
        open_session(project, ledger, profile, progress=tell) as session,
    ):
        try:
            yield session
        except OSError as error:
            raise _refused_here(session, lease, run_id, error, again) from error
        except (HostError, RunLost, Preempted, DeadlineReached):  # the machine may be gone
            raise
        except OrchError as error:
            error.exists = error.exists or _still_running(session)
            if isinstance(error, DiskFull) and not error.next_command:
                error.next_command = (
                    f"raise resources.disk in {shlex.quote(str(profile.path))}, then: "
                    f"orch down && {lease.up_command} && {again}"
                )
            raise


def _still_running(session: Session) -> str:
    return f"{session.machine.id} is still running, at ${session.machine.price:.2f}/h."


def _refused_here(session: Session, lease: Lease, run_id: str, error: OSError, again: str) -> LocalError:
    refused, once = space.refusal_of(error, session.project)
    began = any(run.run_id == run_id for run in session.project.ledger(lease.id).lease().uncollected)
    machine = _still_running(session)
    if not began:
        return LocalError(
            f"Error on this computer: {refused}. Existing files are unchanged; {run_id} was not started.",
            exists=machine,
            next_command=f"{again}    # {once}",
        )
    printed = session.project.run(run_id) / collect.LOG
    return LocalError(
        f"Error on this computer: {refused}. Existing files are unchanged. The run's output so far is in "
        f"{printed}.",
        exists=f"The run {run_id} is on its machine, with its results. {machine}",
        next_command=f"orch pull {run_id}    # {once}; while it still runs: orch logs -f {run_id}",
    )


def _pending(project: Project, lease: Lease, run_id: str) -> bool:
    """Whether the run was started and its results are on the machine only.

    A run that only the machine has a record of does not count, because its inputs are unknown.
    """
    uncollected = project.ledger(lease.id).lease().uncollected
    return any(run.run_id == run_id and not run.found for run in uncollected)


def _has_ended(session: Session, run_id: str) -> bool:
    """Whether the run has ended or was lost, or its machine is gone."""
    state = follow.reconnecting(session, lambda: jobs.state(session.host, session.agent, run_id))
    return state is None or state.exit is not None


def finish(session: Session, run_id: str, output: Output | None, lock: WorkLock) -> RunRecord:
    """Follow the run, possibly beside other calls; then download it, unless another call already did."""
    follow.say_if_queued(session, run_id)
    with checkers_ahead(session, run_id) as ready:
        exit_ = follow.follow_to_end(session, run_id, output)
        lock.take()
        elsewhere.bring_record(session.project, session.profile, run_id, session.progress)
        if exit_ is None:
            return _lost(session, run_id)
        here = record_file.read(session.project.run(run_id))
        if here is not None and session.ledger.lease().runs[run_id].collected:
            return is_finished(here)
        home = follow.reconnecting(session, lambda: download_run(session, run_id, exit_, ready=ready))
    return _lost(session, run_id) if home is None else home


def _lost(session: Session, run_id: str) -> RunRecord:
    """Record what is known of a run that was lost with its machine."""
    require_gone(session.provider, session.ledger.lease())
    ending = ending_of_machine(session.provider, session.ledger.lease())
    settle(session.project, session.ledger, ending)
    record = record_file.read(session.project.run(run_id))  # written now, or when it was collected
    if record is None:
        raise RunLost(f"The machine of {run_id} is gone, and its record here was removed.")
    return record
