"""Compare catalogs with a need: the offers that satisfy it, and those that miss it by one rule. Pure
functions.

The rules are those of the plan. Kinds are checked before places, so that few offers are created from many
rows.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from operator import itemgetter

from orchestrator.catalog.rows import Catalog, Sale
from orchestrator.model import Need, Offer
from orchestrator.plan.fit import MANY, is_far, misses, rank

_Found = tuple[float, Offer, Sale]
"""(the requested price, the kind, where it is sold for that price)"""


def serving(need: Need, catalogs: Iterable[Catalog]) -> tuple[Offer, ...]:
    """Return the cheapest offers that satisfy `need`, best first, at most MANY; one for each known zone."""
    found = (
        each for kind, sales, wrong in _near(need, catalogs) if not wrong for each in _fit(need, kind, sales)
    )
    offers: list[Offer] = []
    last = (True, math.inf)
    for place, kind, sale in sorted(
        (((is_far(need, sale.region), price), kind, sale) for price, kind, sale in found), key=itemgetter(0)
    ):
        if place > last and len(offers) >= MANY:
            break
        last = place
        offers += _offers(need, kind, sale)
    return tuple(rank(need, offers)[:MANY])


def missing(need: Need, catalogs: Iterable[Catalog]) -> tuple[Offer, ...]:
    """Return offers that miss `need` by one rule: of each kind the cheapest for each such rule."""
    offers = []
    for kind, sales, wrong in _near(need, catalogs):
        best: dict[int, _Found] = {}
        for sale in sales:
            price = _price(need, sale)
            faults = _faults(need, sale, price)
            if wrong + len(faults) != 1:
                continue
            thing = faults[0] if faults else 0
            if thing not in best or _cheap((price, kind, sale)) < _cheap(best[thing]):
                best[thing] = (price, kind, sale)
        offers += [next(_offers(need, kind, sale)) for _, kind, sale in best.values()]
    return tuple(offers)


def _near(need: Need, catalogs: Iterable[Catalog]) -> Iterator[tuple[Offer, Sequence[Sale], int]]:
    """Return every kind that breaks at most one rule, with its sales and the number of broken rules."""
    lacks = misses(need)
    for catalog in catalogs:
        if need.cloud not in ("any", catalog.cloud):
            continue
        for kind, how in catalog.sold:
            there = replace(
                kind, region=need.region or need.prefer or "", zone=need.zone or "", spot=need.spot
            )
            wrong = lacks(there)
            if wrong < 2:
                yield kind, _there(need, catalog, kind, catalog.sales_of(kind, how)), wrong


def _there(need: Need, catalog: Catalog, kind: Offer, sales: Sequence[Sale]) -> Sequence[Sale]:
    """Return the sales of a GPU that name a zone, if some do: Google has prices also for regions without the
    GPU.

    A need without a GPU is not offered a machine with one only because nothing else is recorded: that is a
    gap in the catalog.
    """
    if not kind.accelerator:
        return sales
    if need.accelerator is None and need.instance_type is None:
        sales = [sale for sale in sales if sale.region in catalog.whole_regions]
    return [sale for sale in sales if sale.zones] if any(sale.zones for sale in sales) else sales


def _fit(need: Need, kind: Offer, sales: Sequence[Sale]) -> Iterator[_Found]:
    for sale in sales:
        price = _price(need, sale)
        if not _faults(need, sale, price):
            yield price, kind, sale


def _price(need: Need, sale: Sale) -> float:
    """Return the price; for spot without a known price the on-demand price, its maximum."""
    return sale.spot if need.spot and math.isfinite(sale.spot) else sale.price


def _faults(need: Need, sale: Sale, price: float) -> list[int]:
    """Return the numbers of the broken rules of place and price: region, zone, no price, too expensive."""
    wrong = (
        not need.is_in(sale.region),
        need.zone is not None and not _has(sale, need.zone),
        not math.isfinite(price),
        need.max_price is not None and price > need.max_price,
    )
    return [number for number, is_wrong in enumerate(wrong, 1) if is_wrong]


def _has(sale: Sale, zone: str) -> bool:
    """Whether a sale has the zone. A requested zone is assumed to exist if none is recorded: the cloud
    decides.
    """
    return zone in sale.zones or (not sale.zones and zone.startswith(sale.region))


def _cheap(found: _Found) -> tuple[float, str, tuple[str, ...]]:
    price, _, sale = found
    return (price if math.isfinite(price) else math.inf, sale.region, sale.zones)


def _offers(need: Need, kind: Offer, sale: Sale) -> Iterator[Offer]:
    bound = need.spot and not math.isfinite(sale.spot)
    for zone in _zones(need, sale):
        yield replace(
            kind,
            region=sale.region,
            zone=zone,
            price=_price(need, sale),
            spot=need.spot,
            on_demand=sale.price if need.spot and math.isfinite(sale.price) else None,
            price_is_bound=bound,
        )


def _zones(need: Need, sale: Sale) -> Sequence[str]:
    if need.zone is not None and _has(sale, need.zone):
        return (need.zone,)
    return sale.zones or ("",)
