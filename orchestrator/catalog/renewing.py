"""Ask clouds what they sell now, and store the answer beside what was known before."""

from __future__ import annotations

import datetime
import importlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from orchestrator.catalog.keeping import cache_folder, keep
from orchestrator.catalog.rows import Attachable, Catalog, Facts, Sale, Told
from orchestrator.errors import Fault, ProviderError
from orchestrator.model import clouds


@dataclass(frozen=True)
class Renewed:
    """The result of a refresh. `unpriced` are types without a known price, which are never chosen."""

    cloud: str
    regions: tuple[str, ...]
    types: int
    unpriced: tuple[str, ...]
    folder: Path
    date: datetime.date


def refresh(
    known: Catalog,
    *,
    region: str | None = None,
    folder: Path | None = None,
    now: datetime.datetime | None = None,
) -> Renewed:
    """Ask the cloud of `known` and store the answer, completely or not at all, in `folder` (default: the
    cache).

    Without `region`, the cloud's module decides whether to ask for one region or for all. What is known of
    other regions stays, with its own date. Raises ProviderError, in which case nothing has changed.
    """
    at = now or datetime.datetime.now(datetime.UTC)
    told: Told = importlib.import_module(clouds.traits(known.cloud).catalog).renew(known, region, at)
    sales = told.sales
    regions = {sale.region for found in sales.values() for sale in found}
    if not regions:
        raise ProviderError(
            Fault.INVALID,
            f"{known.cloud} names no machine type in {region or 'any region'}.",
            code="NoTypes",
            exists="The catalog is as it was.",
            next_command=f"orch catalog show {known.cloud}",
        )
    facts = Facts(at.date(), told.sources, told.notes, dict.fromkeys(sorted(regions), at.date()))
    fresh = Catalog(known.cloud, tuple(told.kinds), sales, told.attachable, facts)
    whole = merged(known, fresh, everything=told.everything)
    return Renewed(
        known.cloud,
        tuple(sorted(regions)),
        len(told.kinds),
        tuple(
            sorted(name for name, found in sales.items() if not any(math.isfinite(s.price) for s in found))
        ),
        keep(whole, folder or cache_folder(), at),
        at.date(),
    )


def merged(known: Catalog, fresh: Catalog, *, everything: bool = False) -> Catalog:
    """Replace what `known` has for the regions of `fresh`; everything, if `fresh` is complete."""
    if everything:
        return fresh
    renewed = set(fresh.facts.regions)
    sales = {
        name: [
            *(sale for sale in known.sales.get(name, ()) if sale.region not in renewed),
            *fresh.sales.get(name, ()),
        ]
        for name in {**known.sales, **fresh.sales}
    }
    sales = {name: found for name, found in sales.items() if found}
    kinds = {kind.instance_type: kind for kind in (*known.kinds, *fresh.kinds)}
    sold = tuple(kind for name, kind in kinds.items() if name in sales)
    attachable = _attachable(known.attachable, fresh.attachable, renewed)
    return Catalog(known.cloud, sold, sales, attachable, _facts(known.facts, fresh.facts, sales))


def _attachable(
    known: Sequence[Attachable], fresh: Sequence[Attachable], renewed: set[str]
) -> tuple[Attachable, ...]:
    found = {
        gpu.attach: gpu._replace(sales=[s for s in gpu.sales if s.region not in renewed]) for gpu in known
    }
    for gpu in fresh:
        before = found.get(gpu.attach)
        found[gpu.attach] = gpu._replace(sales=[*(before.sales if before else ()), *gpu.sales])
    return tuple(gpu for gpu in found.values() if gpu.sales)


def _facts(known: Facts, fresh: Facts, sales: Mapping[str, Sequence[Sale]]) -> Facts:
    """Return the facts of the merged catalog; its date is the oldest that remains."""
    days = {**known.regions, **fresh.regions}
    regions = {sale.region for found in sales.values() for sale in found}
    oldest = min((days.get(region, known.date) for region in regions), default=fresh.date)
    before = () if regions <= set(days) else (known,)
    sources = (source for facts in (fresh, *before) for source in facts.sources)
    notes = (note for facts in (fresh, *before) for note in facts.notes)
    return Facts(oldest, tuple(dict.fromkeys(sources)), tuple(dict.fromkeys(notes)), days, known.plain)
