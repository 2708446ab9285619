"""Replace offers without a recorded zone by one for each zone that may have them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from orchestrator.model import Offer


def expanded(offers: Iterable[Offer], zones: Mapping[str, Sequence[str]]) -> list[Offer]:
    """Return the offers in the same order. `zones`: the zones of each region; an offer in a region
    without zones is left out.
    """
    return [
        offer if offer.zone else replace(offer, zone=zone)
        for offer in offers
        for zone in ((offer.zone,) if offer.zone else sorted(zones.get(offer.region, ())))
    ]
