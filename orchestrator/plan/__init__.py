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
    """This machine serves. `worst_case` is what it costs from now to its deadline, where both are known."""

    machine: Machine
    reason: str
    worst_case: float | None


@dataclass(frozen=True)
class Create:
    """One machine is to be made, of the first of the plan's offers that can be had."""

    reason: str


@dataclass(frozen=True)
class Delete:
    """This machine is to be ended."""

    machine: Machine
    reason: str


Action = Keep | Create | Delete


@dataclass(frozen=True)
class DiskCost:
    """The disk that a machine is given. `size` in bytes, `throughput` in MiB/s, the price of `priced_in`."""

    type: str
    size: int
    iops: int | None
    throughput: int | None
    usd_hour: float
    priced_in: str


@dataclass(frozen=True)
class Plan:
    """Ordered actions. `offers` are those that fit, best first, empty where nothing is to be made.

    `price` is US dollars an hour afterwards; `worst_case` US dollars until the deadline, of the first
    offer or of the machine kept; both None where nothing would be there. `refusal` says in a
    sentence why nothing can be made where something should be; `warnings` what makes it less sure.
    `disk` costs in addition to `price`; None where nothing is made, or its price is not known.
    `most`: of a plan that is shown again because only dearer offers are left, the profile's max_price.
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

    def as_json(self) -> dict[str, Any]:
        """The plan as plain data: memory in bytes, times in ISO 8601, prices in US dollars."""
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
        }

    def cost(self, offer: Offer) -> float:
        """What `offer` costs if it runs until its deadline, in US dollars."""
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
    """What to do so that exactly one machine serves `need`.

    `machines` are those of the lease; `spec` is the label of what is wanted now, and a machine with
    another is not kept. `max_duration` in seconds. Without `now`, no deadline is judged or computed.
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
    """The one machine to keep, and the others with the reason why not."""
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
    """The disk of a machine of that type, of `size` bytes; None where the cloud's disks are not known."""
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
    """An offer as plain data; a price that nobody knows is null."""
    return {**asdict(offer), "price": offer.price if math.isfinite(offer.price) else None}


def _action_json(action: Action) -> dict[str, Any]:
    if isinstance(action, Create):
        return {"action": "create", "what": "a machine", "reason": action.reason}
    machine = action.machine
    facts = {"what": machine.name, "machine": machine.id, "reason": action.reason, "price": machine.price}
    if isinstance(action, Delete):
        return {"action": "delete", **facts}
    return {"action": "keep", **facts, "worst_case": action.worst_case}
