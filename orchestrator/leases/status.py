"""status: what the ledger says, and what the provider lists. Fast: reads no profile, imports no SDK.

SSH is used only if a run's end was not observed: then its machine is asked. A project without a lease loads
nothing of ledgers.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.errors import UsageError
from orchestrator.model import clouds
from orchestrator.providers import open_provider
from orchestrator.session.owner import is_mine
from orchestrator.session.project import Project

if TYPE_CHECKING:
    from orchestrator.model import LeaseStatus


def status(
    *, folder: Path | str | None = None, ask: bool = False, team: bool = False
) -> tuple[LeaseStatus, ...]:
    """Every open lease of this project. `ask` asks clouds too; the local provider is always asked.

    `team`: every lease of the team's ledger, newest first, including closed ones; without `ask`, they are
    shown from the ledger only. Raises UsageError if no ledger is shared.
    """
    project = Project.at(folder)
    if team:
        return _of_team(project, ask)
    leases = project.open_leases()
    if not leases:
        return ()
    from orchestrator.leases.lease_status import current_statuses

    return current_statuses(project, leases, ask)


def _of_team(project: Project, ask: bool) -> tuple[LeaseStatus, ...]:
    from orchestrator.leases.lease_status import current_statuses, lease_status
    from orchestrator.ledger import TeamLedger

    shared = [lease for lease in project.leases() if isinstance(project.ledger(lease.id), TeamLedger)]
    if not project.team:
        raise UsageError(
            f"The leases of {project.root} are kept on this computer only; no ledger is shared.",
            next_command="export ORCH_LEDGER=s3://bucket/prefix    # or gs://, or ledger: in the profile, "
            "then orch up; see docs/teams.md",
        )
    newest = tuple(reversed(shared))
    if ask:
        return current_statuses(project, newest, ask)
    return tuple(lease_status(lease, None, asked=False) for lease in newest)


def leases_elsewhere() -> tuple[str, ...]:
    """This user's local machines, whichever folder leased them. Clouds are not asked."""
    local = open_provider(clouds.LOCAL)
    return tuple(machine.id for machine in local.list({}) if is_mine(local, machine))
