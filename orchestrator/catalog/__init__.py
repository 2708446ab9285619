"""What clouds sell, as data: types, zones, prices, and how old they are. Read quickly, renewed on request.

`offers` answers a need from what is recorded; `near` adds what misses it by one thing. Nothing here
reaches a network but `refresh`.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.catalog.keeping import cache_folder, newest
from orchestrator.catalog.rows import Catalog, Facts
from orchestrator.catalog.selling import missing, serving
from orchestrator.model import Need, Offer
from orchestrator.model import clouds as registered

if TYPE_CHECKING:
    from orchestrator.catalog.renewing import Renewed

__all__ = ["Catalog", "Facts", "cache_folder", "clouds", "load", "near", "offers", "refresh", "warnings"]

_loaded: dict[Path, Catalog] = {}


def clouds() -> tuple[str, ...]:
    """The clouds of which a catalog ships."""
    return tuple(each.name for each in registered.every() if each.catalog)


def load(cloud: str, *, refreshed: Path | None = None) -> Catalog:
    """The newest catalog of `cloud`: the shipped one, or one that `refresh` kept in the folder `refreshed`
    (default: cache_folder()). Raises KeyError for a cloud without one."""
    if cloud not in clouds():
        raise KeyError(f"there is no catalog of {cloud}; there are {', '.join(clouds())}")
    return newest(cloud, refreshed or cache_folder(), _loaded)


def offers(
    need: Need, *, clouds: Sequence[str] | None = None, refreshed: Path | None = None
) -> tuple[Offer, ...]:
    """What serves `need` in the catalogs of `clouds` (default: all), best first as the plan ranks.

    At most plan.fit.MANY; one offer for each zone known.
    Zone "" where no zone is recorded, or the zone asked for. A spot offer whose price nobody recorded
    states the price on demand, the most that it may cost (`price_is_bound`).
    """
    return serving(need, _of(need, clouds, refreshed))


def near(
    need: Need, *, clouds: Sequence[str] | None = None, refreshed: Path | None = None
) -> tuple[Offer, ...]:
    """Offers that miss `need` by exactly one thing, for the plan to say which."""
    return missing(need, _of(need, clouds, refreshed))


def warnings(
    need: Need,
    *,
    clouds: Sequence[str] | None = None,
    refreshed: Path | None = None,
    today: date | None = None,
    first: Offer | None = None,
) -> tuple[str, ...]:
    """A sentence for each cloud of `need` whose prices are older than 30 days.

    They are those of its region; where it names none, those of the region of `first`, the offer on top."""
    day = today or datetime.now(UTC).date()
    found = (catalog.stale(day, _region(need, catalog, first)) for catalog in _of(need, clouds, refreshed))
    return tuple(sentence for sentence in found if sentence)


def _region(need: Need, catalog: Catalog, first: Offer | None) -> str | None:
    return need.region or (first.region if first and first.cloud == catalog.cloud else None)


def refresh(cloud: str, *, region: str | None = None, refreshed: Path | None = None) -> Renewed:
    """Ask `cloud` what it sells now and keep the answer for `load`. The only function here that reaches out.

    Without `region`, a cloud is asked for what its module in this room says: one region, or all.
    Raises ProviderError, and then nothing has changed.
    """
    from orchestrator.catalog.renewing import refresh as renew

    return renew(load(cloud, refreshed=refreshed), region=region, folder=refreshed)


def _of(need: Need, named: Sequence[str] | None, refreshed: Path | None) -> list[Catalog]:
    asked = clouds() if named is None else named
    return [load(cloud, refreshed=refreshed) for cloud in asked if need.cloud in (registered.ANY, cloud)]
