"""status: what the ledger says, and what the provider still lists. Quick: no profile, no SDK, no SSH."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from orchestrator.api.folder import Folder, owner
from orchestrator.ledger import Lease
from orchestrator.model import LABEL_LEASE, LABEL_OWNER, LeaseStatus, Machine
from orchestrator.providers import open_provider


def status(*, folder: Path | str | None = None, ask: bool = False) -> tuple[LeaseStatus, ...]:
    """Every open lease of this folder. `ask` asks clouds too; the local provider is always asked."""
    place = Folder.at(folder)
    return tuple(_asked(lease, ask) for lease in place.open_leases())


def elsewhere() -> tuple[str, ...]:
    """This user's local machines, whichever folder leased them. Clouds are not asked."""
    return tuple(machine.id for machine in open_provider("local").list({LABEL_OWNER: owner()}))


def _asked(lease: Lease, ask: bool) -> LeaseStatus:
    if lease.profile["cloud"] != "local" and not ask:
        return lease_status(lease, None, asked=False)
    machines = open_provider(lease.profile["cloud"]).list({LABEL_LEASE: lease.id})
    return lease_status(lease, machines[0] if machines else None)


def lease_status(lease: Lease, machine: Machine | None, *, asked: bool = True) -> LeaseStatus:
    facts = machine_facts(machine) if machine else lease.machine or {}
    return LeaseStatus(
        lease=lease.id,
        name=lease.profile["name"],
        cloud=lease.profile["cloud"],
        state=_state(lease, machine, asked),
        profile=lease.profile["path"],
        machine=facts.get("id"),
        instance_type=facts.get("instance_type"),
        zone=facts.get("zone"),
        price=lease.price,
        cost=lease.cost(time.time()),
        created_at=lease.created_at,
        deadline=lease.deadline,
        detail=facts.get("detail", {}),
        attempts=[asdict(attempt) for attempt in lease.attempts],
        runs=[_run(run.run_id, run.exit_reason, run.collected) for run in lease.runs.values()],
    )


def _run(run_id: str, reason: str | None, collected: bool) -> dict[str, Any]:
    return {"run_id": run_id, "state": reason or "started, not followed", "collected": collected}


def _state(lease: Lease, machine: Machine | None, asked: bool) -> str:
    if not lease.open:
        return "closed"
    if not asked:
        return "unknown"
    return str(machine.state) if machine else "gone"


def machine_facts(machine: Machine) -> dict[str, Any]:
    """A machine as the ledger, `status` and `run.json` tell it."""
    return {
        "provider": machine.provider,
        "id": machine.id,
        "name": machine.name,
        "state": str(machine.state),
        "instance_type": machine.instance_type,
        "zone": machine.zone,
        "price_usd_hour": machine.price,
        "detail": {key: value for key, value in machine.detail.items() if _plain(value)},
    }


def _plain(value: object) -> bool:
    return value is None or isinstance(value, str | int | float | bool | list | tuple | dict)
