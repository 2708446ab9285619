"""Download a run that has ended: its files, its record, and the results of checking the files."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from orchestrator import jobs
from orchestrator.errors import OrchError
from orchestrator.leases import billing
from orchestrator.leases.lease_status import machine_facts
from orchestrator.leases.settle import record_of
from orchestrator.ledger import Draft, Ran
from orchestrator.ledger.events import LeftBehind, RunCollected
from orchestrator.model import MODEL_CHECK, PULL, Entry, Exit, RunRecord, RunState
from orchestrator.model.counted import counted, few
from orchestrator.model.progress import doing, notice
from orchestrator.runs import collect, model_check, record_file, space
from orchestrator.runs.follow import note_end
from orchestrator.runs.metrics import read_metrics
from orchestrator.runs.stored import stored_run
from orchestrator.session.releasing import release
from orchestrator.session.session import Session
from orchestrator.training.checkers import Checkers, checkers, still_usable

_UPLOAD_S = 3600.0
_POLL_S = 0.5


def download_run(
    session: Session,
    run_id: str,
    exit_: Exit | None,
    *,
    again: bool = False,
    ready: Checkers | None = None,
) -> RunRecord:
    """Download a run, write its record, then check its files. Returns the record.

    `ready`: the checkers of models, if they were started with the run. Files that must not or cannot be
    written here are named in the record and the ledger, and stay on the machine.
    """
    note_end(session, run_id, exit_)
    draft = session.ledger.lease().runs[run_id].draft
    timings = dict(draft.timings)
    fetched = _fetched(session, run_id, timings, again)
    state = jobs.state(session.host, session.agent, run_id)
    ran = _ran(session, run_id, state)
    if ran:
        timings["train_s"] = round(ran.ended - ran.begun, 3)
    done = run_record(
        session,
        run_id,
        replace(draft, timings=timings, data=collect.data_read(draft.data, fetched)),
        ran=ran,
        beside=_beside(session, run_id) if ran else None,
        exit=collect.exit_json(exit_),
        artifacts=collect.artifacts(fetched.entries),
        not_fetched=collect.not_fetched(fetched, declared=bool(session.profile.train.outputs)),
        unwritten=[]
        if session.rank
        else collect.unwritten(fetched, f"{jobs.run_dir(session.agent, run_id)}/work"),
    )
    record_file.write(done)
    if done.unwritten and done.succeeded:
        names = few([each["pattern"] for each in done.unwritten])
        notice(session.progress, f"Warning: {run_id} did not write {names}, which train.outputs names")
    left = tuple(LeftBehind(each.path, each.can_come) for each in fetched.refused)
    cost = billing.charge(ran, done.cost) if ran else None
    session.ledger.record(RunCollected(run_id, left, cost))
    try:
        checked = _checked(session, read_metrics(done), fetched.entries, ready)
    finally:  # not earlier: a machine that counts as idle may end while it is asked
        there = _is_uploaded(session, run_id)
        if not any(each.can_come for each in fetched.refused):
            release(session.ledger, session.host, session.agent, run_id)
    _store(session, checked, fetched.entries, there=there)
    return checked


def _fetched(session: Session, run_id: str, timings: dict[str, float], again: bool) -> collect.Fetched:
    """Download the run's files. With `again`, report how many came."""
    folder = session.project.run(run_id)
    with (
        measure_duration(timings, PULL),
        space.naming_pull(folder),
        doing(session.progress, "Downloading the results"),
    ):
        found = collect.fetch(session.host, session.agent, run_id, folder, session.progress, again=again)
    if again:
        session.progress.say(_fetched_anew(run_id, found))
    return found


def _fetched_anew(run_id: str, fetched: collect.Fetched) -> str:
    files = sum(each.kind == "file" for each in fetched.entries)
    changed = f"{fetched.transferred} of {counted(files, 'output file')}"
    return (
        f"{run_id} was listed again on the machine: {changed} were downloaded now, the others are here "
        "unchanged"
    )


def _is_uploaded(session: Session, run_id: str) -> bool:
    """Whether the machine has uploaded everything that the run left; waits while it is uploading."""
    if not session.profile.store:
        return False
    limit = time.monotonic() + _UPLOAD_S
    with suppress(OrchError):
        while (found := jobs.uploads(session.host, session.agent, run_id)).state == "going":
            if found.refused or time.monotonic() > limit:
                return False
            time.sleep(_POLL_S)
        return found.state == "done"
    return False


def _store(session: Session, record: RunRecord, entries: Sequence[Entry], *, there: bool) -> None:
    """Upload the results to the store, if one is set and does not have them (`there`).

    A failure is reported, not raised.
    """
    try:
        stored = stored_run(session.profile, record.run_id)
        if stored and there:
            stored.put_record(record)
        elif stored:
            stored.put_results(record, entries)
    except OrchError as error:
        notice(
            session.progress,
            f"The results of {record.run_id} are here, but could not be uploaded to the store: {error} "
            f"To retry: orch pull {record.run_id}",
        )


def _ran(session: Session, run_id: str, state: RunState) -> Ran | None:
    """Return when the job was active, Unix seconds by its machine's clock. One that was cancelled in the
    queue was active for no time.
    """
    run = session.ledger.lease().runs[run_id]
    begun = state.started_at or (state.ended_at if run.queued else None)
    if not begun or not state.ended_at:
        return None
    return Ran(run_id, run.attempt, session.machine.id, begun, max(begun, state.ended_at))


def _beside(session: Session, run_id: str) -> list[billing.Span]:
    """Return the machine's other jobs whose times are not in the ledger yet, Unix seconds by the machine's
    clock.
    """
    others = [run.run_id for run in session.ledger.lease().uncollected if run.run_id != run_id]
    states = [jobs.state(session.host, session.agent, name) for name in others]
    return [billing.Span(s.started_at, s.ended_at or math.inf) for s in states if s.started_at]


def _checked(
    session: Session, record: RunRecord, entries: Sequence[Entry], ready: Checkers | None
) -> RunRecord:
    """Return the record with the result of the model check. Of several machines, only the first has models to
    check.
    """
    if session.rank:
        return record
    timings = dict(record.timings)
    with (
        measure_duration(timings, MODEL_CHECK),
        doing(session.progress, "Checking that the models load and predict the same, here and there"),
    ):
        check = _model_check(session, record.run_id, entries, record.folder, ready)
    checked = replace(record, model_check=check, timings=timings)
    record_file.write(checked)
    return checked


def _model_check(
    session: Session, run_id: str, entries: Sequence[Entry], folder: Path, ready: Checkers | None
) -> dict[str, Any] | None:
    sides = still_usable(ready, session.host) or checkers(session, run_id)
    return model_check.check(sides.there, sides.here, entries, folder, session.profile.train.check_imports)


def run_record(session: Session, run_id: str, draft: Draft, **facts: Any) -> RunRecord:
    """Return the run's record, with the machine of the session."""
    machine = machine_facts(session.machine)
    return record_of(session.project, session.ledger.lease(), run_id, draft, machine=machine, **facts)


@contextmanager
def measure_duration(timings: dict[str, float], name: str) -> Iterator[None]:
    begun = time.monotonic()
    yield
    timings[name] = round(time.monotonic() - begun, 3)
