"""The machines of a lease: found by label and by id, deleted, and confirmed gone.

A cloud's list may be out of date, so an empty list proves nothing: an id in the ledger is always queried
itself.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import UTC, datetime

from orchestrator.errors import CleanupUnproven, LocalError, ProviderError, StorageError, UsageError
from orchestrator.ledger import Holding, Lease, Ledger
from orchestrator.ledger.events import MachineEnded
from orchestrator.model import LABEL_LEASE, Machine, MachineState, Progress, Provider, clouds, unseen_in
from orchestrator.model.progress import notice
from orchestrator.providers import ending_of

_POLL_SECONDS = 0.1
_GONE_LIMIT = 300.0
_ASK_AGAIN_SECONDS = 10.0
_LIST_SECONDS = 1.0
_CALL_SECONDS = 1.0
"""Seconds after its intent in which a create call may still be running."""
_CLOCK_SECONDS = 60.0
"""Tolerance in seconds for times that a cloud reports: they come from several clocks, some rounded."""
_EMPTY_ANSWERS = 3
"""Empty lists in a row after which a create call is taken to have created nothing."""


class RegionUnseen(ProviderError):
    """The lease's machine cannot be checked: its region refuses these credentials, or it is on another
    computer of the team.
    """

    @property
    def kind(self) -> str:
        return ProviderError.__name__


def machines_of(provider: Provider, lease: Lease) -> tuple[Machine, ...]:
    """Return every existing machine of the lease, the active one first.

    Raises ProviderError, and RegionUnseen if a region that may have one refuses the credentials.
    """
    found = {machine.id: machine for machine in _listed(provider, lease)}
    for holding in lease.holdings:
        if holding.ended_at is None and holding.id not in found:
            there = provider.find(machine_from_holding(holding))
            if there is not None:
                found[there.id] = there
    serving = (lease.machine or {}).get("id")
    return tuple(sorted(found.values(), key=lambda machine: machine.id != serving))


def _listed(provider: Provider, lease: Lease) -> Sequence[Machine]:
    """The machines with the lease's label. A refusing region is ignored if the lease has nothing there."""
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
    """The zones in which the lease has or may have a machine; "" if the ledger does not say."""
    held = (str(one.machine.get("zone", "")) for one in lease.holdings if one.ended_at is None)
    return {*held, *(attempt.zone for attempt in lease.attempts if not attempt.settled)}


def serving(provider: Provider, lease: Lease) -> Machine | None:
    """The active machine of the lease; None if it is gone. Raises ProviderError.

    Another machine may exist beside it that is being deleted.
    """
    known = lease.holding
    if known is not None:
        return provider.find(machine_from_holding(known))
    return next(iter(_listed(provider, lease)), None)


def note_ends(ledger: Ledger, provider: Provider, lease: Lease, found: Sequence[Machine]) -> Lease:
    """Record the end of each machine that is stopped or not in `found`, because it costs nothing after that;
    returns the updated lease. A ledger that cannot be written is ignored.
    """
    running = {machine.id for machine in found if machine.state is not MachineState.STOPPED}
    over = [holding for holding in lease.holdings if holding.ended_at is None and holding.id not in running]
    with suppress(OSError, UsageError, LocalError, StorageError):
        for holding in over:
            ledger.record(MachineEnded(holding.id, _stopped_at(provider, holding, lease.now())))
            if all(machine.id != holding.id for machine in found):
                provider.forget(machine_from_holding(holding))
    return ledger.lease() if over else lease


def _stopped_at(provider: Provider, holding: Holding, now_here: float) -> float:
    """When the machine stopped, by its cloud's clock: as the cloud reports, if that is between its creation
    and now; otherwise its deadline or now, whichever is earlier, so that the cost is an upper bound.
    """
    now = holding.created_at + max(0.0, now_here - holding.begun_at)
    ending = ending_of(provider, machine_from_holding(holding))
    at = ending.at if ending is not None else None
    if at is not None and holding.created_at - _CLOCK_SECONDS <= at <= now + _CLOCK_SECONDS:
        return max(at, holding.created_at)
    return holding.created_at + holding.seconds(now_here)


def machine_from_holding(holding: Holding) -> Machine:
    """A machine built from the ledger, with what its provider needs to query it.

    Its `created_at` is by this computer's clock.
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
    """Whether the deadline is certain to be enforced: by the cloud, or by a timer that was observed."""
    cloud = str(lease.profile["cloud"])
    kept = clouds.exists(cloud) and clouds.traits(cloud).keeps_deadlines
    return kept or holding.armed or "late" in machine_from_holding(holding).detail.get("alarms", ())


def await_existing(provider: Provider, lease: Lease, tell: Progress) -> tuple[Machine, ...]:
    """The lease's machines. If a create call has no known result, wait until its machine must be visible.

    A cloud may list a new machine late. Without an id to query, several empty lists in a row are taken as
    proof once the call is old enough.
    """
    found = machines_of(provider, lease)
    unsettled = not lease.whole or any(not attempt.settled for attempt in lease.attempts)
    if found or not unsettled or not provider.list_lag_s:
        return found
    fresh_until = (lease.attempted_at or 0.0) + _CALL_SECONDS + provider.list_lag_s
    if lease.now() < fresh_until:
        tell.say("No machine is listed yet, but one may just have been created: waiting for it")
    empty = 1
    while not found and (empty < _EMPTY_ANSWERS or lease.now() < fresh_until):
        time.sleep(_LIST_SECONDS)
        found = machines_of(provider, lease)
        empty += 1
    return found


def await_interruption(
    provider: Provider, lease: Lease, machines: Sequence[Machine], run_id: str, tell: Progress
) -> tuple[Machine, ...]:
    """Return the lease's machines, after waiting until a machine that its cloud is preempting is gone, if
    only `run_id` is affected; the run then continues elsewhere. If other runs can still be pulled from
    it, return at once.
    """
    found, limit = tuple(machines), time.monotonic() + _GONE_LIMIT
    if [run.run_id for run in lease.uncollected] != [run_id] or not _is_ending(found, lease):
        return found
    notice(tell, f"{found[0].id} is being preempted; {run_id} continues on another machine once it is gone")
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
    """Delete machines, and if a lease is given everything else that it created, and confirm by id that each
    is gone.

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
    """The machines that still exist, each queried by id."""
    found = (provider.find(machine) for machine in machines)
    return {machine.id: machine for machine in found if machine is not None}


def _ask_for_the_end(provider: Provider, machine: Machine, asked: dict[str, float], tell: Progress) -> None:
    """Request deletion, and request it again if the machine's state has not changed after a while."""
    now = time.monotonic()
    if machine.id not in asked:
        tell.say(f"Deleting {machine.id}")
    elif machine.state is MachineState.STOPPING or now - asked[machine.id] < _ASK_AGAIN_SECONDS:
        return
    asked[machine.id] = now
    provider.delete(machine)


def _unproven(provider: Provider, left: Iterable[Machine]) -> CleanupUnproven:
    machines = tuple(left)
    names = ", ".join(machine.id for machine in machines)
    return CleanupUnproven(
        f"{provider.name} still lists {names}, {_GONE_LIMIT:.0f} s after accepting their deletion.",
        exists=f"They may cost up to ${sum(machine.price for machine in machines):.2f}/h.",
        next_command="orch down",
    )
