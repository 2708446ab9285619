"""The offers for a profile, and their cloud: the plan, before anything is created."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from orchestrator import catalog
from orchestrator.catalog.for_plan import is_recorded, offers_for, warnings_for
from orchestrator.errors import NOTHING_CREATED, Fault, OrchError, ProfileError, ProviderError
from orchestrator.leases import foreseen
from orchestrator.leases.egress import region_of_data, transfer_warnings
from orchestrator.leases.images import images_for, recorded_images
from orchestrator.leases.remains import naming
from orchestrator.leases.specs import made_for_others
from orchestrator.ledger import Lease
from orchestrator.model import Machine, Need, Offer, Place, Provider, clouds
from orchestrator.plan import Keep, Plan
from orchestrator.plan import plan as make_plan
from orchestrator.profile import Profile, load
from orchestrator.profile.values import nearest
from orchestrator.providers import open_provider
from orchestrator.session import buckets
from orchestrator.session.machines import machines_of
from orchestrator.session.project import Project
from orchestrator.session.session import read_lock


def foreseen_plan(project: Project, wanted: Profile, overrides: Sequence[str]) -> Plan:
    """What `up` would do, with its refusals as warnings. Changes nothing.

    Raises ProfileError if the GPU that it would rent could not be used, StackError if the lock is refused.
    """
    lease = open_lease_of(project, wanted)
    if lease:
        wanted, _ = one_cloud(project, wanted, overrides)
    with naming(project.ledger(lease.id) if lease else None, shlex.join(["orch", "plan", str(wanted.path)])):
        read_lock(wanted)
        provider = open_provider(wanted.cloud) if lease or not is_recorded(wanted.cloud) else None
        machines = machines_of(provider, lease) if provider and lease else ()
        planned = planned_of(wanted, provider, machines)
        planned = _with_image(project, wanted, provider, planned)
        foreseen.refuse_idle_gpu(wanted)
    planned = _without_others(planned, lease, wanted) if lease else planned
    known = (*planned.warnings, *_data_warnings(wanted, planned))
    planned = planned if planned.keeps else replace(planned, nodes=wanted.resources.nodes)
    return replace(planned, warnings=(*known, *foreseen.foreseen_problems(wanted)))


def _without_others(planned: Plan, lease: Lease, wanted: Profile) -> Plan:
    """Return the plan with a warning if it keeps a machine that was created for other resources."""
    kept = [action for action in planned.actions if isinstance(action, Keep)]
    refusal = made_for_others(lease, kept[0].machine, wanted) if kept else None
    if refusal is None:
        return planned
    actions = [
        replace(action, reason="it was created for other resources") if isinstance(action, Keep) else action
        for action in planned.actions
    ]
    warning = f"`up` will stop: {refusal.message} To replace it: {refusal.next_command}"
    return replace(planned, actions=tuple(actions), warnings=(*planned.warnings, warning))


def _with_image(project: Project, wanted: Profile, provider: Provider | None, planned: Plan) -> Plan:
    """The plan with the image that a new machine would boot; without a provider, as the ledgers tell."""
    known = images_for(provider, wanted) if provider else recorded_images(project, wanted)
    return known.shown_in(planned)


def _data_warnings(wanted: Profile, planned: Plan) -> tuple[str, ...]:
    """Transfer costs of the data, or why they are not known."""
    if not planned.offers or not any(each.bucket for each in wanted.data):
        return ()
    try:
        pins = [
            buckets.listed(each.bucket, requester_pays=each.requester_pays)
            for each in wanted.data
            if each.bucket
        ]
    except OrchError as error:
        return (f"`up` will stop: {error.message}",)
    return transfer_warnings(pins, planned.offers[0])


def one_cloud(
    project: Project, wanted: Profile, overrides: Sequence[str], avoid: frozenset[Place] = frozenset()
) -> tuple[Profile, tuple[str, ...]]:
    """Resolve `cloud: any` to the cloud of its open lease, or to that of the best recorded offer."""
    if wanted.cloud != clouds.ANY:
        return wanted, tuple(overrides)
    lease = open_lease_of(project, wanted)
    chosen = lease.profile["cloud"] if lease else _cheapest_cloud(wanted, avoid)
    named = (*overrides, f"cloud={chosen}")
    return load(Path(wanted.path), overrides=named, files=True), named


def _cheapest_cloud(wanted: Profile, avoid: frozenset[Place]) -> str:
    planned = planned_of(wanted, None, (), avoid)
    if not planned.offers:
        raise ProviderError(
            Fault.CAPACITY,
            planned.refusal or "No offer fits.",
            exists=NOTHING_CREATED,
            next_command=f"orch plan {shlex.quote(str(wanted.path))}",
        )
    return planned.offers[0].cloud


def open_lease_of(project: Project, wanted: Profile) -> Lease | None:
    return project.open_lease_of(wanted.name)


def planned_of(
    wanted: Profile,
    provider: Provider | None,
    machines: Sequence[Machine],
    avoid: frozenset[Place] = frozenset(),
    only: Place | None = None,
) -> Plan:
    """The plan. Offers are requested only if no machine exists; zones in `avoid` come last.

    `only`: the place of the other machines of a gang, from which no offer may differ.
    """
    kept = _planned(wanted, (), machines)
    if any(isinstance(action, Keep) for action in kept.actions):
        return kept
    require_known_type(wanted)
    need = preferring(wanted)
    offers = offers_for(need, provider)
    made = avoiding(_planned(wanted, at(offers, only) if only else offers, machines), avoid)
    return replace(made, warnings=(*_shared(made.offers), *warnings_for(need, made.offers)))


def at(offers: Sequence[Offer], place: Place) -> tuple[Offer, ...]:
    """Return the offers of one type in one zone. An offer that leaves the zone to its cloud is put there."""
    return tuple(
        replace(offer, zone=place.zone)
        for offer in offers
        if replace(offer.place, zone=place.zone) == place
        and (offer.zone == place.zone or (not offer.zone and _lies_in(place, offer.region)))
    )


def _lies_in(place: Place, region: str) -> bool:
    places = clouds.traits(place.cloud).places
    return places is None or places.lies_in(place.zone, region)


def narrowed(wanted: Profile, planned: Plan, offers: Sequence[Offer]) -> Plan:
    """The same plan with `offers` only."""
    made = _planned(wanted, offers, ())
    warnings = (*_shared(made.offers), *warnings_for(preferring(wanted), made.offers))
    return replace(made, rejected=planned.rejected, warnings=warnings)


def avoiding(planned: Plan, avoid: frozenset[Place]) -> Plan:
    """The same plan with the offers of these zones last."""
    offers = tuple(sorted(planned.offers, key=lambda offer: offer.place in avoid))
    if offers == planned.offers:
        return planned
    return replace(planned, offers=offers, price=offers[0].price, worst_case=planned.cost(offers[0]))


def require_known_type(wanted: Profile) -> None:
    """Raise ProfileError, with the nearest name, for an instance type that no catalog contains."""
    name = wanted.resources.instance_type
    if name is None or not is_recorded(wanted.cloud):
        return
    known = [kind.instance_type for kind in catalog.load(wanted.cloud).kinds]
    if name in known:
        return
    near = nearest(name, known)
    advice = (
        f"did you mean {near}?" if near else f"to refresh the catalog: orch catalog refresh {wanted.cloud}"
    )
    text = f"resources.instance_type: the catalog of {wanted.cloud} has no {name}; {advice}"
    raise ProfileError(text, where=wanted.where("resources.instance_type"))


def _shared(offers: Sequence[Offer]) -> Iterator[str]:
    """Warn that the first offer is a burstable machine, and name one that is not."""
    if offers and offers[0].burstable:
        lasting = next((offer for offer in offers if not offer.burstable), None)
        other = f" {lasting.instance_type} (${lasting.price:.4f}/h) keeps them." if lasting else ""
        yield (
            f"{offers[0].instance_type} is a burstable machine: steady training slows down there, or "
            f"costs more.{other}"
        )


def preferring(wanted: Profile) -> Need:
    """The need, with a preferred region if none is named: that of the data, otherwise the user's own."""
    need = wanted.need()
    if need.region or need.regions or need.zone or wanted.cloud == clouds.ANY:
        return need
    return replace(need, prefer=region_of_data(wanted) or clouds.home_region(wanted.cloud, os.environ))


def _planned(wanted: Profile, offers: Sequence[Offer], machines: Sequence[Machine]) -> Plan:
    now = datetime.now(UTC)
    return make_plan(preferring(wanted), offers, machines, max_duration=wanted.max_duration, now=now)
