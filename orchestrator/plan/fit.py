"""Decide which offers satisfy a need, in which order, and which miss it by one rule. Pure functions."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from orchestrator.model import Bound, Need, Offer, clouds
from orchestrator.model.counted import counted, rounded

MANY = 500
"""No catalog hands over more offers that fit than this: the cheapest ones."""
MAX_REJECTED = 5
MAX_OF_ONE_RULE = 2
_GIB = 1 << 30
_ARCHITECTURES = {"amd64": "x86_64", "aarch64": "arm64"}


@dataclass(frozen=True)
class Rejected:
    """An offer that breaks exactly one rule, and how."""

    offer: Offer
    reason: str


def rank(need: Need, offers: Sequence[Offer]) -> list[Offer]:
    """Return the offers that satisfy `need`, best first: by preferred region, price, size and name."""
    rules = _rules(need)
    fitting = (offer for offer in offers if all(rule.admits(offer) for rule in rules))
    return sorted(fitting, key=lambda offer: (is_far(need, offer.region), *_order(offer)))


def is_far(need: Need, region: str) -> bool:
    return need.prefer is not None and region != need.prefer


def misses(need: Need, *, enough: int = 2) -> Callable[[Offer], int]:
    """Count the rules that an offer breaks, up to `enough`."""
    rules = _rules(need)

    def lacks(offer: Offer) -> int:
        return sum(1 for _ in islice((rule for rule in rules if not rule.admits(offer)), enough))

    return lacks


def near_misses(need: Need, offers: Sequence[Offer]) -> tuple[Rejected, ...]:
    """Return offers that break exactly one rule, nearest first, then cheapest; at most two for each rule.

    For each type only the best offer is returned. An offer of another cloud, or spot against on demand, is
    not a near miss, because both are explicit choices of the profile.
    """
    rules = _rules(need)
    nearest: dict[tuple[int, str], Offer] = {}
    for offer in offers:
        broken = _only_broken(rules, offer)
        if broken is None or rules[broken].miss is None:
            continue
        key = (broken, offer.instance_type)
        if key not in nearest or _order(offer) < _order(nearest[key]):
            nearest[key] = offer
    missed = sorted(
        ((index, offer) for (index, _), offer in nearest.items()),
        key=lambda found: (_miss(rules[found[0]], found[1]), _order(found[1]), found[0]),
    )
    return tuple(_some_of_each(rules, missed))


def _miss(rule: _Rule, offer: Offer) -> float:
    distance = rule.miss(offer) if rule.miss else math.inf
    return distance if math.isfinite(distance) else math.inf


def _some_of_each(rules: Sequence[_Rule], missed: Sequence[tuple[int, Offer]]) -> Iterator[Rejected]:
    shown = [0] * len(rules)
    for index, offer in missed:
        if shown[index] < MAX_OF_ONE_RULE and sum(shown) < MAX_REJECTED:
            shown[index] += 1
            yield Rejected(offer, rules[index].says(offer))


def _only_broken(rules: Sequence[_Rule], offer: Offer) -> int | None:
    """Return the index of the one rule that `offer` breaks; None if it breaks none or several."""
    found = None
    for index, rule in enumerate(rules):
        if not rule.admits(offer):
            if found is not None:
                return None
            found = index
    return found


def _order(offer: Offer) -> tuple[Any, ...]:
    """Sort by price, size and name: a total order, so that the order of the catalog has no effect."""
    known = math.isfinite(offer.price)
    size = (-offer.gpu_memory * offer.accelerator_count, -offer.cpus, -offer.memory)
    name = (offer.cloud, offer.instance_type, offer.region, offer.zone, offer.arch)
    gpu = (offer.accelerator or "", offer.accelerator is None, offer.accelerator_count, offer.gpu_memory)
    return (
        offer.price if known else math.inf,
        offer.spot,
        *size,
        *name,
        *gpu,
        "" if known else str(offer.price),
    )


# ---------------------------------------------------------------- rules


def _chosen(_: Offer) -> float:
    """Return the distance of a rule that holds or does not, with nothing in between."""
    return 0.5


@dataclass(frozen=True)
class _Rule:
    """One constraint: whether an offer satisfies it, the message if not, and how far off the offer is.

    `miss` is 0 for almost and 1 for double or absent; None if an offer that breaks the rule is never a near
    miss.
    """

    admits: Callable[[Offer], bool]
    says: Callable[[Offer], str]
    miss: Callable[[Offer], float] | None = _chosen


def _rules(need: Need) -> list[_Rule]:
    """Return one rule for each constraint of `need`; a field that is left open has none."""
    return [
        *_place_rules(need),
        *_type_rules(need),
        *_size_rules(need),
        *_accelerator_rules(need),
        *_price_rules(need),
    ]


def _place_rules(need: Need) -> Iterator[_Rule]:
    if need.cloud != "any":
        yield _Rule(
            lambda o: o.cloud == need.cloud, lambda o: f"it is sold by {o.cloud}, not {need.cloud}", None
        )
    named = need.region or " or ".join(need.regions)
    if named:
        yield _Rule(lambda o: need.is_in(o.region), lambda o: f"it is in {o.region}, not {named}")
    if need.zone is not None:
        yield _Rule(
            lambda o: o.zone == need.zone,
            lambda o: f"it is in {o.zone or 'an unknown zone'}, not {need.zone}",
        )


def _type_rules(need: Need) -> Iterator[_Rule]:
    if need.instance_type is not None:
        yield _Rule(
            lambda o: o.instance_type == need.instance_type,
            lambda o: f"it is a {o.instance_type}, not a {need.instance_type}",
            None,
        )
    if need.volume.type is not None and need.cloud != clouds.ANY:
        market = clouds.traits(need.cloud).disks
        yield _Rule(
            lambda o: market.chosen(need.volume, o.instance_type) is not None,
            lambda o: f"{o.instance_type} cannot boot from a disk of type {need.volume.type}",
        )


def _size_rules(need: Need) -> Iterator[_Rule]:
    if need.cpus is not None:
        yield _amount(need.cpus, lambda o: o.cpus, lambda value: counted(value, "CPU"), "it has")
    if need.memory is not None:
        yield _amount(need.memory, lambda o: o.memory, _gib, "its memory is")
    if need.local_ssd is not None:
        least = Bound(need.local_ssd, at_least=True)
        yield _amount(least, lambda o: o.local_ssd, _decimal, "its local SSD is")
    if need.network is not None:
        least_rate = Bound(need.network, at_least=True)
        yield _amount(least_rate, lambda o: o.network, lambda rate: f"{rate:g} Gbps", "its network sustains")
    if need.arch is not None:
        arch = _ARCHITECTURES.get(need.arch, need.arch)
        yield _Rule(
            lambda o: _ARCHITECTURES.get(o.arch, o.arch) == arch,
            lambda o: f"its processor is {o.arch}, not {arch}",
        )


def _amount(bound: Bound, of: Callable[[Offer], float], show: Callable[[float], str], begin: str) -> _Rule:
    wanted = f"{show(bound.value)} or more" if bound.at_least else f"exactly {show(bound.value)}"
    return _Rule(
        lambda o: bound.admits(of(o)),
        lambda o: f"{begin} {show(of(o))}, where {wanted} was asked for",
        lambda o: abs(of(o) - bound.value) / bound.value,
    )


def _accelerator_rules(need: Need) -> Iterator[_Rule]:
    gpu = need.accelerator
    if gpu is None:
        return
    name = gpu.name
    if name is not None:
        yield _Rule(
            lambda o: (o.accelerator or "").upper() == name.upper(),
            lambda o: f"it has {o.accelerator or 'no GPU'}, not {name}",
            lambda o: 0.5 if o.vendor in ("", "nvidia") else 1.0,
        )
    else:
        yield _Rule(
            lambda o: o.vendor in ("", "nvidia"),
            lambda o: f"its {o.accelerator} is no GPU of NVIDIA; name it to have it",
        )
    yield _Rule(
        lambda o: o.accelerator is not None and gpu.count.admits(o.accelerator_count),
        lambda o: f"it has {_gpus(o)}, where {gpu.count} {name or 'of a kind'} was asked for",
    )
    if gpu.memory is not None:
        yield _amount(gpu.memory, lambda o: o.gpu_memory, _gib, "the memory of its GPU is")


def _price_rules(need: Need) -> Iterator[_Rule]:
    limit = need.max_price
    yield _Rule(
        lambda o: math.isfinite(o.price) and o.price >= 0,
        lambda o: f"its price in {o.region} is not known",
        lambda _: 1.0,
    )
    yield _Rule(lambda o: o.spot == need.spot, lambda o: f"spot is {str(o.spot).lower()}", None)
    if limit is not None:
        yield _Rule(
            lambda o: not o.price > limit,  # an unknown price is one thing wrong, not two
            lambda o: _over(need, o.price, limit),
            lambda o: abs(o.price - limit) / limit,
        )


def _over(need: Need, price: float, limit: float) -> str:
    """Say that an hour costs too much, in the numbers of the profile: its limit is for all machines."""
    if need.nodes > 1:
        each = f"{counted(need.nodes, 'machine')} at ${price:g} an hour each are"
    else:
        each = f"${price:g} an hour is"
    return f"{each} over max_price, ${round(limit * need.nodes, 6):g}"


def _gpus(offer: Offer) -> str:
    if offer.accelerator is None:
        return "no GPU"
    if offer.accelerator_count == 0:
        return f"a part of one {offer.accelerator}"
    return f"{offer.accelerator_count} {offer.accelerator}"


def _gib(size: float) -> str:
    return f"{rounded(size / _GIB, 4)} GiB"


def _decimal(size: float) -> str:
    """Format bytes in decimal units, as SSDs are sold: 900 GB."""
    return f"{rounded(size / 1e9, 4)} GB"
