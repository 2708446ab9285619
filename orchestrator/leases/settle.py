"""Build a run's record from the ledger, and settle runs whose machine is gone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from orchestrator.errors import ResultsLost, StorageError, SyncError
from orchestrator.leases import billing
from orchestrator.ledger import Draft, Lease, LeasedRun, Ledger, Ran
from orchestrator.ledger.events import RunCollected, RunEnded, RunLost
from orchestrator.model import AttemptFacts, Ending, Exit, MachineState, Provider, RunRecord
from orchestrator.model.counted import few
from orchestrator.model.outcomes import ExitReason
from orchestrator.providers import open_provider
from orchestrator.runs import attempts, collect, model_check, record_file
from orchestrator.runs.metrics import read_metrics
from orchestrator.runs.outcome import raise_for_outcome
from orchestrator.runs.stored import StoredRun
from orchestrator.session.machines import serving
from orchestrator.session.project import Project
from orchestrator.session.reach import MachineGone
from orchestrator.storage import open_store

_UNEXPLAINED = (
    "Its machine is gone: it reached its deadline, was powered off, or was deleted by its provider."
)


def record_of(
    project: Project,
    lease: Lease,
    run_id: str,
    draft: Draft,
    *,
    ran: Ran | None = None,
    beside: Sequence[billing.Span] | None = None,
    **facts: Any,
) -> RunRecord:
    """The record of a run of `lease`. `facts`: what only its end reveals, such as `exit`.

    `ran`: when its job was active, and `beside`: other active jobs, as the machine reports; default: the
    ledger's. A queued run starts when its job does.
    """
    now = lease.now()
    run = lease.runs.get(run_id)
    begun = run.started_at if run and run.attempt == draft.attempt.number else None
    if run and begun is not None:
        begun = ran.begun if ran and run.queued else begun
        ran = ran or billing.spans_of_ledger(lease, run, now)
    if beside is None:
        beside = billing.spans_of_others(lease, run_id, now)
    record = RunRecord(
        run_id=run_id,
        path=str(project.run(run_id)),
        command=draft.command,
        code=draft.code,
        request=draft.request,
        stack=draft.stack,
        data=draft.data,
        parity=draft.parity,
        resume_proof=draft.resume_proof,
        rank=lease.rank,
        timings=draft.timings,
        cost=billing.cost_of(lease, ran, beside, now),
        **{"machine": lease.machine, **facts},
    )
    resumed = run.resumed if run and begun is not None else None
    this: AttemptFacts = {
        "number": draft.attempt.number,
        "changed": draft.attempt.changed,
        "started_at": begun,
        "resumed_from": {"attempt": resumed.attempt, "seq": resumed.seq, "taken_at": resumed.taken_at}
        if resumed
        else None,
        "retried": {
            "interruption": draft.attempt.retried.interruption,
            "error": draft.attempt.retried.error,
        },
    }
    return replace(record, attempts=attempts.describe_attempts(project, this, record))


def settle(project: Project, ledger: Ledger, ending: Ending | None) -> tuple[RunRecord, ...]:
    """Record every run as lost whose results were on the lease's machine only. The machine must be gone.

    Results that it uploaded to its store are downloaded first and are not lost. A settled run blocks nothing.
    Safe to repeat. Returns the records of the lost runs. Raises StorageError if the store does not answer;
    nothing is recorded as lost then.
    """
    for run in ledger.lease().uncollected:
        if run.draft.store:
            with _naming(run):
                collect_stored(project, ledger, run, run.draft.store)
    lease = ledger.lease()
    return tuple(_settled(project, ledger, ledger.lease(), run, ending) for run in lease.uncollected)


def require_gone(provider: Provider, lease: Lease) -> None:
    """Raise ResultsLost if the machine is only stopped: its disk may hold results, and costs money."""
    machine = serving(provider, lease)
    if machine is None or machine.state is not MachineState.STOPPED or not lease.uncollected:
        return
    ids = ", ".join(run.run_id for run in lease.uncollected)
    raise ResultsLost(
        f"{machine.id} is stopped, and results of {ids} were not pulled from it.",
        exists=str(
            machine.detail.get("stopped") or "Its disk still holds those results, and may cost money."
        ),
        next_command=f"orch down {lease.id} --discard    # they are lost then; "
        f"or start it in the cloud's console and: orch pull {lease.uncollected[0].run_id}",
    )


@contextmanager
def settle_on_exit(project: Project, ledger: Ledger, run_id: str) -> Iterator[None]:
    """If the machine turns out to be gone, settle its runs and raise the error for `run_id`."""
    try:
        yield
    except MachineGone as gone:
        require_gone(open_provider(ledger.lease().profile["cloud"]), ledger.lease())
        waited = [run.run_id for run in ledger.lease().uncollected]
        lost = {record.run_id: record for record in settle(project, ledger, gone.ending)}
        gone.came = tuple(name for name in waited if name not in lost)
        if gone.came:
            gone.exists = f"{gone.exists} The results of {few(gone.came)} came from their store."
        if run_id in lost:
            lease = ledger.lease()
            raise_for_outcome(lost[run_id], lease.profile["path"], up=lease.up_command)
        raise


@contextmanager
def _naming(run: LeasedRun) -> Iterator[None]:
    """Add to an error of the store what is known of the run."""
    try:
        yield
    except (StorageError, SyncError) as error:
        error.exists = f"The machine of {run.run_id} is gone. Its results may be in {run.draft.store}."
        error.next_command = f"orch pull {run.run_id}    # once the store answers"
        raise


def collect_stored(project: Project, ledger: Ledger, run: LeasedRun, url: str) -> None:
    """Download a run from the store if its machine uploaded all of it; otherwise only its output."""
    stored, attempt = StoredRun(open_store(url), run.run_id), run.draft.attempt.number
    found, folder = stored.ended(attempt), project.run(run.run_id)
    folder.mkdir(parents=True, exist_ok=True)
    if found is None or found.exit is None:
        stored.fetch_log(attempt, folder)
        return
    left = stored.fetch_ended(attempt, folder)
    lease = ledger.lease()
    ran = billing.spans_of_ledger(lease, run, lease.now())
    if found.started_at and found.ended_at:
        ran = replace(ran, begun=found.started_at, ended=max(found.started_at, found.ended_at))
    exit_, files = collect.exit_json(found.exit), collect.artifacts(left.entries)
    record = record_of(
        project,
        lease,
        run.run_id,
        replace(run.draft, data=collect.data_read(run.draft.data, left)),
        ran=ran,
        exit=exit_,
        artifacts=files,
        model_check=model_check.unchecked(left.entries, folder / collect.OUTPUTS),
    )
    record_file.write(record)
    if run.exit_reason is None:
        ledger.record(RunEnded(run.run_id, found.exit.reason))
    ledger.record(RunCollected(run.run_id, ran=billing.charge(ran, record.cost)))
    read_metrics(record)
    stored.put_record(record)


def _settled(
    project: Project, ledger: Ledger, lease: Lease, run: LeasedRun, ending: Ending | None
) -> RunRecord:
    exit_ = _end_of(run, ending)
    ran = billing.spans_of_ledger(lease, run, lease.now(), ending.at if ending else None)
    draft = replace(run.draft, data=collect.data_read(run.draft.data, None))
    record = record_of(project, lease, run.run_id, draft, ran=ran, exit=collect.exit_json(exit_))
    record_file.write(record)
    ledger.record(RunLost(run.run_id, exit_.reason, exit_.detail, billing.charge(ran, record.cost)))
    return record


def _end_of(run: LeasedRun, ending: Ending | None) -> Exit:
    """How the run ended: if it had ended, its results are lost, not the run."""
    why = ending.message if ending else _UNEXPLAINED
    if run.exit_reason == ExitReason.PREEMPTED or (
        run.exit_reason in (None, ExitReason.LOST) and ending and ending.preempted
    ):
        return Exit(None, None, ExitReason.PREEMPTED, why)
    if run.exit_reason in (None, ExitReason.LOST):
        return Exit(None, None, ExitReason.LOST, why)
    return Exit(
        None,
        None,
        ExitReason.RESULTS_LOST,
        f"It had ended ({run.exit_reason}), and its results were not pulled. {why}",
    )
