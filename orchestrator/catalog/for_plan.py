"""What a plan makes of the catalog, or of a provider: offers, and the warnings that belong to them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from orchestrator import catalog
from orchestrator.errors import ProviderError
from orchestrator.model import Need, Offer, Provider, clouds


def is_recorded(cloud: str) -> bool:
    """Whether a plan for a profile with `cloud: cloud` needs nothing but what is recorded."""
    return cloud == clouds.ANY or cloud in catalog.clouds()


def offers_for(need: Need, provider: Provider | None) -> tuple[Offer, ...]:
    """What `provider` sells that serves `need`, and what almost does; without a provider, as recorded.

    A region of which nothing is recorded is asked about once, and the answer kept.
    """
    for region in _unrecorded(need) if provider else ():
        with suppress(ProviderError):  # warnings_for says it
            catalog.refresh(need.cloud, region=region)
    serving: Sequence[Offer] = provider.offers(need) if provider else catalog.offers(need)
    return (*serving, *(catalog.near(need) if is_recorded(need.cloud) else ()))


def warnings_for(need: Need) -> tuple[str, ...]:
    """What makes a plan for `need` less sure than it looks: prices that are old, or are not there."""
    lacking = (
        f"No prices of {need.cloud} in {region} are recorded here; `up` asks for them, and so does: "
        f"orch catalog refresh {need.cloud} --region {region}"
        for region in _unrecorded(need)
    )
    return (*lacking, *(catalog.warnings(need) if is_recorded(need.cloud) else ()))


def _unrecorded(need: Need) -> tuple[str, ...]:
    """The regions that are asked for, or preferred, of which the catalog records nothing."""
    asked = need.regions if need.region is None else (need.region,)
    if need.cloud not in catalog.clouds():
        return ()
    known = catalog.load(need.cloud)
    recorded = {sale.region for each in known.sales.values() for sale in each} | set(known.facts.regions)
    return tuple(region for region in asked or (need.prefer,) if region and region not in recorded)
