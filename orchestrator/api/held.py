"""The machines that a lease holds: those listed by its label, and those of its ledger asked for by id.

A cloud's list may lag behind, so an empty list proves nothing: an id that the ledger knows is always asked
for by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from orchestrator.ledger import Holding, Lease
from orchestrator.model import LABEL_LEASE, Machine, MachineState, Provider


def machines_of(provider: Provider, lease: Lease) -> tuple[Machine, ...]:
    """Every machine of the lease that exists; the one that serves comes first. Raises ProviderError."""
    found = {machine.id: machine for machine in provider.list({LABEL_LEASE: lease.id})}
    for holding in lease.holdings:
        if holding.ended_at is None and holding.id not in found:
            there = provider.find(remembered(holding))
            if there is not None:
                found[there.id] = there
    serving = (lease.machine or {}).get("id")
    return tuple(sorted(found.values(), key=lambda machine: machine.id != serving))


def serving(provider: Provider, lease: Lease) -> Machine | None:
    """The machine that serves the lease, None where it is gone. Raises ProviderError.

    Beside it another may exist that is on its way out.
    """
    known = lease.holding
    if known is not None:
        return provider.find(remembered(known))
    return next(iter(provider.list({LABEL_LEASE: lease.id})), None)


def gone(provider: Provider, machines: Sequence[Machine]) -> bool:
    """Whether none of them exists, each asked for by its id."""
    return all(provider.find(machine) is None for machine in machines)


def remembered(holding: Holding) -> Machine:
    """The machine that the ledger knows, as far as its provider needs it to be asked about it.

    Its `created_at` is by this computer's clock: it tells how young the machine is.
    """
    facts = holding.machine
    return Machine(
        provider=facts["provider"],
        id=facts["id"],
        name=facts["name"],
        state=MachineState.PENDING,
        labels={LABEL_LEASE: holding.lease},
        instance_type=facts["instance_type"],
        zone=facts["zone"],
        price=holding.price,
        created_at=datetime.fromtimestamp(holding.noted_at, UTC),
        detail=facts["detail"],
    )
