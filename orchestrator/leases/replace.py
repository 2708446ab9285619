"""Another machine for a run whose machine was preempted or lost: in the same lease, in another zone first."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from orchestrator.errors import Busy
from orchestrator.leases.consent import Approve
from orchestrator.leases.down import down
from orchestrator.leases.gang import provision_all
from orchestrator.leases.provision import LeaseRequest
from orchestrator.ledger import Lease
from orchestrator.ledger.events import DeleteIntent
from orchestrator.model import LeaseStatus, Place, Progress, clouds
from orchestrator.profile import Profile
from orchestrator.providers import open_provider
from orchestrator.session.machines import end_and_prove, note_ends, serving
from orchestrator.session.project import Project
from orchestrator.session.reach import require_seen
from orchestrator.session.work_locks import changing

_ENDING_S = 300.0
"""Seconds after which a preempted machine is gone."""
_POLL_S = 1.0


def another_machine(
    project: Project,
    lease: Lease,
    wanted: Profile,
    *,
    overrides: Sequence[str],
    avoid: frozenset[Place],
    approve: Approve | None,
    strict: bool,
    tell: Progress,
) -> LeaseStatus:
    """The lease with a ready machine, created from the next offer if its machine is gone.

    `approve` is asked only about one that costs more than the profile's max_price or, without one, more than
    the lease's machines so far. Raises what `up` does.
    """
    agreed = wanted.need().max_price or max((held.price for held in lease.holdings), default=None)
    asked = LeaseRequest(project, wanted, overrides, approve, tell, strict, lease.for_run, keep=True)
    return provision_all(replace(asked, agreed=agreed, avoid=avoid))


def end_interrupted(project: Project, lease: Lease, machine: str, tell: Progress) -> None:
    """Confirm that a preempted machine is gone, if it is still the lease's.

    While it holds results of other runs, it is left to its cloud, so that they can be pulled until then.
    Raises Busy if it stays.
    """
    if lease.machine is None or lease.machine["id"] != machine:
        return
    ledger, provider = project.ledger(lease.id), open_provider(lease.profile["cloud"])
    require_seen(provider, lease)
    limit = time.monotonic() + _ENDING_S
    while (found := serving(provider, lease)) is not None:
        lease = ledger.lease()
        if lease.whole and not lease.uncollected:
            with changing(project, lease.id, "train", tell):
                ledger.record(DeleteIntent((machine,)))
                end_and_prove(provider, (found,), None, tell)
            break
        if time.monotonic() > limit:
            ids = ", ".join(run.run_id for run in lease.uncollected)
            raise Busy(
                f"{machine} is being preempted and has results of {ids or 'a run'} that were not pulled.",
                exists=f"It still exists, at ${lease.price:.2f}/h.",
                next_command="orch pull --all    # then repeat the command",
            )
        time.sleep(_POLL_S)
    note_ends(ledger, provider, ledger.lease(), ())


def free_to_move(project: Project, lease: Lease, wanted: Profile, tell: Progress) -> bool:
    """Close a lease that `run` opened if its next machine may be on another cloud.

    Returns whether it was closed.
    """
    if wanted.cloud != clouds.ANY or lease.for_run is None or lease.uncollected or not lease.whole:
        return False
    provider = open_provider(lease.profile["cloud"])
    require_seen(provider, lease)
    if serving(provider, lease) is not None:
        return False
    down(lease.id, folder=project.root, progress=tell)
    return True
