"""down: end what a lease holds, and prove that it is gone."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from orchestrator.api.awaiting import require_seen
from orchestrator.api.folder import Folder, owner
from orchestrator.errors import CleanupUnproven, UsageError
from orchestrator.ledger import Lease
from orchestrator.model import LABEL_LEASE, LABEL_OWNER, DownReport, Machine, Progress, Provider, Silent
from orchestrator.providers import open_provider

_POLL_SECONDS = 0.1
_GONE_LIMIT = 300.0
_LAG_SECONDS = 90.0


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
    machines = _listed(provider, lease, tell)
    if machines and lease.uncollected and not discard:
        _refuse(lease)
    if machines:
        ledger.append("delete.intent", machines=[machine.id for machine in machines])
    _delete(provider, machines, {LABEL_LEASE: lease.id}, tell)
    ledger.append("lease.closed")
    for secret in (place.identity(lease.id), place.known_hosts(lease.id)):
        secret.unlink(missing_ok=True)
    closed = ledger.lease()
    seconds = (closed.closed_at or 0.0) - (closed.created_at or closed.opened_at)
    return DownReport(
        (lease.id,), tuple(m.id for m in machines), seconds if machines else 0.0, closed.cost(0.0), True
    )


def _listed(provider: Provider, lease: Lease, tell: Progress) -> Sequence[Machine]:
    """The lease's machines. A cloud may not list what it made seconds ago: then it is asked again."""
    machines = provider.list({LABEL_LEASE: lease.id})
    fresh_until = (lease.attempted_at or 0.0) + _LAG_SECONDS
    maybe_made = any(attempt.outcome in ("intended", "accepted") for attempt in lease.attempts)
    lags = provider.name not in ("local", "memory")
    seen_before = lease.agent is not None
    if machines or seen_before or not maybe_made or not lags:
        return machines
    if time.time() < fresh_until:
        tell.say("Nothing is listed, but a create call is young: waiting for what it may have made")
    while not machines and time.time() < fresh_until:
        time.sleep(1.0)
        machines = provider.list({LABEL_LEASE: lease.id})
    return machines


def _refuse(lease: Lease) -> None:
    ids = ", ".join(run.run_id for run in lease.uncollected)
    first = lease.uncollected[0]
    bring = "logs -f" if first.exit_reason is None else "pull"
    raise UsageError(
        f"Results of {ids} are on the machine only; ending it would lose them.",
        exists=f"The machine runs on, at ${lease.price:.2f}/h.",
        next_command=f"orch {bring} {first.run_id}    # or, to lose them: orch down --discard",
    )


def _delete(provider: Provider, machines: Sequence[Machine], labels: dict[str, str], tell: Progress) -> None:
    for machine in machines:
        tell.say(f"Ending {machine.id}")
        provider.delete(machine)
    limit = time.monotonic() + _GONE_LIMIT
    while left := provider.list(labels):
        if time.monotonic() > limit:
            names = ", ".join(machine.id for machine in left)
            raise CleanupUnproven(
                f"{provider.name} still lists {names}, {_GONE_LIMIT:.0f} s after accepting their deletion.",
                exists=f"They may cost up to ${sum(m.price for m in left):.2f}/h.",
                next_command="orch down",
            )
        time.sleep(_POLL_SECONDS)


def _down_all(place: Folder, discard: bool, clouds: Sequence[str], tell: Progress) -> DownReport:
    held = place.open_leases()
    reports = [_down_one(place, lease, discard, tell) for lease in held]
    labels = {LABEL_OWNER: owner()}
    for cloud in sorted({"local", *clouds, *(lease.profile["cloud"] for lease in held)}):
        provider = open_provider(cloud)
        strays = provider.list(labels)
        _delete(provider, strays, labels, tell)
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
