"""Spread the offers of a region over its zones, so that a zone without capacity does not exclude the
others.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from orchestrator.errors import Fault, ProviderError
from orchestrator.model import Offer
from orchestrator.providers.aws.clients import Clients, asking

MOST_TYPES = 50
"""Maximum number of types whose zones are requested, the cheapest first; others keep the catalog's offers."""

_AT_ONCE = 8
"""Regions that are queried in parallel."""


def with_zones(clients: Clients, offers: Sequence[Offer]) -> list[Offer]:
    """Replace each offer without a zone by one for each zone that has its type.

    Without credentials the offers stay as they are, so that prices can be shown.
    """
    open_ended = [offer for offer in offers if not offer.zone]
    by_region: dict[str, set[str]] = {}
    for offer in open_ended:
        types = by_region.setdefault(offer.region, set())
        if len(types) < MOST_TYPES:
            types.add(offer.instance_type)
    sold: dict[tuple[str, str], list[str]] = {}
    with ThreadPoolExecutor(max_workers=_AT_ONCE) as pool:
        for found in pool.map(lambda region: _sold(clients, region, by_region[region]), by_region):
            sold |= found
    return [
        placed
        for offer in offers
        for placed in _placed(offer, sold.get((offer.region, offer.instance_type), []), by_region)
    ]


def _placed(offer: Offer, zones: Sequence[str], asked: dict[str, set[str]]) -> list[Offer]:
    if offer.zone or offer.instance_type not in asked.get(offer.region, ()):
        return [offer]
    return [replace(offer, zone=zone) for zone in zones]


def _sold(clients: Clients, region: str, types: set[str]) -> dict[tuple[str, str], list[str]]:
    filters = [{"Name": "instance-type", "Values": sorted(types)}]
    sold: dict[tuple[str, str], list[str]] = {(region, name): [] for name in types}
    try:
        with asking(clients, region):
            pages = clients.ec2(region).get_paginator("describe_instance_type_offerings")
            for page in pages.paginate(LocationType="availability-zone", Filters=filters):
                for found in page["InstanceTypeOfferings"]:
                    sold[region, found["InstanceType"]].append(found["Location"])
    except ProviderError as error:
        if error.fault is not Fault.AUTH:
            raise
        return {(region, name): [""] for name in types}
    return {key: sorted(zones) for key, zones in sold.items()}


def catalog_regions() -> tuple[str, ...]:
    """Return the regions of the catalog: orch creates machines nowhere else."""
    from orchestrator import catalog

    sales = catalog.load("aws").sales.values()
    return tuple(sorted({sale.region for sold in sales for sale in sold}))
