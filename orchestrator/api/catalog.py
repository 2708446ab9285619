"""catalog: what is recorded of types and prices, shown and renewed; and what a plan makes of it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from orchestrator import catalog
from orchestrator.catalog import Catalog
from orchestrator.errors import UsageError
from orchestrator.model import Need, Offer, Provider

if TYPE_CHECKING:
    from orchestrator.catalog.renewing import Renewed

RECORDED = (*catalog.CLOUDS, "any")
"""The clouds of profiles for which a plan needs nothing but what is recorded."""


def offers_for(need: Need, provider: Provider | None) -> tuple[Offer, ...]:
    """What `provider` sells that serves `need`, and what almost does; without a provider, as recorded."""
    serving: Sequence[Offer] = provider.offers(need) if provider else catalog.offers(need)
    return (*serving, *(catalog.near(need) if need.cloud in RECORDED else ()))


def warnings_for(need: Need) -> tuple[str, ...]:
    """What makes a plan for `need` less sure than it looks: prices that are old."""
    return catalog.warnings(need) if need.cloud in RECORDED else ()


def refresh(clouds: Sequence[str] = (), *, region: str | None = None) -> list[dict[str, Any]]:
    """Ask `clouds` (default: all that are recorded) what they sell now; what was learned, a mapping each.

    Raises ProviderError at the first that refuses; those before it are renewed.
    """
    return [_renewed(catalog.refresh(cloud, region=region)) for cloud in _known(clouds)]


def show(clouds: Sequence[str] = ()) -> list[dict[str, Any]]:
    """How much is recorded of each cloud, of when, and from where."""
    return [_shown(catalog.load(cloud)) for cloud in _known(clouds)]


def _known(clouds: Sequence[str]) -> Sequence[str]:
    for cloud in clouds:
        if cloud not in catalog.CLOUDS:
            raise UsageError(
                f"There is no catalog of {cloud!r}; there are {', '.join(catalog.CLOUDS)}.",
                next_command="orch catalog show",
            )
    return clouds or catalog.CLOUDS


def _renewed(renewed: Renewed) -> dict[str, Any]:
    return {
        "cloud": renewed.cloud,
        "date": renewed.date.isoformat(),
        "regions": list(renewed.regions),
        "types": renewed.types,
        "unpriced": list(renewed.unpriced),
        "folder": str(renewed.folder),
    }


def _shown(held: Catalog) -> dict[str, Any]:
    regions = {sale.region for sales in held.sales.values() for sale in sales}
    return {
        "cloud": held.cloud,
        "date": held.facts.date.isoformat(),
        "types": len(held.kinds),
        "prices": sum(len(sales) for sales in held.sales.values()),
        "regions": {region: held.facts.of(region).isoformat() for region in sorted(regions)},
        "accelerators": sorted({kind.accelerator for kind, _ in held.sold if kind.accelerator}),
        "sources": list(held.facts.sources),
        "notes": list(held.facts.notes),
        "warning": held.stale(datetime.now(UTC).date()),
    }
