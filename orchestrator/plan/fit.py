"""Which offers satisfy a need, in which order, and which miss it by one thing. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.model import Bound, Need, Offer

MAX_REJECTED = 5
_GIB = 1 << 30
_ARCHITECTURES = {"amd64": "x86_64", "aarch64": "arm64"}


@dataclass(frozen=True)
class Rejected:
    """An offer that almost fits, and the one thing that is wrong with it."""

    offer: Offer
    reason: str


def rank(need: Need, offers: Sequence[Offer]) -> list[Offer]:
    """The offers that satisfy `need`, best first: cheapest, then the larger, then by name."""
    rules = _rules(need)
    return sorted((offer for offer in offers if all(rule.admits(offer) for rule in rules)), key=_order)


def near_misses(need: Need, offers: Sequence[Offer]) -> tuple[Rejected, ...]:
    """Offers that break exactly one rule, the cheapest of each type and rule, best first.

    The cloud itself is no near miss. Neither is spot: it is chosen, not missed.
    """
    rules = _rules(need)
    nearest: dict[tuple[str, int], Offer] = {}
    for offer in offers:
        if (broken := _only_broken(rules, offer)) is None:
            continue
        if (need.cloud != "any" and broken == 0) or offer.spot != need.spot:
            continue
        key = (offer.instance_type, broken)
        if key not in nearest or _order(offer) < _order(nearest[key]):
            nearest[key] = offer
    best = sorted(nearest.items(), key=lambda found: (_order(found[1]), found[0]))
    return tuple(Rejected(offer, rules[broken].says(offer)) for (_, broken), offer in best[:MAX_REJECTED])


def _only_broken(rules: Sequence[_Rule], offer: Offer) -> int | None:
    """The index of the one rule that `offer` breaks; None where it breaks none or several."""
    found = None
    for index, rule in enumerate(rules):
        if not rule.admits(offer):
            if found is not None:
                return None
            found = index
    return found


def _order(offer: Offer) -> tuple[Any, ...]:
    gpu_memory = offer.gpu_memory * offer.accelerator_count
    size = (-gpu_memory, -offer.cpus, -offer.memory)
    price = offer.price if math.isfinite(offer.price) else math.inf
    return (price, offer.spot, *size, offer.cloud, offer.instance_type, offer.region, offer.zone)


@dataclass(frozen=True)
class _Rule:
    """One thing asked for: does an offer have it, and what is said where it has not."""

    admits: Callable[[Offer], bool]
    says: Callable[[Offer], str]


def _rules(need: Need) -> list[_Rule]:
    """Every constraint of `need`; what it leaves open is none."""
    return [*_place_rules(need), *_size_rules(need), *_accelerator_rules(need), *_price_rules(need)]


def _place_rules(need: Need) -> Iterator[_Rule]:
    if need.cloud != "any":
        yield _Rule(lambda o: o.cloud == need.cloud, lambda o: f"it is sold by {o.cloud}, not {need.cloud}")
    if need.region is not None:
        yield _Rule(lambda o: o.region == need.region, lambda o: f"it is in {o.region}, not {need.region}")
    if need.zone is not None:
        yield _Rule(
            lambda o: o.zone == need.zone,
            lambda o: f"it is in {o.zone or 'an unknown zone'}, not {need.zone}",
        )


def _size_rules(need: Need) -> Iterator[_Rule]:
    cpus, memory = need.cpus, need.memory
    if cpus is not None:
        yield _Rule(
            lambda o: cpus.admits(o.cpus),
            lambda o: f"{o.cpus} CPUs, {_bound(cpus, f'{cpus.value:g}')} asked for",
        )
    if memory is not None:
        wanted = _bound(memory, _gib(memory.value))
        yield _Rule(
            lambda o: memory.admits(o.memory), lambda o: f"{_gib(o.memory)} memory, {wanted} asked for"
        )
    if need.arch is not None:
        arch = _ARCHITECTURES.get(need.arch, need.arch)
        yield _Rule(
            lambda o: _ARCHITECTURES.get(o.arch, o.arch) == arch,
            lambda o: f"its processor is {o.arch}, not {arch}",
        )


def _accelerator_rules(need: Need) -> Iterator[_Rule]:
    gpu = need.accelerator
    if gpu is None:
        return
    name, memory = gpu.name, gpu.memory
    what = f"{gpu.count}x {name or 'GPU'}"
    if name is not None:
        yield _Rule(
            lambda o: (o.accelerator or "").upper() == name.upper(),
            lambda o: f"it has {o.accelerator or 'no GPU'}, not {name}",
        )
    yield _Rule(
        lambda o: o.accelerator is not None and o.accelerator_count == gpu.count,
        lambda o: f"it has {o.accelerator_count}x {o.accelerator or 'GPU'}, not {what}",
    )
    if memory is not None:
        wanted = _bound(memory, _gib(memory.value))
        yield _Rule(
            lambda o: memory.admits(o.gpu_memory),
            lambda o: f"its GPU has {_gib(o.gpu_memory)}, {wanted} asked for",
        )


def _price_rules(need: Need) -> Iterator[_Rule]:
    limit = need.max_price
    yield _Rule(lambda o: math.isfinite(o.price) and o.price >= 0, lambda _: "its price is not known")
    yield _Rule(
        lambda o: o.spot == need.spot,
        lambda o: "it is a spot offer" if o.spot else "it is no spot offer",
    )
    if limit is not None:
        yield _Rule(lambda o: o.price <= limit, lambda o: f"${o.price:g}/h is over max_price ${limit:g}/h")


def _bound(bound: Bound, text: str) -> str:
    return f"{text} or more" if bound.at_least else f"exactly {text}"


def _gib(size: float) -> str:
    return f"{size / _GIB:.4g} GiB"
