"""The machines that a lease holds: found by its label and by their ids, ended, and proven gone.

A cloud's list may lag behind, so an empty list proves nothing: an id that the ledger knows is always asked
for by itself.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import UTC, datetime

from orchestrator.errors import CleanupUnproven, LocalError, ProviderError, StorageError, UsageError
from orchestrator.ledger import Holding, Lease, Ledger
from orchestrator.model import LABEL_LEASE, Machine, MachineState, Progress, Provider, clouds, unseen_in
from orchestrator.providers import ending_of

_POLL_SECONDS = 0.1
_GONE_LIMIT = 300.0
_ASK_AGAIN_SECONDS = 10.0
_LIST_SECONDS = 1.0
_CALL_SECONDS = 1.0
"""How long after its intent a create call is under way."""
_CLOCK_SECONDS = 60.0
"""By how much the times that a cloud tells may be off: they are of several of its clocks, some rounded."""
_EMPTY_ANSWERS = 3
"""Empty lists in a row after which a create call is taken to have made nothing."""


class RegionUnseen(ProviderError):
    """A region in which the lease has a machine, or may have one, refuses these credentials; or the machine
    is on another computer of the team.
    """

    @property
    def kind(self) -> str:
        return ProviderError.__name__


def machines_of(provider: Provider, lease: Lease) -> tuple[Machine, ...]:
    """Every machine of the lease that exists; the one that serves comes first.

    Raises ProviderError; RegionUnseen where a region refused that may have one."""
    found = {machine.id: machine for machine in _listed(provider, lease)}
    for holding in lease.holdings:
        if holding.ended_at is None and holding.id not in found:
            there = provider.find(machine_from_holding(holding))
            if there is not None:
                found[there.id] = there
    serving = (lease.machine or {}).get("id")
    return tuple(sorted(found.values(), key=lambda machine: machine.id != serving))


def _listed(provider: Provider, lease: Lease) -> Sequence[Machine]:
    """What its label finds. A region that is unseen is no matter where the lease has nothing there."""
    found = provider.list({LABEL_LEASE: lease.id})
    unseen = unseen_in(found)
    zones = _zones_of(lease) if unseen else ()
    for region, error in unseen.items():
        if not lease.whole or any(not zone or zone.startswith(region) for zone in zones):
            raise RegionUnseen(
                error.fault,
                f"{region} refuses these credentials, so it is not known whether a machine of {lease.id} "
                f"is there: {error.message}",
                code=error.code,
                next_command=error.next_command,
            ) from error
    return found


def _zones_of(lease: Lease) -> set[str]:
    """Where it has a machine, or may have one: "" where the ledger does not tell."""
    held = (str(one.machine.get("zone", "")) for one in lease.holdings if one.ended_at is None)
    return {*held, *(attempt.zone for attempt in lease.attempts if not attempt.settled)}


def serving(provider: Provider, lease: Lease) -> Machine | None:
    """The machine that serves the lease, None where it is gone. Raises ProviderError.

    Beside it another may exist that is on its way out.
    """
    known = lease.holding
    if known is not None:
        return provider.find(machine_from_holding(known))
    return next(iter(_listed(provider, lease)), None)


def note_ends(ledger: Ledger, provider: Provider, lease: Lease, found: Sequence[Machine]) -> Lease:
    """Record when each machine stopped that is not among those `found`, or is stopped. The lease then.

    From then on it costs nothing. A ledger that cannot be written keeps nothing from going on.
    """
    running = {machine.id for machine in found if machine.state is not MachineState.STOPPED}
    over = [holding for holding in lease.holdings if holding.ended_at is None and holding.id not in running]
    with suppress(OSError, UsageError, LocalError, StorageError):
        for holding in over:
            ledger.append("machine.ended", machine=holding.id, at=_stopped_at(provider, holding, lease.now()))
            if all(machine.id != holding.id for machine in found):
                provider.forget(machine_from_holding(holding))
    return ledger.lease() if over else lease


def _stopped_at(provider: Provider, holding: Holding, now_here: float) -> float:
    """When it stopped, by its cloud's clock: as the cloud says, where that is between its creation and now;
    else at its deadline or now, whichever comes first: it cost at most so long."""
    now = holding.created_at + max(0.0, now_here - holding.begun_at)
    ending = ending_of(provider, machine_from_holding(holding))
    at = ending.at if ending is not None else None
    if at is not None and holding.created_at - _CLOCK_SECONDS <= at <= now + _CLOCK_SECONDS:
        return max(at, holding.created_at)
    return holding.created_at + holding.seconds(now_here)


def machine_from_holding(holding: Holding) -> Machine:
    """The machine that the ledger knows, as far as its provider needs it to be asked about it.

    Its `created_at` is by this computer's clock: it tells how young the machine is.
    """
    facts = holding.machine
    return Machine(
        provider=str(facts.get("provider", "")),
        id=holding.id,
        name=str(facts.get("name", holding.id)),
        state=MachineState.PENDING,
        labels={LABEL_LEASE: holding.lease},
        instance_type=str(facts.get("instance_type", "")),
        zone=str(facts.get("zone", "")),
        price=holding.price,
        created_at=datetime.fromtimestamp(holding.noted_at, UTC),
        detail=facts["detail"] if isinstance(facts.get("detail"), dict) else {},
    )


def ends_itself(lease: Lease, holding: Holding) -> bool:
    """Whether an end at its deadline is proven: its cloud keeps deadlines, or a timer was seen."""
    cloud = str(lease.profile["cloud"])
    kept = clouds.exists(cloud) and clouds.traits(cloud).keeps_deadlines
    return kept or holding.armed or "late" in machine_from_holding(holding).detail.get("alarms", ())


def await_existing(provider: Provider, lease: Lease, tell: Progress) -> tuple[Machine, ...]:
    """The lease's machines. What came of a create call that nobody answered is asked for until it must show.

    A cloud may list late what it made, and an empty list proves nothing: without an id to ask for, several
    empty answers in a row do, once the call is old enough.
    """
    found = machines_of(provider, lease)
    unsettled = not lease.whole or any(not attempt.settled for attempt in lease.attempts)
    if found or not unsettled or not provider.list_lag_s:
        return found
    fresh_until = (lease.attempted_at or 0.0) + _CALL_SECONDS + provider.list_lag_s
    if lease.now() < fresh_until:
        tell.say("Nothing is listed, but a create call is young: waiting for what it may have made")
    empty = 1
    while not found and (empty < _EMPTY_ANSWERS or lease.now() < fresh_until):
        time.sleep(_LIST_SECONDS)
        found = machines_of(provider, lease)
        empty += 1
    return found


def await_interruption(
    provider: Provider, lease: Lease, machines: Sequence[Machine], run_id: str, tell: Progress
) -> tuple[Machine, ...]:
    """The lease's machines, once the one that its cloud is ending is gone, where `run_id` alone is lost by
    that: the run goes on elsewhere then. Others may still be fetched meanwhile: nothing is waited for."""
    found, limit = tuple(machines), time.monotonic() + _GONE_LIMIT
    if [run.run_id for run in lease.uncollected] != [run_id] or not _is_ending(found, lease):
        return found
    tell.say(f"{found[0].id} is being taken back; {run_id} goes on elsewhere once it is gone")
    while _is_ending(found, lease) and time.monotonic() < limit:
        time.sleep(_LIST_SECONDS)
        found = machines_of(provider, lease)
    return found


def _is_ending(machines: Sequence[Machine], lease: Lease) -> bool:
    serving = (lease.machine or {}).get("id")
    return any(each.id == serving and each.state is MachineState.STOPPING for each in machines)


def end_and_prove(
    provider: Provider, machines: Sequence[Machine], lease: Lease | None, tell: Progress
) -> None:
    """End them, and what else the lease has where one is given, and see each gone by its id.

    Raises CleanupUnproven.
    """
    left = {machine.id: machine for machine in machines}
    known = dict(left)
    limit = time.monotonic() + _GONE_LIMIT
    asked: dict[str, float] = {}
    while True:
        for machine in left.values():
            _ask_for_the_end(provider, machine, asked, tell)
        listed = _listed(provider, lease) if lease else ()
        left = {machine.id: machine for machine in listed} | _found(provider, left.values())
        known |= left
        if not left:
            for machine in known.values():
                provider.forget(machine)
            return
        if time.monotonic() > limit:
            raise _unproven(provider, left.values())
        time.sleep(_POLL_SECONDS)


def _found(provider: Provider, machines: Iterable[Machine]) -> dict[str, Machine]:
    """Those of them that exist, each asked for by its id."""
    found = (provider.find(machine) for machine in machines)
    return {machine.id: machine for machine in found if machine is not None}


def _ask_for_the_end(provider: Provider, machine: Machine, asked: dict[str, float], tell: Progress) -> None:
    """Once, and again after a while where the machine shows no sign of ending."""
    now = time.monotonic()
    if machine.id not in asked:
        tell.say(f"Ending {machine.id}")
    elif machine.state is MachineState.STOPPING or now - asked[machine.id] < _ASK_AGAIN_SECONDS:
        return
    asked[machine.id] = now
    provider.delete(machine)


def _unproven(provider: Provider, left: Iterable[Machine]) -> CleanupUnproven:
    machines = tuple(left)
    names = ", ".join(machine.id for machine in machines)
    return CleanupUnproven(
        f"{provider.name} still knows {names}, {_GONE_LIMIT:.0f} s after accepting their deletion.",
        exists=f"They may cost up to ${sum(machine.price for machine in machines):.2f}/h.",
        next_command="orch down",
    )
