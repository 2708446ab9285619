"""Where the data of a profile is stored, and the transfer cost if the machine is elsewhere."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache

from orchestrator.errors import OrchError
from orchestrator.model import Offer, clouds
from orchestrator.model.cloud_traits import CloudTraits
from orchestrator.profile import Profile
from orchestrator.profile.units import show_size
from orchestrator.session import buckets
from orchestrator.storage import open_store

_LEAST_USD = 0.05


def region_of_data(wanted: Profile) -> str | None:
    """The region of the profile's cloud that holds all its buckets; None if there is no single one."""
    urls = [each.bucket for each in wanted.data if each.bucket]
    places = {_place(url) for url in urls}
    owners = (_owner(url) for url in urls)
    near = all(owner is not None and owner.name == wanted.cloud for owner in owners)
    (place,) = places if near and len(places) == 1 else ("",)
    return place if "-" in place else None  # a bucket in several regions has no such name


def usd_per_gib(url: str, where: str, cloud: str, region: str) -> float:
    """The transfer price from `where` (a region or continent) to a machine in that region of that cloud."""
    owner = _owner(url)
    if owner is None or not owner.egress or (owner.name, where) == (cloud, region):
        return 0.0
    usd: float = clouds.resolve(owner.egress)(where, region if owner.name == cloud else None)
    return usd


def transfer_warnings(pins: Sequence[buckets.Pin], offer: Offer | None) -> tuple[str, ...]:
    """Transfer costs that the first offer adds for each bucket in another place."""
    return tuple(_warnings(pins, offer)) if offer else ()


def _warnings(pins: Sequence[buckets.Pin], offer: Offer) -> Iterator[str]:
    for pin in pins:
        place = _place(pin.source)
        usd = pin.size / (1 << 30) * usd_per_gib(pin.source, place, offer.cloud, offer.region)
        if place and usd >= _LEAST_USD:
            yield (
                f"{pin.source} ({show_size(pin.size)}) is in {place}, and the machine in {offer.region} of "
                f"{offer.cloud}: each machine that downloads it adds about ${usd:.2f} for data transfer "
                "(at recorded list prices)"
            )


def _owner(url: str) -> CloudTraits | None:
    """The cloud whose object storage a URL belongs to."""
    scheme = url.partition("://")[0]
    return next((each for each in clouds.every() if each.buckets == scheme), None)


@lru_cache(maxsize=64)
def _place(url: str) -> str:
    """The location of a bucket, which never changes."""
    above = url.rstrip("/").partition("://")
    try:
        return open_store(f"{above[0]}://{above[2].partition('/')[0]}").region()
    except OrchError:
        return ""
