"""down: end what a lease holds, and prove that it is gone."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from orchestrator.api.awaiting import require_seen
from orchestrator.api.folder import Folder, owner
from orchestrator.api.held import machines_of
from orchestrator.errors import CleanupUnproven, UsageError
from orchestrator.ledger import Lease
from orchestrator.model import (
    LABEL_LEASE,
    LABEL_OWNER,
    DownReport,
    Labels,
    Machine,
    MachineState,
    Progress,
    Provider,
    Silent,
)
from orchestrator.providers import open_provider

_POLL_SECONDS = 0.1
_GONE_LIMIT = 300.0
_ASK_AGAIN_SECONDS = 10.0
_LIST_SECONDS = 1.0
_EMPTY_ANSWERS = 3
"""Empty lists in a row after which a create call is taken to have made nothing."""
_NAMED = 5


def down(
    lease: str | None = None,
    *,
    folder: Path | str | None = None,
    discard: bool = False,
    everything: bool = False,
    clouds: Sequence[str] = (),
    progress: Progress | None = None,
) -> DownReport:
    """End the lease's machine and prove it gone. Nothing leased is success.

    Refuses while results were not pulled, unless `discard`. `everything` ends all machines of this
    user, found by label, also those whose ledger is lost: here, on `clouds` and on those of the leases.
    Raises UsageError, ProviderError, CleanupUnproven (something may still cost).
    """
    tell = progress or Silent()
    place = Folder.at(folder)
    if everything:
        return _down_all(place, discard, clouds, tell)
    leases = [place.lease(lease)] if lease or len(place.open_leases()) > 1 else place.open_leases()
    reports = [_down_one(place, each, discard, tell) for each in leases]
    return _sum(reports)


def _down_one(place: Folder, lease: Lease, discard: bool, tell: Progress) -> DownReport:
    ledger = place.ledger(lease.id)
    provider = open_provider(lease.profile["cloud"])
    require_seen(provider, lease)
    machines = _existing(provider, lease, tell)
    if machines and lease.uncollected and not discard:
        _refuse(lease)
    if machines:
        _settle_left(lease, discard, tell)
    if machines:
        ledger.append("delete.intent", machines=[machine.id for machine in machines])
    _end(provider, machines, {LABEL_LEASE: lease.id}, tell)
    ledger.append("lease.closed")
    for secret in (place.identity(lease.id), place.known_hosts(lease.id)):
        secret.unlink(missing_ok=True)
    closed = ledger.lease()
    ended = tuple(machine.id for machine in machines)
    return DownReport((lease.id,), ended, closed.seconds(0.0), closed.cost(0.0), True)


def _existing(provider: Provider, lease: Lease, tell: Progress) -> tuple[Machine, ...]:
    """The lease's machines. What came of a create call that nobody answered is asked for until it must show.

    A cloud may list late what it made, and an empty list proves nothing: without an id to ask for, several
    empty answers in a row do, once the call is old enough.
    """
    found = machines_of(provider, lease)
    unsettled = not lease.whole or any(not attempt.settled for attempt in lease.attempts)
    if found or not unsettled or not provider.list_lag_s:
        return found
    fresh_until = (lease.attempted_at or 0.0) + provider.list_lag_s
    if time.time() < fresh_until:
        tell.say("Nothing is listed, but a create call is young: waiting for what it may have made")
    empty = 1
    while not found and (empty < _EMPTY_ANSWERS or time.time() < fresh_until):
        time.sleep(_LIST_SECONDS)
        found = machines_of(provider, lease)
        empty += 1
    return found


def _refuse(lease: Lease) -> None:
    ids = ", ".join(run.run_id for run in lease.uncollected)
    first = lease.uncollected[0]
    bring = "logs -f" if first.exit_reason is None else "pull"
    raise UsageError(
        f"Results of {ids} are on the machine only; ending it would lose them.",
        exists=f"The machine runs on, at ${lease.price:.2f}/h.",
        next_command=f"orch {bring} {first.run_id}    # or, to lose them: orch down --discard",
    )


def _settle_left(lease: Lease, discard: bool, tell: Progress) -> None:
    """Say what of collected runs ends with the machine. Refuse where fetching it again would bring it."""
    for run in lease.runs.values():
        coming = [each.path for each in run.left if each.can_come]
        if coming and not discard:
            raise UsageError(
                f"{_few(coming)} of {run.run_id} is on the machine only, and can still be fetched.",
                exists=f"The machine runs on, at ${lease.price:.2f}/h.",
                next_command=f"orch pull --again {run.run_id}    # or, to lose it: orch down --discard",
            )
        if run.left:
            paths = [each.path for each in run.left]
            tell.say(f"{_few(paths)} of {run.run_id} could not be brought here, and ends with the machine")


def _few(paths: Sequence[str]) -> str:
    more = f" and {len(paths) - _NAMED} more" if len(paths) > _NAMED else ""
    return ", ".join(paths[:_NAMED]) + more


def _end(provider: Provider, machines: Sequence[Machine], labels: Labels, tell: Progress) -> None:
    """End them, and whatever else has the labels, and see each gone by its id. Raises CleanupUnproven."""
    left = {machine.id: machine for machine in machines}
    limit = time.monotonic() + _GONE_LIMIT
    asked: dict[str, float] = {}
    while True:
        for machine in left.values():
            _ask_for_the_end(provider, machine, asked, tell)
        left = {machine.id: machine for machine in provider.list(labels)} | _found(provider, left.values())
        if not left:
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


def _down_all(place: Folder, discard: bool, clouds: Sequence[str], tell: Progress) -> DownReport:
    held = place.open_leases()
    reports = [_down_one(place, lease, discard, tell) for lease in held]
    labels = {LABEL_OWNER: owner()}
    for cloud in sorted({"local", *clouds, *(lease.profile["cloud"] for lease in held)}):
        provider = open_provider(cloud)
        strays = provider.list(labels)
        _end(provider, strays, labels, tell)
        reports.append(DownReport((), tuple(machine.id for machine in strays), 0.0, 0.0, True))
    return _sum(reports)


def _sum(reports: Sequence[DownReport]) -> DownReport:
    return DownReport(
        leases=tuple(name for report in reports for name in report.leases),
        machines=tuple(name for report in reports for name in report.machines),
        seconds=max((report.seconds for report in reports), default=0.0),
        cost=sum(report.cost for report in reports),
        proven_gone=True,
    )
