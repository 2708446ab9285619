"""plan, up: from a profile to a machine that is ready."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from orchestrator.api import foreseen, space
from orchestrator.api.awaiting import MachineGone, Reached, answering, require_seen, what_ended
from orchestrator.api.catalog import RECORDED, offers_for, warnings_for
from orchestrator.api.driver import require_gpus
from orchestrator.api.exists import telling
from orchestrator.api.folder import Folder, new_lease_id
from orchestrator.api.held import machines_of
from orchestrator.api.lint import look, tell_once
from orchestrator.api.owner import forget_folder, note_folder, owner
from orchestrator.api.session import (
    Session,
    local_stack,
    open_session,
    read_lock,
    stack_facts,
    tell_inherited,
)
from orchestrator.api.settle import settle
from orchestrator.api.spec import profile_facts, spec_labels, user_data
from orchestrator.api.standing import lease_status, machine_facts
from orchestrator.api.tier import tell_tier
from orchestrator.api.turns import one_at_a_time
from orchestrator.errors import Fault, ProviderError, UsageError
from orchestrator.hosts.identity import public_key
from orchestrator.ledger import Attempt, Lease, Ledger
from orchestrator.model import (
    LABEL_SPEC,
    LeaseStatus,
    Machine,
    MachineSpec,
    Offer,
    Progress,
    Provider,
    Silent,
)
from orchestrator.plan import Delete, Keep, Plan
from orchestrator.plan import plan as make_plan
from orchestrator.profile import Profile, load
from orchestrator.providers import open_provider

Approve = Callable[[Plan], bool]

_NOBODY_WAS_ASKED = frozenset(("DefaultCredentialsError", "NoCredentialsError", "PartialCredentialsError"))
"""The clients' own refusals where there are no credentials: nothing was sent, so nothing was made."""


def plan(
    profile: str | Path | Profile, *, overrides: Sequence[str] = (), folder: Path | str | None = None
) -> Plan:
    """What `up` would do, with reasons and prices. Changes nothing.

    Where nothing is leased no cloud is asked: what is recorded of it is enough.
    """
    wanted = _profile(profile, overrides)
    place = Folder.at(folder)
    lease = _open_lease_of(place, wanted)
    if lease:
        wanted, _ = _one_cloud(place, wanted, overrides)
    provider = open_provider(wanted.cloud) if lease or wanted.cloud not in RECORDED else None
    machines = machines_of(provider, lease) if provider and lease else ()
    planned = _plan(wanted, provider, machines)
    return replace(planned, warnings=(*planned.warnings, *foreseen.sentences(wanted)))


def up(
    profile: str | Path | Profile,
    *,
    overrides: Sequence[str] = (),
    folder: Path | str | None = None,
    approve: Approve | None = None,
    strict: bool = False,
    progress: Progress | None = None,
    for_run: str | None = None,
) -> LeaseStatus:
    """The machine that `profile` describes, made or found, with its stack installed and proven.

    May be called again at any time: exactly one machine results. `approve` sees the plan before
    anything that costs is made; its False ends the call with UsageError.
    What lint finds in the script is said; with `strict` its errors stop the call. `for_run`: the run for
    which `run` makes a new lease, and ends it; an `up` without it keeps such a lease from then on.
    Raises ProfileError, LintRefused, ProviderError, HostError, StackError, StackMismatch.
    """
    tell = progress or Silent()
    place = Folder.at(folder)
    wanted, overrides = _one_cloud(place, _profile(profile, overrides), overrides)
    space.require_records(place, "Nothing was made by this call.", f"orch up {wanted.path}")
    read_lock(wanted)  # what cannot be installed is refused before anything is made
    hazards = look(wanted, strict=strict)
    provider = open_provider(wanted.cloud)
    if wanted.cloud == "local":
        tell_tier(tell)
    with one_at_a_time(place, wanted.name, "run" if for_run else "up", tell):
        lease = _open_lease_of(place, wanted)
        with telling(place.ledger(lease.id) if lease else None, wanted.path):
            if lease:
                require_seen(provider, lease)
            machines = machines_of(provider, lease) if lease else ()
            planned = _plan(wanted, provider, machines)
        if approve and not approve(planned):
            raise UsageError("Not approved; nothing was made.")
        local = local_stack(wanted, tell)  # may take minutes, and fail: nothing costs meanwhile
        if not machines:
            foreseen.refuse(wanted, local)
        ledger = _ledger_for(place, lease, wanted, overrides, for_run)
        tell_once(hazards, place.state, tell)
        tell_inherited(wanted, tell)
        with telling(ledger):
            try:
                reached = _machine(ledger, provider, planned, wanted, place, tell)
            except ProviderError as error:
                error.attempts = [asdict(attempt) for attempt in ledger.lease().attempts]
                if lease is None and error.code in _NOBODY_WAS_ASKED:
                    _forget_unmade(place, ledger)
                raise
            with open_session(place, ledger, wanted, progress=tell, reached=reached) as session:
                require_gpus(session)
                _installed(session, tell)
                session.watch_idleness()
                session.confine()
    return lease_status(ledger.lease(), session.machine)


# ---------------------------------------------------------------- up, step by step


def _profile(profile: str | Path | Profile, overrides: Sequence[str]) -> Profile:
    if isinstance(profile, Profile):
        return profile
    return load(Path(profile), overrides=tuple(overrides), files=True)


def _one_cloud(place: Folder, wanted: Profile, overrides: Sequence[str]) -> tuple[Profile, tuple[str, ...]]:
    """`cloud: any` becomes the cloud of its open lease, else that of the best offer on record."""
    if wanted.cloud != "any":
        return wanted, tuple(overrides)
    lease = _open_lease_of(place, wanted)
    chosen = lease.profile["cloud"] if lease else _cheapest_cloud(wanted)
    named = (*overrides, f"cloud={chosen}")
    return _profile(wanted.path, named), named


def _cheapest_cloud(wanted: Profile) -> str:
    planned = _plan(wanted, None, ())
    if not planned.offers:
        raise ProviderError(
            Fault.CAPACITY,
            planned.refusal or "Nothing is offered that fits.",
            exists="Nothing was made; nothing costs.",
            next_command=f"orch plan {wanted.path}",
        )
    return planned.offers[0].cloud


def _open_lease_of(place: Folder, wanted: Profile) -> Lease | None:
    found = [lease for lease in place.open_leases() if lease.profile["name"] == wanted.name]
    return found[-1] if found else None


def _plan(wanted: Profile, provider: Provider | None, machines: Sequence[Machine]) -> Plan:
    """Offers are asked for only where no machine serves already."""
    kept = _planned(wanted, (), machines)
    if any(isinstance(action, Keep) for action in kept.actions):
        return kept
    need = wanted.need()
    made = _planned(wanted, offers_for(need, provider), machines)
    return replace(made, warnings=(*_shared(made.offers), *warnings_for(need)))


def _shared(offers: Sequence[Offer]) -> Iterator[str]:
    """That the first offer is no machine for steady work, and which is."""
    if offers and offers[0].burstable:
        lasting = next((offer for offer in offers if not offer.burstable), None)
        other = f" {lasting.instance_type} (${lasting.price:.4f}/h) keeps them." if lasting else ""
        yield (
            f"{offers[0].instance_type} has its cores to itself for a part of the time only: steady training "
            f"slows down there, or costs more.{other}"
        )


def _planned(wanted: Profile, offers: Sequence[Offer], machines: Sequence[Machine]) -> Plan:
    now = datetime.now(UTC)
    return make_plan(wanted.need(), offers, machines, max_duration=wanted.max_duration, now=now)


def _ledger_for(
    place: Folder, lease: Lease | None, wanted: Profile, overrides: Sequence[str], for_run: str | None
) -> Ledger:
    facts = profile_facts(wanted, overrides)
    if lease is None:
        place.ignore_runs()
        name = new_lease_id(wanted.name)
        ledger = place.ledger(name)
        note_folder(name, place.root)
        ledger.append("lease.opened", lease=name, profile=facts, for_run=for_run)
        return ledger
    ledger = place.ledger(lease.id)
    if lease.for_run and for_run is None:
        ledger.append("lease.kept")
    if lease.profile != facts:
        ledger.append("profile.changed", profile=facts)
    return ledger


def _forget_unmade(place: Folder, ledger: Ledger) -> None:
    """Close a lease that never had a machine: without credentials `down` could not even ask for one."""
    lease = ledger.lease()
    if all(attempt.settled and attempt.outcome != "accepted" for attempt in lease.attempts):
        place.identity(lease.id).unlink(missing_ok=True)
        ledger.append("lease.closed")
        forget_folder(lease.id)


def _machine(
    ledger: Ledger, provider: Provider, planned: Plan, wanted: Profile, place: Folder, tell: Progress
) -> Reached:
    """Carry the plan out: the lease's one machine, kept or made of the best offer that can be had.

    It answers then: a cloud may accept a machine and take it back before it runs."""
    lease = ledger.lease()
    for action in planned.actions:
        if isinstance(action, Delete):
            _delete(ledger, provider, action, tell)
    kept = next((action.machine for action in planned.actions if isinstance(action, Keep)), None)
    if kept:
        _adopt(ledger, lease, kept, wanted)
        try:
            return answering(provider, ledger.lease(), tell)
        except MachineGone as gone:
            _taken_back(ledger, provider, kept, gone)
        planned = _plan(wanted, provider, ())
    for lost in settle(place, ledger, what_ended(provider, lease)):
        tell.say(f"{lost.run_id}: {lost.exit['detail']}")
    key = public_key(place.identity(lease.id), f"orch-{lease.id}")
    return _create(ledger, provider, planned, wanted, key, tell)


def _delete(ledger: Ledger, provider: Provider, action: Delete, tell: Progress) -> None:
    lease = ledger.lease()
    if lease.uncollected and lease.machine and lease.machine["id"] == action.machine.id:
        raise UsageError(
            f"The machine {action.machine.id} cannot serve any more ({action.reason}), and results of "
            f"{lease.uncollected[0].run_id} were not pulled from it.",
            exists=f"It is still there, at ${action.machine.price:.2f}/h.",
            next_command="orch down --discard    # those results are lost then",
        )
    tell.say(f"Ending {action.machine.id}: {action.reason}")
    ledger.append("delete.intent", machines=[action.machine.id])
    provider.delete(action.machine)


def _adopt(ledger: Ledger, lease: Lease, machine: Machine, wanted: Profile) -> None:
    spec = spec_labels(lease.id, wanted, "")[LABEL_SPEC]
    if machine.labels.get(LABEL_SPEC) not in (None, spec):
        raise UsageError(
            f"The machine {machine.id} was made for other resources than {wanted.name} asks for now.",
            exists=f"It runs on, at ${machine.price:.2f}/h.",
            next_command=f"orch down --lease {lease.id} && orch up {wanted.path}",
        )
    if lease.machine is None or lease.machine["id"] != machine.id:
        number = lease.attempts[-1].number if lease.attempts else 0
        ledger.append("create.accepted", **_receipt(number, machine))


def _create(
    ledger: Ledger, provider: Provider, planned: Plan, wanted: Profile, key: str, tell: Progress
) -> Reached:
    refusals: list[ProviderError] = []
    for spec in _specs(ledger.lease(), planned.offers, wanted, key, owner(provider)):
        offer = spec.offer
        tell.say(f"Creating {offer.instance_type} in {offer.zone or offer.region} at ${offer.price:.2f}/h")
        ledger.append("create.intent", **_intent(spec))
        try:
            machine = provider.create(spec)
        except ProviderError as error:
            _note_refusal(ledger, spec.attempt, error)
            if error.fault is not Fault.CAPACITY:
                raise
            refusals.append(error)
            continue
        ledger.append("create.accepted", **_receipt(spec.attempt, machine))
        try:
            return answering(provider, ledger.lease(), tell)
        except MachineGone as gone:
            refusals.append(_taken_back(ledger, provider, machine, gone))
            tell.say(refusals[-1].message)
    tried = "; ".join(error.message for error in refusals) or planned.refusal or "nothing is offered"
    raise ProviderError(
        Fault.CAPACITY,
        f"No machine could be had. {tried}",
        exists="Nothing was made; nothing costs.",
        next_command=f"orch plan {wanted.path}",
    )


def _taken_back(ledger: Ledger, provider: Provider, machine: Machine, gone: MachineGone) -> ProviderError:
    """Why a machine that was accepted never served, recorded as its attempt's refusal.

    Raises it where another offer would fare no better, and `gone` where no provider refused anything.
    """
    ending = gone.ending
    if ending is None or ending.fault is None:
        raise gone
    provider.delete(machine)  # some clouds leave a disk
    error = ProviderError(ending.fault, ending.message, code=ending.code, next_command=ending.next_command)
    accepted = (a.number for a in ledger.lease().attempts if a.outcome == "accepted")
    _note_refusal(ledger, max(accepted, default=0), error)
    if ending.fault not in (Fault.CAPACITY, Fault.TRANSIENT):
        error.exists = "Nothing is running; nothing costs."
        raise error from gone
    return error


def _note_refusal(ledger: Ledger, attempt: int, error: ProviderError) -> None:
    refused = {"fault": str(error.fault), "code": error.code, "message": error.message}
    ledger.append("create.refused", attempt=attempt, **refused)


def _specs(
    lease: Lease, offers: Sequence[Offer], wanted: Profile, key: str, owner: str
) -> Iterator[MachineSpec]:
    """One spec an offer, in order. An attempt that a killed `up` left open comes first, unchanged:
    the provider then finds what it may have made already."""
    number = max((attempt.number for attempt in lease.attempts), default=-1) + 1
    left = next((a for a in lease.attempts if not a.settled and a.deadline > time.time()), None)
    if left:
        same = [o for o in offers if (o.instance_type, o.zone) == (left.instance_type, left.zone)]
        for offer in same[:1]:
            yield _spec(lease, left.number, offer, wanted, key, owner, _Life.of(left))
        offers = [offer for offer in offers if offer not in same[:1]]
    for count, offer in enumerate(offers):
        yield _spec(lease, number + count, offer, wanted, key, owner, _Life.from_now(wanted))


class _Life(NamedTuple):
    """When a machine ends by this computer's clock, and how many seconds that is from its start."""

    deadline: datetime
    lasts: float | None

    @classmethod
    def of(cls, attempt: Attempt) -> _Life:
        return cls(datetime.fromtimestamp(attempt.deadline, UTC), attempt.lasts)

    @classmethod
    def from_now(cls, wanted: Profile) -> _Life:
        now = datetime.now(UTC).replace(microsecond=0)
        return cls(now + timedelta(seconds=wanted.max_duration), wanted.max_duration)


def _spec(
    lease: Lease, number: int, offer: Offer, wanted: Profile, key: str, owner: str, life: _Life
) -> MachineSpec:
    return MachineSpec(
        id=f"orch-{lease.id}",
        attempt=number,
        offer=offer,
        disk=wanted.need().disk,
        deadline=life.deadline,
        labels=spec_labels(lease.id, wanted, owner, life.deadline, life.lasts),
        ssh_public_key=key,
        user_data=user_data(),
        lasts=life.lasts,
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
        "lasts": spec.lasts,
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
