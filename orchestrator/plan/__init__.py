"""Need + offers + machines -> Plan: what to keep, make and end, why, at what price. Pure, deterministic."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any

from orchestrator.model import LABEL_SPEC, Machine, MachineState, Need, Offer, Volume, clouds
from orchestrator.model.counted import counted
from orchestrator.plan.fit import MANY, Rejected, near_misses, rank

__all__ = [
    "Action",
    "Create",
    "Delete",
    "DiskCost",
    "Keep",
    "Plan",
    "Rejected",
    "disk_cost",
    "plan",
    "rank",
]


@dataclass(frozen=True)
class Keep:
    """Keep this machine. `worst_case` is its cost from now to its deadline in US dollars, None if unknown."""

    machine: Machine
    reason: str
    worst_case: float | None


@dataclass(frozen=True)
class Create:
    """Create one machine, from the first of the plan's offers that is available."""

    reason: str


@dataclass(frozen=True)
class Delete:
    """Delete this machine."""

    machine: Machine
    reason: str


Action = Keep | Create | Delete


@dataclass(frozen=True)
class DiskCost:
    """The disk of a new machine: `size` in bytes, `throughput` in MiB/s, priced as in region `priced_in`."""

    type: str
    size: int
    iops: int | None
    throughput: int | None
    usd_hour: float
    priced_in: str


@dataclass(frozen=True)
class Plan:
    """Ordered actions. `offers` are those that fit, best first; empty if nothing is to be created.

    `price` is US dollars an hour afterwards; `worst_case` is US dollars until the deadline, of the first
    offer or of the kept machine. Both are None if no machine remains. `refusal` is a sentence on why nothing
    can be created although something should be; `warnings` say what makes the plan uncertain. `disk` costs in
    addition to `price`; it is None if nothing is created or its price is unknown. `most`: the profile's
    max_price, in a plan that is shown again because only more expensive offers are left. `nodes`: how many
    such machines are created; prices are of one. `image`: the image with the lock's packages that new
    machines boot, if there is one.
    """

    actions: tuple[Action, ...]
    offers: tuple[Offer, ...]
    rejected: tuple[Rejected, ...]
    max_duration: int
    deadline: datetime | None
    price: float | None
    worst_case: float | None
    refusal: str | None = None
    warnings: tuple[str, ...] = ()
    disk: DiskCost | None = None
    reservation: str | None = None
    most: float | None = None
    nodes: int = 1
    image: str | None = None

    @property
    def keeps(self) -> bool:
        """Whether the machine is there already."""
        return any(isinstance(action, Keep) for action in self.actions)

    def as_json(self) -> dict[str, Any]:
        """Return the plan as plain data: memory in bytes, times in ISO 8601, prices in US dollars."""
        return {
            "actions": [_action_json(action) for action in self.actions],
            "offers": [{**_offer_json(offer), "worst_case": self.cost(offer)} for offer in self.offers],
            "rejected": [{**_offer_json(near.offer), "reason": near.reason} for near in self.rejected],
            "max_duration": self.max_duration,
            "deadline": self.deadline.isoformat() if self.deadline else None,
            "price": self.price,
            "worst_case": self.worst_case,
            "refusal": self.refusal,
            "warnings": list(self.warnings),
            "disk": asdict(self.disk) if self.disk else None,
            "reservation": self.reservation,
            "nodes": self.nodes,
            "image": self.image,
        }

    def cost(self, offer: Offer) -> float:
        """Return the cost of `offer` in US dollars if it runs until its deadline."""
        return _cost(offer.price, self.max_duration)


def plan(
    need: Need,
    offers: Sequence[Offer],
    machines: Sequence[Machine],
    *,
    max_duration: int,
    now: datetime | None = None,
    spec: str | None = None,
) -> Plan:
    """Return the actions after which exactly one machine serves `need`.

    `machines` are those of the lease; `spec` is the label of what is wanted now: a machine with another label
    is not kept. `max_duration` in seconds. Without `now`, deadlines are neither checked nor computed.
    """
    serving, ending = _sorted_out(machines, now, spec)
    if serving:
        kept = _keep(serving, now)
        return Plan(
            actions=(kept, *ending),
            offers=(),
            rejected=(),
            max_duration=max_duration,
            deadline=serving.deadline,
            price=serving.price,
            worst_case=kept.worst_case,
        )
    return _creation(need, offers, ending, max_duration, now)


# ---------------------------------------------------------------- machines that exist


def _sorted_out(
    machines: Sequence[Machine], now: datetime | None, spec: str | None
) -> tuple[Machine | None, list[Delete]]:
    """Return the machine to keep, and the others, each with the reason for deleting it."""
    useless = {machine.id: reason for machine in machines if (reason := _useless(machine, now, spec))}
    fit = sorted((machine for machine in machines if machine.id not in useless), key=_usefulness)
    reasons = {**{machine.id: "a second machine of the same lease" for machine in fit[1:]}, **useless}
    others = [machine for machine in machines if machine.id in reasons]
    ending = [Delete(machine, reasons[machine.id]) for machine in sorted(others, key=_usefulness)]
    return (fit[0] if fit else None), ending


def _useless(machine: Machine, now: datetime | None, spec: str | None) -> str | None:
    if machine.state is MachineState.STOPPED:
        return "it is stopped: it runs nothing, and its disk may still cost"
    if machine.state is MachineState.STOPPING:
        return "it is ending already"
    if now and machine.deadline and machine.deadline <= now:
        return "its deadline has passed"
    if spec is not None and machine.labels.get(LABEL_SPEC, spec) != spec:
        return "it was made for other resources than the profile asks for now"
    return None


def _usefulness(machine: Machine) -> tuple[bool, float, datetime, str]:
    deadline = machine.deadline.timestamp() if machine.deadline else math.inf
    return (machine.state is not MachineState.RUNNING, -deadline, machine.created_at, machine.id)


def _keep(machine: Machine, now: datetime | None) -> Keep:
    state = "it runs" if machine.state is MachineState.RUNNING else "it is starting"
    worst = None
    if now and machine.deadline:
        worst = _cost(machine.price, (machine.deadline - now).total_seconds())
    return Keep(machine, f"{state}, and it is what the profile asks for", worst)


# ---------------------------------------------------------------- machines to make


def _creation(
    need: Need, offers: Sequence[Offer], ending: list[Delete], max_duration: int, now: datetime | None
) -> Plan:
    ranked = rank(need, offers)
    rejected = near_misses(need, offers)
    first = ranked[0] if ranked else None
    create = [Create(_why(ranked))] if first else []
    return Plan(
        actions=(*ending, *create),
        offers=tuple(ranked),
        rejected=rejected,
        max_duration=max_duration,
        deadline=now + timedelta(seconds=max_duration) if now and first else None,
        price=first.price if first else None,
        worst_case=_cost(first.price, max_duration) if first else None,
        refusal=None if first else _refusal(offers, rejected),
        disk=disk_cost(first.cloud, first.instance_type, need.disk, need.volume) if first else None,
        reservation=need.reservation,
    )


def disk_cost(cloud: str, instance_type: str, size: int, wanted: Volume) -> DiskCost | None:
    """Return the disk of a machine of that type, of `size` bytes; None if the cloud's disks are unknown."""
    market = clouds.traits(cloud).disks if clouds.exists(cloud) else None
    kind = market.chosen(wanted, instance_type) if market else None
    if market is None or kind is None:
        return None
    usd = round(kind.usd_hour(size, wanted), 6)
    return DiskCost(kind.name, size, wanted.iops, wanted.throughput, usd, market.priced_in)


def _why(ranked: Sequence[Offer]) -> str:
    first = ranked[0]
    what = f"{first.instance_type} in {first.zone or first.region}" + (" (spot)" if first.spot else "")
    if len(ranked) == 1:
        return f"{what} is the one offer that fits"
    count = len(ranked) if len(ranked) < MANY else f"{len(ranked)} and more"
    return f"{what} is the cheapest of {count} offers that fit"


def _refusal(offers: Sequence[Offer], rejected: Sequence[Rejected]) -> str:
    if not offers:
        return "Nothing is offered that could fit."
    if not rejected:
        return f"None of {counted(len(offers), 'offer')} comes near to what is asked for."
    near = rejected[0]
    count = counted(len(offers), "offer")
    return f"None of {count} fits; the nearest is {near.offer.instance_type}: {near.reason}."


def _cost(price: float, seconds: float) -> float:
    return round(price * max(seconds, 0) / 3600, 6)


def _offer_json(offer: Offer) -> dict[str, Any]:
    """Return an offer as plain data; an unknown price is null."""
    return {**asdict(offer), "price": offer.price if math.isfinite(offer.price) else None}


def _action_json(action: Action) -> dict[str, Any]:
    if isinstance(action, Create):
        return {"action": "create", "what": "a machine", "reason": action.reason}
    machine = action.machine
    facts = {"what": machine.name, "machine": machine.id, "reason": action.reason, "price": machine.price}
    if isinstance(action, Delete):
        return {"action": "delete", **facts}
    return {"action": "keep", **facts, "worst_case": action.worst_case}
