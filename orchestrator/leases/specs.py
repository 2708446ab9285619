"""What the create calls of a lease ask for, one after the other until one succeeds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from orchestrator.errors import UsageError
from orchestrator.leases.images import Images
from orchestrator.ledger import Attempt, Lease
from orchestrator.model import LABEL_SPEC, Machine, MachineSpec, Offer, clouds
from orchestrator.profile import Profile
from orchestrator.runs.spec import spec_labels, user_data


class _Wish(NamedTuple):
    """An offer, and the placement group in which its machine is to be; "" for none."""

    offer: Offer
    group: str


class _Life(NamedTuple):
    """When a machine ends by this computer's clock, and how many seconds that is after its start."""

    deadline: datetime
    lasts: float | None

    @classmethod
    def of(cls, attempt: Attempt) -> _Life:
        return cls(datetime.fromtimestamp(attempt.deadline, UTC), attempt.lasts)

    @classmethod
    def from_now(cls, wanted: Profile) -> _Life:
        now = datetime.now(UTC).replace(microsecond=0)
        return cls(now + timedelta(seconds=wanted.max_duration), wanted.max_duration)


def specs_of(
    lease: Lease, offers: Sequence[Offer], wanted: Profile, owner: str, images: Images
) -> Iterator[MachineSpec]:
    """One spec per offer, in order, without a key; two for one of several machines that can be placed close
    together: in their placement group, then without it.

    An attempt that an interrupted `up` left open comes first, unchanged, so that the provider finds what it
    may have created.
    """
    number = max((attempt.number for attempt in lease.attempts), default=-1) + 1
    wishes = [_Wish(offer, group) for offer in offers for group in _groups(lease, offer, wanted)]
    left = next((a for a in lease.attempts if not a.settled and a.deadline > lease.now()), None)
    if left:
        same = [o for o in offers if (o.instance_type, o.zone) == (left.instance_type, left.zone)]
        for offer in same[:1]:
            wish = _Wish(offer, left.group)
            yield _spec(lease, left.number, wish, wanted, owner, _Life.of(left), images)
            tried = (wish, _Wish(offer, left.group or _gang(lease)))
            wishes = [each for each in wishes if each not in tried]
    for count, wish in enumerate(wishes):
        yield _spec(lease, number + count, wish, wanted, owner, _Life.from_now(wanted), images)


def _groups(lease: Lease, offer: Offer, wanted: Profile) -> tuple[str, ...]:
    """The placement groups to try; reserved machines are where their reservation has them."""
    several = wanted.resources.nodes > 1 and wanted.need().reservation is None
    if several and offer.zone and clouds.traits(offer.cloud).places_together(offer.instance_type):
        return _gang(lease), ""
    return ("",)


def _gang(lease: Lease) -> str:
    """The name of the group of all machines that train one model with that of the lease."""
    return lease.gang or lease.id


def _spec(
    lease: Lease, number: int, wish: _Wish, wanted: Profile, owner: str, life: _Life, images: Images
) -> MachineSpec:
    need, baked = wanted.need(), images.for_offer(wish.offer)
    return MachineSpec(
        id=f"orch-{lease.id}",
        attempt=number,
        offer=wish.offer,
        disk=need.disk,
        deadline=life.deadline,
        labels=spec_labels(lease.id, wanted, owner, life.deadline, life.lasts),
        ssh_public_key="",
        user_data=user_data(),
        image=baked.reference if baked else wanted.image,
        lasts=life.lasts,
        volume=need.volume,
        reservation=need.reservation,
        identity=need.identity,
        own_labels=wanted.labels,
        group=wish.group,
    )


def made_for_others(lease: Lease, machine: Machine, wanted: Profile) -> UsageError | None:
    """Return the refusal to use a machine that was created for other resources than the profile asks for now;
    None if it was created for these.
    """
    spec = spec_labels(lease.id, wanted, "")[LABEL_SPEC]
    if machine.labels.get(LABEL_SPEC) in (None, spec):
        return None
    return UsageError(
        f"The machine {machine.id} was created for other resources than {wanted.name} asks for now.",
        exists=f"It is still running, at ${machine.price:.2f}/h.",
        next_command=f"orch down --lease {lease.id} && {lease.up_command}",
    )
