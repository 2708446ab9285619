"""pull: download the results of runs that have ended."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.errors import ResultsLost, UsageError
from orchestrator.model import Progress, PullReport, RunRecord
from orchestrator.model.progress import as_progress
from orchestrator.runs.find_run import known_run, profile_of, with_runs_there
from orchestrator.session.project import Project

if TYPE_CHECKING:
    from orchestrator.ledger import Lease


def pull(
    run_id: str | None = None,
    *,
    again: bool = False,
    store: str | None = None,
    lease: str | None = None,
    folder: Path | str | None = None,
    progress: Progress | Callable[[str], None] | None = None,
) -> RunRecord:
    """Download the results of a run that has ended; without `run_id`, of the latest one not yet pulled. Safe
    to repeat.

    With `again`, its files are listed anew on the machine, so that files that were changed or removed there
    since the last pull arrive as they are now. `store`: download the results that were uploaded to this
    store; no machine is asked, and models are not checked. `progress` reports other runs that can be pulled.

    Raises Busy if the run is still active, or, without `run_id`, if a run is active and no ended one is left
    to pull; ResultsLost if a result cannot be downloaded any more: everything else is then here, and the
    record names what is missing; NotAccepted as `train` does.
    """
    return fetch(run_id, again=again, store=store, lease=lease, folder=folder, progress=progress).records[0]


def pull_all(
    *,
    lease: str | None = None,
    folder: Path | str | None = None,
    progress: Progress | Callable[[str], None] | None = None,
) -> PullReport:
    """Pull every ended run of the lease, oldest first. No such run is a success too.

    After all of them were pulled, raises ResultsLost if a result of one cannot be downloaded any more, and
    NotAccepted if one does not pass the gate.
    """
    project = Project.at(folder)
    held = with_runs_there(project, project.lease(lease))
    if not held.uncollected:
        return PullReport(())
    tell = as_progress(progress)
    pulled = _or_from_store(project, lambda: _all_from_machine(project, held, tell))
    return _judged(project, held, _with_nodes(project, held, pulled, tell), tell)


def _with_nodes(project: Project, held: Lease, pulled: PullReport, tell: Progress) -> PullReport:
    """Also download what the other machines have of these runs, and sum it up in their records."""
    others = project.gang_of(held)
    if not others:
        return pulled
    from orchestrator.training.gang import sum_up_here
    from orchestrator.training.nodes import node_run

    for other in others:
        for run_id in (node_run(record.run_id, other.rank) for record in pulled.records):
            if any(run.run_id == run_id for run in other.uncollected):
                _from_machine(project, other, run_id, run_id, False, tell)
    return replace(
        pulled, records=[sum_up_here(project, record, 1 + len(others)) for record in pulled.records]
    )


def _all_from_machine(project: Project, held: Lease, tell: Progress) -> PullReport:
    from orchestrator.training import pulling
    from orchestrator.training.one_run import opened

    last = held.uncollected[-1].run_id
    again = f"orch pull --all --lease {held.id}"
    with opened(project, held, last, profile_of(held, ()), tell, again=again) as session:
        ended, running = pulling.ended_and_active(session)
        records, lacking = [], []
        for name in ended:
            try:
                records.append(pulling.pull_run(session, name))
            except ResultsLost as error:
                lacking.append(error)
        if lacking:
            raise pulling.together(lacking)
        return PullReport(records, running=running)


def fetch(
    run_id: str | None = None,
    *,
    again: bool = False,
    store: str | None = None,
    lease: str | None = None,
    folder: Path | str | None = None,
    progress: Progress | Callable[[str], None] | None = None,
) -> PullReport:
    """Like `pull`; also returns the lease's other runs on the machine."""
    project = Project.at(folder)
    if store is not None:
        return PullReport((_from_store(project, run_id, store),))
    held, run = known_run(project, run_id, lease)
    tell = as_progress(progress)
    pulled = _or_from_store(project, lambda: _from_machine(project, held, run.run_id, run_id, again, tell))
    return _judged(project, held, _with_nodes(project, held, pulled, tell), tell)


def _judged(project: Project, held: Lease, pulled: PullReport, tell: Progress) -> PullReport:
    """Return the pulled runs, oldest first, each after it was judged by the profile's gate.

    Raises NotAccepted for the first that does not pass, after all were judged.
    """
    from orchestrator.errors import NotAccepted
    from orchestrator.promotion.gate import judge
    from orchestrator.runs.endings import reported

    profile = profile_of(held, ())
    records, refused = [], []
    for record in pulled.records:
        try:
            with reported(project, profile, record.run_id, tell, began=True) as ended:
                records.append(ended(judge(project, profile, record, "pull", tell)))
        except NotAccepted as error:
            refused.append(error)
    if refused:
        raise refused[0]
    return replace(pulled, records=tuple(records))


def _or_from_store(project: Project, pulled: Callable[[], PullReport]) -> PullReport:
    """Pull from the machine, or, if it is gone, what it had uploaded to the store."""
    from orchestrator.runs import record_file
    from orchestrator.runs.outcome import complete_record
    from orchestrator.session.reach import MachineGone

    try:
        return pulled()
    except MachineGone as gone:
        records = [record for name in gone.came if (record := record_file.read(project.run(name)))]
        if not records:
            raise
        return PullReport(tuple(complete_record(record) for record in records))


def _from_machine(
    project: Project, held: Lease, latest: str, run_id: str | None, again: bool, tell: Progress
) -> PullReport:
    """Pull from the machine. `latest`: the run to use if `run_id` is None."""
    from orchestrator import jobs
    from orchestrator.training import pulling
    from orchestrator.training.one_run import opened

    wanted = " ".join(["orch pull", *([run_id] if run_id else []), *(["--again"] if again else [])])
    with opened(project, held, latest, profile_of(held, ()), tell, again=wanted) as session:
        if run_id is None:
            name = pulling.latest_ended(session, again)
        elif jobs.state(session.host, session.agent, run_id).active:
            raise pulling.still_running(session, run_id)
        else:
            name = run_id
        try:
            record = pulling.pull_run(session, name, again=again)
        except ResultsLost:
            pulling.tell_others(session)
            raise
        return PullReport((record,), *pulling.tell_others(session))


def _from_store(project: Project, run_id: str | None, url: str) -> RunRecord:
    """Pull results that were uploaded to a store. Raises UsageError if they are here already."""
    from orchestrator.runs import record_file
    from orchestrator.runs.outcome import complete_record
    from orchestrator.runs.stored import StoredRun
    from orchestrator.storage import open_store

    if run_id is None:
        raise UsageError(
            "--store needs the id of the run.", next_command=f"orch pull RUN --store {url}    # RUN: its id"
        )
    stored, folder = StoredRun(open_store(url), run_id), project.run(run_id)
    here = record_file.read(folder)
    if here is not None and here.artifacts:
        raise UsageError(f"The results of {run_id} are here already.", next_command=f"ls {folder}")
    project.ignore_runs()
    return complete_record(stored.fetch_results(folder))
