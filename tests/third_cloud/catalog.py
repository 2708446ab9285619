"""Asks the third cloud for its types and prices. What ships lies in `data`."""

from __future__ import annotations

import os
from datetime import datetime

from orchestrator.catalog.rows import Catalog, Sale, Told
from orchestrator.model import Offer
from tests.third_cloud.provider import ThirdProvider


def renew(known: Catalog, region: str | None, now: datetime) -> Told:
    """Every type that is sold on demand, with its zones; of one region where `region` names it."""
    del known, now
    sold = [offer for offer in ThirdProvider(os.environ).sold() if region in (None, offer.region)]
    kinds = {offer.instance_type: _kind(offer) for offer in sold if not offer.spot}
    spot = {(offer.instance_type, offer.zone): offer.price for offer in sold if offer.spot}
    sales: dict[str, list[Sale]] = {name: [] for name in kinds}
    for offer in sold:
        if not offer.spot:
            price = spot.get((offer.instance_type, offer.zone), float("nan"))
            sales[offer.instance_type].append(Sale(offer.region, (offer.zone,), offer.price, price))
    return Told(tuple(kinds.values()), sales, ("the types of third",), everything=region is None)


def _kind(offer: Offer) -> Offer:
    return Offer("third", offer.instance_type, "", "", offer.cpus, offer.memory, offer.arch, 0.0)
