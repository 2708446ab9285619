"""catalog: show and refresh the recorded types and prices."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from orchestrator import catalog
from orchestrator.catalog import Catalog
from orchestrator.errors import UsageError

if TYPE_CHECKING:
    from orchestrator.catalog.renewing import Renewed


def refresh(clouds: Sequence[str] = (), *, region: str | None = None) -> list[dict[str, Any]]:
    """Fetch current types and prices of `clouds` (default: all recorded ones); returns one mapping per cloud.

    Raises ProviderError at the first cloud that refuses; clouds before it are refreshed.
    """
    return [_renewed(catalog.refresh(cloud, region=region)) for cloud in _known(clouds)]


def show(clouds: Sequence[str] = ()) -> list[dict[str, Any]]:
    """How many types and prices of each cloud are recorded, their date and source."""
    return [_shown(catalog.load(cloud)) for cloud in _known(clouds)]


def _known(clouds: Sequence[str]) -> Sequence[str]:
    for cloud in clouds:
        if cloud not in catalog.clouds():
            raise UsageError(
                f"There is no catalog for {cloud!r}. Catalogs: {', '.join(catalog.clouds())}.",
                next_command="orch catalog show",
            )
    return clouds or catalog.clouds()


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
        "date": held.facts.of(None).isoformat(),
        "types": len(held.kinds),
        "prices": sum(len(sales) for sales in held.sales.values()),
        "regions": {region: held.facts.of(region).isoformat() for region in sorted(regions)},
        "accelerators": sorted({kind.accelerator for kind, _ in held.sold if kind.accelerator}),
        "sources": list(held.facts.sources),
        "notes": list(held.facts.notes),
        "warning": held.stale(datetime.now(UTC).date()),
    }
