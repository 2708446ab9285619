"""What clouds sell, as data: types, zones, prices, and the age of prices.

`offers` returns what satisfies a need, from recorded data; `near` returns what misses it by one rule. Only
`refresh` uses a network.
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
    """Return the clouds whose catalog is part of the package."""
    return tuple(each.name for each in registered.every() if each.catalog)


def load(cloud: str, *, refreshed: Path | None = None) -> Catalog:
    """Return the newest catalog of `cloud`: the shipped one, or one that `refresh` stored in the folder
    `refreshed` (default: cache_folder()). Raises KeyError for a cloud without a catalog.
    """
    if cloud not in clouds():
        raise KeyError(f"there is no catalog of {cloud}; there are {', '.join(clouds())}")
    return newest(cloud, refreshed or cache_folder(), _loaded)


def offers(
    need: Need, *, clouds: Sequence[str] | None = None, refreshed: Path | None = None
) -> tuple[Offer, ...]:
    """Return what satisfies `need` in the catalogs of `clouds` (default: all), best first, as the plan ranks.

    At most plan.fit.MANY; one offer for each known zone. The zone is "" if none is recorded, or the one that
    was asked for. A spot offer without a recorded price has the on-demand price, its maximum
    (`price_is_bound`).
    """
    return serving(need, _of(need, clouds, refreshed))


def near(
    need: Need, *, clouds: Sequence[str] | None = None, refreshed: Path | None = None
) -> tuple[Offer, ...]:
    """Return offers that miss `need` by exactly one rule; the plan names the rule."""
    return missing(need, _of(need, clouds, refreshed))


def warnings(
    need: Need,
    *,
    clouds: Sequence[str] | None = None,
    refreshed: Path | None = None,
    today: date | None = None,
    first: Offer | None = None,
) -> tuple[str, ...]:
    """Return a sentence for each cloud of `need` whose prices are older than 30 days.

    These are the prices of the region that `need` names; without one, of the region of `first`, the best
    offer.
    """
    day = today or datetime.now(UTC).date()
    accelerated = bool(first.accelerator if first else need.accelerator)
    found = (
        catalog.stale(day, _region(need, catalog, first), accelerated=accelerated)
        for catalog in _of(need, clouds, refreshed)
    )
    return tuple(sentence for sentence in found if sentence)


def _region(need: Need, catalog: Catalog, first: Offer | None) -> str | None:
    return need.region or (first.region if first and first.cloud == catalog.cloud else None)


def refresh(cloud: str, *, region: str | None = None, refreshed: Path | None = None) -> Renewed:
    """Ask `cloud` what it sells now and store the answer for `load`. The only function here that uses a
    network.

    Without `region`, the cloud's module decides whether to ask for one region or for all. Raises
    ProviderError, in which case nothing has changed.
    """
    from orchestrator.catalog.renewing import refresh as renew

    return renew(load(cloud, refreshed=refreshed), region=region, folder=refreshed)


def _of(need: Need, named: Sequence[str] | None, refreshed: Path | None) -> list[Catalog]:
    asked = clouds() if named is None else named
    return [load(cloud, refreshed=refreshed) for cloud in asked if need.cloud in (registered.ANY, cloud)]
