"""Collect for a plan, from the catalog or a provider: offers, and the warnings about them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from orchestrator import catalog
from orchestrator.errors import ProviderError
from orchestrator.model import Need, Offer, Provider, clouds


def is_recorded(cloud: str) -> bool:
    """Whether a plan for a profile with `cloud: cloud` needs only recorded data."""
    return cloud == clouds.ANY or cloud in catalog.clouds()


def offers_for(need: Need, provider: Provider | None) -> tuple[Offer, ...]:
    """Return what `provider` sells that satisfies `need` or almost does; without a provider, what is
    recorded.

    A region without recorded machines of the needed kind is asked once, and the answer is stored.
    """
    for region in _unrecorded(need) if provider else ():
        with suppress(ProviderError):  # warnings_for reports it
            catalog.refresh(need.cloud, region=region)
    serving: Sequence[Offer] = provider.offers(need) if provider else catalog.offers(need)
    return (*serving, *(catalog.near(need) if is_recorded(need.cloud) else ()))


def warnings_for(need: Need, offers: Sequence[Offer] = ()) -> tuple[str, ...]:
    """Return what makes a plan of `offers` for `need` uncertain: old or missing prices."""
    kind = "machines with accelerators" if _is_accelerated(need) else "machines without accelerators"
    lacking = (
        f"No prices of {need.cloud} in {region} are recorded here for {kind}; `up` asks for them, and so "
        f"does: orch catalog refresh {need.cloud} --region {region}"
        for region in _unrecorded(need)
    )
    first = offers[0] if offers else None
    return (*lacking, *(catalog.warnings(need, first=first) if is_recorded(need.cloud) else ()))


def _unrecorded(need: Need) -> tuple[str, ...]:
    """Return the requested or preferred regions for which the catalog has no machine of the needed kind.

    The shipped catalog records machines with accelerators for more regions than other machines.
    """
    asked = need.regions if need.region is None else (need.region,)
    if need.cloud not in catalog.clouds():
        return ()
    regions = [region for region in asked or (need.prefer,) if region]
    return tuple(region for region in regions if not _is_recorded_in(region, need))


def _is_recorded_in(region: str, need: Need) -> bool:
    known, accelerated = catalog.load(need.cloud), _is_accelerated(need)
    return region in known.facts.regions or any(
        sale.region == region
        for kind, how in known.sold
        if (kind.accelerator is not None) == accelerated
        for sale in known.sales_of(kind, how)
    )


def _is_accelerated(need: Need) -> bool:
    """Whether the needed machine has an accelerator; a named type decides."""
    if need.instance_type is None or need.cloud not in catalog.clouds():
        return need.accelerator is not None
    kinds = catalog.load(need.cloud).kinds
    return any(kind.accelerator for kind in kinds if kind.instance_type == need.instance_type)
