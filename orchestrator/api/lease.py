"""up, plan, status, down: the life of a lease."""

from __future__ import annotations

import fcntl
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from orchestrator.api.folder import Folder, new_lease_id, owner
from orchestrator.api.session import Session, open_session, stack_facts
from orchestrator.api.spec import machine_facts, profile_facts, spec_labels, user_data
from orchestrator.errors import CleanupUnproven, Fault, ProviderError, UsageError
from orchestrator.hosts.identity import public_key
from orchestrator.ledger import Lease, Ledger
from orchestrator.model import (
    LABEL_LEASE,
    LABEL_OWNER,
    LABEL_SPEC,
    DownReport,
    LeaseStatus,
    Machine,
    MachineSpec,
    Offer,
    Progress,
    Provider,
    Silent,
)
from orchestrator.plan import Plan
from orchestrator.plan import plan as make_plan
from orchestrator.profile import Profile, load
from orchestrator.providers import open_provider

_POLL_SECONDS = 0.2
_GONE_LIMIT = 300.0

Approve = Callable[[Plan], bool]


def plan(
    profile: str | Path | Profile, *, overrides: Sequence[str] = (), folder: Path | str | None = None
) -> Plan:
    """What `up` would do, with reasons and prices. Changes nothing."""
    wanted = _profile(profile, overrides)
    place = Folder.at(folder)
    lease = _open_lease_of(place, wanted)
    provider = open_provider(wanted.cloud)
    machines = provider.list({LABEL_LEASE: lease.id}) if lease else ()
    return _plan(wanted, provider, machines)


def up(
    profile: str | Path | Profile,
    *,
    overrides: Sequence[str] = (),
    folder: Path | str | None = None,
    approve: Approve | None = None,
    progress: Progress | None = None,
) -> LeaseStatus:
    """The machine that `profile` describes, made or found, with its stack installed and proven.

    May be called again at any time: exactly one machine results. `approve` sees the plan before
    anything that costs is made; its False ends the call with UsageError.
    Raises ProfileError, ProviderError, HostError, StackError, StackMismatch.
    """
    tell = progress or Silent()
    wanted = _profile(profile, overrides)
    place = Folder.at(folder)
    provider = open_provider(wanted.cloud)
    with _only_one(place):
        lease = _open_lease_of(place, wanted)
        machines = provider.list({LABEL_LEASE: lease.id}) if lease else ()
        planned = _plan(wanted, provider, machines)
        if approve and not approve(planned):
            raise UsageError("Not approved; nothing was made.")
        ledger = _ledger_for(place, lease, wanted, overrides)
        machine = _machine(ledger, provider, planned, wanted, place, tell)
    with open_session(place, ledger, wanted, progress=tell) as session:
        _installed(session, tell)
        session.watch_idleness()
    return _status(ledger.lease(), machine)


def status(*, folder: Path | str | None = None, ask: bool = False) -> tuple[LeaseStatus, ...]:
    """Every open lease of this folder. `ask` asks clouds too; the local provider is always asked."""
    place = Folder.at(folder)
    return tuple(_asked(lease, ask) for lease in place.open_leases())


def down(
    lease: str | None = None,
    *,
    folder: Path | str | None = None,
    discard: bool = False,
    everything: bool = False,
    progress: Progress | None = None,
) -> DownReport:
    """End the lease's machine and prove it gone. Nothing leased is success.

    Refuses while results were not pulled, unless `discard`. `everything` ends all machines of this
    user, found by label, also those whose ledger is lost.
    Raises UsageError, ProviderError, CleanupUnproven (something may still cost).
    """
    tell = progress or Silent()
    place = Folder.at(folder)
    if everything:
        return _down_all(place, discard, tell)
    leases = [place.lease(lease)] if lease or len(place.open_leases()) > 1 else place.open_leases()
    reports = [_down_one(place, each, discard, tell) for each in leases]
    return _sum(reports)


# ---------------------------------------------------------------- up, step by step


def _profile(profile: str | Path | Profile, overrides: Sequence[str]) -> Profile:
    return profile if isinstance(profile, Profile) else load(Path(profile), overrides=tuple(overrides))


def _open_lease_of(place: Folder, wanted: Profile) -> Lease | None:
    found = [lease for lease in place.open_leases() if lease.profile["name"] == wanted.name]
    return found[-1] if found else None


def _plan(wanted: Profile, provider: Provider, machines: Sequence[Machine]) -> Plan:
    need = wanted.need()
    offers = () if machines else provider.offers(need)
    return make_plan(need, offers, machines, max_duration=wanted.max_duration)


def _ledger_for(place: Folder, lease: Lease | None, wanted: Profile, overrides: Sequence[str]) -> Ledger:
    facts = profile_facts(wanted, overrides)
    if lease is None:
        place.ignore_state()
        name = new_lease_id(wanted.name)
        ledger = place.ledger(name)
        ledger.append("lease.opened", lease=name, profile=facts)
        return ledger
    ledger = place.ledger(lease.id)
    if lease.profile != facts:
        ledger.append("profile.changed", profile=facts)
    return ledger


def _machine(
    ledger: Ledger, provider: Provider, planned: Plan, wanted: Profile, place: Folder, tell: Progress
) -> Machine:
    """The lease's one machine: the one there is, or a new one of the best offer that can be had."""
    lease = ledger.lease()
    found = sorted(provider.list({LABEL_LEASE: lease.id}), key=lambda m: m.created_at)
    for extra in found[1:]:
        tell.say(f"Deleting {extra.id}, a second machine of this lease")
        provider.delete(extra)
    if found:
        return _adopt(ledger, lease, found[0], wanted)
    key = public_key(place.identity(lease.id), f"orch-{lease.id}")
    return _create(ledger, provider, planned.offers, wanted, key, tell)


def _adopt(ledger: Ledger, lease: Lease, machine: Machine, wanted: Profile) -> Machine:
    spec = spec_labels(lease.id, wanted, owner())[LABEL_SPEC]
    if machine.labels.get(LABEL_SPEC) not in (None, spec):
        raise UsageError(
            f"The machine {machine.id} was made for other resources than {wanted.name} asks for now.",
            exists=f"It runs on, at ${machine.price:.2f}/h.",
            next_command=f"orch down --lease {lease.id} && orch up {wanted.path}",
        )
    if lease.machine is None or lease.machine["id"] != machine.id:
        number = lease.attempts[-1].number if lease.attempts else 0
        ledger.append("create.accepted", **_receipt(number, machine))
    return machine


def _create(
    ledger: Ledger, provider: Provider, offers: Sequence[Offer], wanted: Profile, key: str, tell: Progress
) -> Machine:
    refusals: list[ProviderError] = []
    for spec in _specs(ledger.lease(), offers, wanted, key):
        offer = spec.offer
        tell.say(f"Creating {offer.instance_type} in {offer.zone} at ${offer.price:.2f}/h")
        ledger.append("create.intent", **_intent(spec))
        try:
            machine = provider.create(spec)
        except ProviderError as error:
            refused = {"fault": str(error.fault), "code": error.code, "message": error.message}
            ledger.append("create.refused", attempt=spec.attempt, **refused)
            if error.fault is not Fault.CAPACITY:
                raise
            refusals.append(error)
            continue
        ledger.append("create.accepted", **_receipt(spec.attempt, machine))
        return machine
    tried = "; ".join(error.message for error in refusals) or "no offer fits the profile"
    raise ProviderError(
        Fault.CAPACITY,
        f"No machine could be had: {tried}",
        exists="Nothing was made; nothing costs.",
        next_command=f"orch plan {wanted.path}",
    )


def _specs(lease: Lease, offers: Sequence[Offer], wanted: Profile, key: str) -> Iterator[MachineSpec]:
    """One spec an offer, in order. An attempt that a killed `up` left open comes first, unchanged:
    the provider then finds what it may have made already."""
    number = max((attempt.number for attempt in lease.attempts), default=-1) + 1
    left = next((a for a in lease.attempts if a.outcome == "intended"), None)
    if left:
        same = [o for o in offers if (o.instance_type, o.zone) == (left.instance_type, left.zone)]
        for offer in same[:1]:
            yield _spec(lease, left.number, offer, wanted, key, datetime.fromtimestamp(left.deadline, UTC))
        offers = [offer for offer in offers if offer not in same[:1]]
    for count, offer in enumerate(offers):
        deadline = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=wanted.max_duration)
        yield _spec(lease, number + count, offer, wanted, key, deadline)


def _spec(
    lease: Lease, number: int, offer: Offer, wanted: Profile, key: str, deadline: datetime
) -> MachineSpec:
    return MachineSpec(
        id=f"orch-{lease.id}",
        attempt=number,
        offer=offer,
        disk=wanted.need().disk,
        deadline=deadline,
        labels=spec_labels(lease.id, wanted, owner(), deadline),
        ssh_public_key=key,
        user_data=user_data(),
    )


def _intent(spec: MachineSpec) -> dict[str, Any]:
    offer = spec.offer
    return {
        "attempt": spec.attempt,
        "spec_id": spec.id,
        "instance_type": offer.instance_type,
        "zone": offer.zone,
        "price": offer.price,
        "deadline": spec.deadline.timestamp(),
    }


def _receipt(number: int, machine: Machine) -> dict[str, Any]:
    return {
        "attempt": number,
        "machine": machine_facts(machine),
        "created_at": machine.created_at.timestamp(),
        "deadline": machine.deadline.timestamp() if machine.deadline else None,
        "price": machine.price,
    }


def _installed(session: Session, tell: Progress) -> None:
    begun = time.monotonic()
    stack = session.install()
    seconds = time.monotonic() - begun
    facts = {**stack_facts(stack), "seconds": round(seconds, 3)}
    session.ledger.append("stack.installed", agent=asdict(session.agent), stack=facts)
    tell.say("Stack: " + ("already there" if stack.skipped else f"installed in {seconds:.0f} s"))


# ---------------------------------------------------------------- status


def _asked(lease: Lease, ask: bool) -> LeaseStatus:
    if lease.profile["cloud"] != "local" and not ask:
        return _status(lease, None, asked=False)
    machines = open_provider(lease.profile["cloud"]).list({LABEL_LEASE: lease.id})
    return _status(lease, machines[0] if machines else None)


def _status(lease: Lease, machine: Machine | None, *, asked: bool = True) -> LeaseStatus:
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
    return {"run_id": run_id, "state": reason or "started", "collected": collected}


def _state(lease: Lease, machine: Machine | None, asked: bool) -> str:
    if not lease.open:
        return "closed"
    if not asked:
        return "unknown"
    return str(machine.state) if machine else "gone"


# ---------------------------------------------------------------- down, step by step


def _down_one(place: Folder, lease: Lease, discard: bool, tell: Progress) -> DownReport:
    ledger = place.ledger(lease.id)
    provider = open_provider(lease.profile["cloud"])
    machines = provider.list({LABEL_LEASE: lease.id})
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


def _refuse(lease: Lease) -> None:
    ids = ", ".join(run.run_id for run in lease.uncollected)
    raise UsageError(
        f"Results of {ids} are on the machine only; ending it would lose them.",
        exists=f"The machine runs on, at ${lease.price:.2f}/h.",
        next_command=f"orch pull {lease.uncollected[0].run_id}    # or, to lose them: orch down --discard",
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
                f"{provider.name} still lists {names}, {_GONE_LIMIT:.0f} s after their deletion was accepted.",
                exists=f"They may cost up to ${sum(m.price for m in left):.2f}/h.",
                next_command="orch down",
            )
        time.sleep(_POLL_SECONDS)


def _down_all(place: Folder, discard: bool, tell: Progress) -> DownReport:
    reports = [_down_one(place, lease, discard, tell) for lease in place.open_leases()]
    provider = open_provider("local")
    labels = {LABEL_OWNER: owner()}
    strays = provider.list(labels)
    _delete(provider, strays, labels, tell)
    stray = DownReport((), tuple(machine.id for machine in strays), 0.0, 0.0, True)
    return _sum([*reports, stray])


def _sum(reports: Sequence[DownReport]) -> DownReport:
    return DownReport(
        leases=tuple(name for report in reports for name in report.leases),
        machines=tuple(name for report in reports for name in report.machines),
        seconds=max((report.seconds for report in reports), default=0.0),
        cost=sum(report.cost for report in reports),
        proven_gone=True,
    )


@contextmanager
def _only_one(place: Folder) -> Iterator[None]:
    """Two `up` in one folder take turns; the second finds the first one's machine."""
    place.ignore_state()
    with open(place.state / "up.lock", "w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
