"""`train` from the first attempt to the last, on a lease that the user keeps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.ledger import Lease
from orchestrator.model import Place, Progress, RunRecord
from orchestrator.model.outcomes import ExitReason
from orchestrator.model.progress import Output
from orchestrator.profile import Profile
from orchestrator.profile.overrides import secrets_of
from orchestrator.runs.find_run import profile_of
from orchestrator.runs.retries import failed_places
from orchestrator.session.interrupts import Interrupts
from orchestrator.session.project import Project
from orchestrator.session.watched import require_observable
from orchestrator.training.one_run import run_on_all
from orchestrator.training.options import RunOptions
from orchestrator.training.resume import require_checkpoints
from orchestrator.training.retrying import RetriedRun, until_it_ends

if TYPE_CHECKING:
    from orchestrator.leases.consent import Approve


def train_with_retries(
    project: Project,
    lease: Lease,
    profile: Profile,
    run_id: str,
    options: RunOptions,
    interrupts: Interrupts,
    output: Output | None,
    tell: Progress,
    approve: Approve | None,
) -> RunRecord:
    """Return the run's record, after as many attempts as the profile's `retry` allows. `profile`: with the
    overrides of this call.
    """
    if options.local_parity:
        require_observable(
            profile,
            options.command(profile, local_parity=False),
            f"Nothing was started. The machine of {lease.id} is still running, at ${lease.price:.2f}/h.",
        )
    if options.resume_proof:
        require_checkpoints(profile, options.command(profile))
    ledger = project.ledger(lease.id)

    def attempt(now: RunOptions) -> RunRecord:
        return run_on_all(project, ledger.lease(), profile, run_id, now, interrupts, output, tell)

    def replace_machine(record: RunRecord | None) -> None:
        from orchestrator.leases.replace import another_machine, end_interrupted

        interrupts.begun = False
        if record and record.exit["reason"] == ExitReason.PREEMPTED:
            end_interrupted(project, ledger.lease(), str((record.machine or {}).get("id")), tell)
        held, given = ledger.lease(), secrets_of(options.overrides)
        another_machine(
            project,
            held,
            profile_of(held, given),
            overrides=(*held.profile["overrides"], *given),
            avoid=failed_places(record) if record else _place_of(held),
            approve=approve,
            strict=options.strict,
            tell=tell,
        )

    return until_it_ends(
        RetriedRun(project, profile, run_id, attempt, replace_machine, tell, own=False), options
    )


def _place_of(lease: Lease) -> frozenset[Place]:
    """Return the zone of the lease's machine, which was lost before a run started on it."""
    machine = lease.machine
    if machine is None:
        return frozenset()
    where = (machine.get("provider") or "", machine.get("instance_type") or "", machine.get("zone") or "")
    return frozenset((Place(*where),))
