"""Prepare and start a run on the machine of a session: stack, data, parity, and then the job."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from orchestrator import jobs
from orchestrator.errors import NOTHING_RUNS, Busy, HostError, RunFailed, UsageError
from orchestrator.ledger import FIRST, Draft, LeasedRun, Retried, Try
from orchestrator.ledger.events import RunRefused, RunResumed, RunStarted, RunSuperseded
from orchestrator.model import (
    Exited,
    Job,
    RunRecord,
    RunState,
)
from orchestrator.model.beside import Beside
from orchestrator.model.counted import few
from orchestrator.model.outcomes import ExitReason
from orchestrator.model.plain import moment
from orchestrator.model.progress import doing, notice
from orchestrator.model.stores import Grant
from orchestrator.profile import Profile
from orchestrator.reads.advice import advice_there, of_profile
from orchestrator.runs import attempts, checkpoints, follow, inputs, other_runs
from orchestrator.runs.retries import retried_next
from orchestrator.runs.sbom import write_sbom
from orchestrator.session import trees as trees_
from orchestrator.session.buckets import NotAsPinned
from orchestrator.session.session import (
    Session,
    local_agent,
    tell_inherited,
)
from orchestrator.session.work_locks import starting
from orchestrator.training.download import measure_duration, run_record
from orchestrator.training.granted import upload_grant
from orchestrator.training.identity import identify, require_same
from orchestrator.training.nodes import first_run
from orchestrator.training.options import RunOptions
from orchestrator.training.proofs import compared, not_started, resumable, verified_stack

ATTEMPT = "ORCH_ATTEMPT"
"""The variable with the number of the attempt, from 1."""


def prepared(
    session: Session,
    run_id: str,
    options: RunOptions,
) -> Draft:
    """Verify stack, data and parity; returns the draft of the run's record with its job.

    From here on, files of an earlier attempt are in `runs/<id>/attempts/`. Raises Busy if another run is
    active on the machine, StackMismatch, SyncError, ParityMismatch, and UsageError where command, code, data
    or lock are not those of the run that is repeated.
    """
    other_runs.require_turn(session, run_id, options.parallel, options.queued, report_unpulled=True)
    timings: dict[str, float] = {}
    verifying = Beside(lambda: verified_stack(session, timings))
    session.watch_idleness()  # `up` may have been interrupted before this
    session.confine()
    tell_inherited(session)
    local = local_agent(session.project) if options.local_parity or options.resume_proof else None
    if local:
        trees_.check_targets(session.profile)
    elif found := of_profile(session.profile):
        notice(session.progress, f"Note: {advice_there(found, session.profile.path)}")
    with measure_duration(timings, "sync_s"), doing(session.progress, "Comparing packages, code and data"):
        trees = _sent(session, options, verifying.result, proved=local is not None)
    timings["sync_s"] = round(timings["sync_s"] - verifying.waited, 3)
    installed, stack = verifying.result()
    if options.node:
        options.node.note_fingerprint(installed.fingerprint)
    require_same(options.same_as, inputs.inputs_sent(session.profile, trees, session.lock()))
    now, attempt = _attempt(session, run_id, trees, options)
    code, request = identify(
        session, run_id, trees.code, options.overrides, options.local_parity, options.same_as
    )
    write_sbom(session.project.run(run_id), session.profile.name, session.lock(), installed.fingerprint)
    draft = Draft(
        stack,
        trees.data,
        None,
        timings,
        attempt,
        now.command,
        code,
        session.agent,
        _job(session.profile, run_id, installed.python, trees),
        store=session.profile.store,
        request=request,
    )
    if local and options.local_parity:
        draft = compared(session, local, trees, run_id, installed.python, draft, options)
    return resumable(session, local, run_id, draft, timings) if local and options.resume_proof else draft


def _sent(
    session: Session, options: RunOptions, verify_stack: Callable[[], object], *, proved: bool
) -> trees_.Trees:
    """Send code and data to the machine; if `proved`, also download samples of buckets."""
    try:
        trees = trees_.send(session, verify_stack, new_data=options.new_data)
        if proved:
            trees_.mirror_samples(session)
    except NotAsPinned as refused:
        accepts = options.command(session.profile, new_data=True)
        refused.next_command = f"{accepts}    # train on the current objects from now on"
        raise
    return trees


def begin(session: Session, run_id: str, draft: Draft | None, options: RunOptions) -> bool:
    """Record the run in the ledger and start its job. Without `draft` it is recorded, and may have started.

    Returns False if the machine went away. Raises Busy if another run is active on the machine, or its lease
    was ended meanwhile.
    """
    with starting(session.project, session.ledger.lease().id, options.verb, session.progress):
        if draft is not None:
            _require_open(session, run_id)
            other_runs.require_turn(session, run_id, options.parallel, options.queued)
            if not options.new_id or draft.attempt.number > 1:
                _make_room_there(session, run_id, draft.attempt.number)
            session.ledger.record(RunStarted(run_id, draft))
        else:
            state = follow.reconnecting(session, lambda: jobs.state(session.host, session.agent, run_id))
            if state and state.exit and state.exit.reason != ExitReason.COMPLETED:
                return True  # it failed and is only to be pulled: what would be started now does not matter
            if state and state.state == "absent":
                other_runs.require_turn(session, run_id, options.parallel, options.queued)
        return _start(session, run_id, options)


def _require_open(session: Session, run_id: str) -> None:
    lease = session.ledger.lease()
    if not lease.open:
        raise Busy(
            f"The machine of {lease.id} was ended by another call before {run_id} was started.",
            exists=NOTHING_RUNS,
            next_command=lease.up_command,
        )


def running(session: Session, run_id: str) -> RunRecord:
    """Return the record of an active run."""
    draft = session.ledger.lease().runs[run_id].draft
    ended: Exited = {
        "code": None,
        "signal": None,
        "reason": ExitReason.RUNNING,
        "detail": f"orch logs -f {run_id}",
    }
    return run_record(session, run_id, draft, exit=ended)


def _attempt(
    session: Session, run_id: str, trees: trees_.Trees, options: RunOptions
) -> tuple[inputs.Inputs, Try]:
    """Return the attempt: its number, inputs, and changes since the last one, whose files are archived."""
    project, profile = session.project, session.profile
    attempts.archive_attempt(project, run_id)
    now = inputs.inputs_sent(profile, trees, session.lock())
    inputs.keep_inputs(project.run(run_id), now)
    retried: Retried = options.retried
    run = session.ledger.lease().runs.get(run_id)
    number = options.node.attempt if options.node else attempts.number_of_next(project, run_id, run)
    changed = attempts.changed_since(project, run_id, now)
    last = attempts.latest_attempt(project.run(run_id))
    if retried == FIRST and last is not None:  # an interrupted call may have been about to retry
        retried = retried_next(project, last, profile.retry) or FIRST
    if number > 1:
        said = "; ".join(changed) or "nothing changed here since the previous attempt"
        session.progress.say(f"{run_id}: attempt {number}: {said}")
    return now, Try(number, tuple(changed), retried)


def _make_room_there(session: Session, run_id: str, number: int) -> None:
    """End an earlier attempt of this run on the machine and keep its files under another name.

    The idle watch and `down` then ignore those files. If a damaged ledger does not list this run, the run on
    the machine is this attempt: it is recorded again, and followed.
    """
    if jobs.state(session.host, session.agent, run_id).state != "absent":
        known = session.ledger.lease().runs.get(run_id)
        if known is None or known.found:
            session.progress.say(f"{run_id} is on {session.machine.id}, but not recorded here: following it")
            return
        jobs.cancel(session.host, session.agent, run_id, grace=1.0)
        _supersede(session, run_id, f"{run_id}@{number - 1}")
        jobs.mark_collected(session.host, session.agent, run_id)
        jobs.rename(session.host, session.agent, run_id, f"{run_id}@{number - 1}")
    follow.bookmark(session, run_id).forget()


def _supersede(session: Session, run_id: str, name: str) -> None:
    """Record which files of the earlier attempt were not pulled: they stay on the machine, as
    the run `name`.
    """
    run = session.ledger.lease().runs.get(run_id)
    if run is None or not run.left:
        return
    paths = tuple(each.path for each in run.left)
    session.ledger.record(RunSuperseded(run_id, run.attempt, paths))
    notice(
        session.progress,
        f"{few(paths)} of the previous attempt were not pulled: they are on the machine as {name}, and "
        "lost with it",
    )


def _start(session: Session, run_id: str, options: RunOptions) -> bool:
    """Start the run that the ledger announced; a run that was started before is only found again.

    Returns False if the machine went away.
    """
    run, node = session.ledger.lease().runs[run_id], options.node
    assert run.draft.job is not None, "a run that is only found is not started again"
    env = {**session.profile.train.environment(), **(node.environment() if node else {})}
    job = replace(run.draft.job, env={**env, ATTEMPT: str(run.attempt)})
    saved = _saved(session, run)
    if saved and run.resumed is None:
        copy = saved.snapshot
        session.ledger.record(RunResumed(run_id, saved.attempt, copy.seq, copy.taken_at))
    try:
        grant = upload_grant(session, run)
        with other_runs.naming_other_run(session):
            started = follow.reconnecting(session, lambda: _begun(session, job, saved, grant, options.queued))
    except (UsageError, RunFailed) as refused:
        if _has_none(session, run_id):
            session.ledger.record(RunRefused(run_id, refused.message))
            not_started(session, run_id, run.draft, refused.message)
        elif not isinstance(refused, Busy):
            refused.next_command = f"orch logs -f {run_id} && orch pull {run_id}    # the active run"
        raise
    if started:
        follow.note_place(session.ledger, run_id, started)
        session.progress.say(f"{'Queued' if started.state == 'queued' else 'Training'}: {run_id}")
    return started is not None


def _has_none(session: Session, run_id: str) -> bool:
    """Whether the machine says that it has no run of that id: it did not begin. False if it does not
    answer.
    """
    try:
        return jobs.state(session.host, session.agent, run_id).state == "absent"
    except HostError:
        return False


def _begun(
    session: Session,
    job: Job,
    saved: checkpoints.LocalCheckpoint | None,
    grant: Grant | None,
    queued: bool,
) -> RunState:
    """Start the job from the newest checkpoint of an earlier attempt, if it has not started yet."""
    train, rank = session.profile.train, session.rank
    there = jobs.state(session.host, session.agent, job.run_id) if saved else None
    restored = None
    if saved and there and there.state == "absent":
        restored = checkpoints.restore(session, saved)
    return jobs.start(
        session.host,
        session.agent,
        job,
        outputs=train.outputs,
        awaited=True,
        checkpoints=() if rank else train.checkpoints,
        restored=restored,
        grant=grant,
        queued=queued,
    )


def _saved(session: Session, run: LeasedRun) -> checkpoints.LocalCheckpoint | None:
    """Return the newest checkpoint of an earlier attempt with the same inputs."""
    if not session.profile.train.checkpoints or run.attempt == 1:
        return None
    found = checkpoints.newest_of(session.project, session.profile, first_run(run.run_id, session.rank))
    if found is None or found.attempt >= run.attempt:
        return None
    which = f"the checkpoint that attempt {found.attempt} saved {moment(found.snapshot.taken_at)}"
    if run.draft.attempt.changed:
        notice(
            session.progress,
            f"{run.run_id} starts from the beginning: {which} has other inputs. It stays in {found.folder}",
        )
        return None
    session.progress.say(f"{run.run_id} continues from {which}")
    return found


def _job(profile: Profile, run_id: str, python: str, trees: trees_.Trees) -> Job:
    """Return the job without its environment, which may contain secrets and therefore never enters the
    ledger.
    """
    return Job(
        run_id=run_id,
        argv=profile.train.command,
        python=python,
        trees=trees.there,
        stall=float(profile.stall or 0),
        on_nan="stop" if profile.train.on_nan == "stop" else "warn",
    )
