"""What a plan makes of the catalog, or of a provider: offers, and the warnings that belong to them."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator import catalog
from orchestrator.model import Need, Offer, Provider, clouds


def is_recorded(cloud: str) -> bool:
    """Whether a plan for a profile with `cloud: cloud` needs nothing but what is recorded."""
    return cloud == clouds.ANY or cloud in catalog.clouds()


def offers_for(need: Need, provider: Provider | None) -> tuple[Offer, ...]:
    """What `provider` sells that serves `need`, and what almost does; without a provider, as recorded."""
    serving: Sequence[Offer] = provider.offers(need) if provider else catalog.offers(need)
    return (*serving, *(catalog.near(need) if is_recorded(need.cloud) else ()))


def warnings_for(need: Need) -> tuple[str, ...]:
    """What makes a plan for `need` less sure than it looks: prices that are old."""
    return catalog.warnings(need) if is_recorded(need.cloud) else ()
