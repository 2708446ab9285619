"""Compare the first steps of all machines of a run with those of one process at the same global batch."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from orchestrator.errors import ParityMismatch
from orchestrator.model import Job
from orchestrator.model.counted import counted
from orchestrator.model.outcomes import Conclusion
from orchestrator.model.workers import WorkerFinding, WorkersConclusion, WorkersVerdict
from orchestrator.parity.recording import read
from orchestrator.parity.workers import compare_workers
from orchestrator.runs.other_runs import naming_other_run
from orchestrator.session.session import Session
from orchestrator.training.observed import Observed, fetch_recording, observed_job, run_observed

_CONCLUSIONS = {
    WorkersConclusion.DIFFERS: Conclusion.DIVERGENT,
    WorkersConclusion.NOT_COMPARED: Conclusion.NOT_COMPARED,
}


@dataclass(frozen=True)
class Worker:
    """One machine: the `job` that it is about to run, and the variables `env` that tell it of the others."""

    session: Session
    job: Job
    env: Mapping[str, str]


def compare_with_one(workers: Sequence[Worker], run_id: str) -> WorkersVerdict:
    """Run the first steps on all machines together, and compare them with those that the first machine ran
    alone. The recordings stay in `runs/<id>/parity/workers/<rank>`.
    """
    first = workers[0].session
    first.progress.say(f"Parity: {counted(len(workers), 'worker')} and one process")
    folder = first.project.run(run_id) / "parity"
    name = f"{run_id}.parity-{secrets.token_hex(3)}"
    sides = [_observed(worker, name, run_id) for worker in workers]
    with naming_other_run(first):
        ended = run_observed(sides, together=True)
    for rank, (side, each) in enumerate(zip(sides, ended, strict=True)):
        if each.is_recorded:
            fetch_recording(side, folder / "workers" / str(rank))
    recorded = [read(folder / "workers" / str(rank)) for rank in range(len(workers))]
    return compare_workers(read(folder / "there"), recorded)


def _observed(worker: Worker, name: str, run_id: str) -> Observed:
    session, job = worker.session, worker.job
    observed = observed_job(session.profile, name, job.python, run_id, worker.env)
    return Observed(session.host, session.agent, replace(observed, trees=job.trees))


def require_equal(found: WorkersVerdict, session: Session, run_id: str, again: str) -> None:
    """Raise ParityMismatch if the workers are not equal to one process, unless the profile only warns."""
    conclusion = _CONCLUSIONS.get(found.verdict)
    if conclusion is None or not session.profile.parity.on_mismatch.stops(conclusion):
        return
    folder = session.project.run(run_id) / "parity"
    raise ParityMismatch(
        f"{found.verdict}: the workers do not train what one process trains: {described(found)}.",
        exists=f"The machines are still running. All recordings are in {folder}.",
        next_command=f"{again}    # once fixed: docs/parity.md, several workers",
    )


def described(found: WorkersVerdict) -> str:
    """Return where the first difference is, on which ranks and why."""
    if not found.findings:
        return ", ".join(found.unseen) or "nothing was compared"
    return "; ".join(_described(each) for each in found.findings)


def _described(finding: WorkerFinding) -> str:
    ranks = ", ".join(map(str, finding.ranks))
    names = "".join(f" ({fact.name})" for fact in finding.facts[:1])
    return f"step {finding.step}, {finding.stage}, rank {ranks}: {finding.cause}{names}"


def as_part(parity: Mapping[str, Any] | None, found: WorkersVerdict) -> dict[str, Any]:
    """Return the `parity` object of run.json with the verdict on the workers."""
    return {**(parity or {}), "workers": found.as_json()}
