"""Quotas that only a create call told: the offers that they would refuse as well are left out."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.errors import Fault, ProviderError
from orchestrator.model import Offer, Progress


class UsedUpQuotas:
    """Of one `up`. Waiting for capacity does not raise a quota, so they are kept between its tries."""

    def __init__(self) -> None:
        self._met: list[tuple[Offer, ProviderError]] = []

    def note(self, offer: Offer, error: ProviderError, tell: Progress) -> None:
        """Keep a refusal of `offer`, and say it, where it is one of a quota."""
        if error.fault is Fault.QUOTA:
            self._met.append((offer, error))
            tell.say(error.message)

    def refuses(self, offer: Offer) -> bool:
        """Whether `offer` needs at least as much of a quota as one that it has refused."""
        return any(
            (error.everywhere or offer.region == met.region) and _needs_as_much(offer, met)
            for met, error in self._met
        )

    def left(self, offers: Sequence[Offer]) -> tuple[Offer, ...]:
        return tuple(offer for offer in offers if not self.refuses(offer))


def _needs_as_much(offer: Offer, met: Offer) -> bool:
    """Quotas count CPUs, or GPUs of one name; those of spot machines are others."""
    return (
        (offer.cloud, offer.spot, offer.accelerator) == (met.cloud, met.spot, met.accelerator)
        and offer.accelerator_count >= met.accelerator_count
        and offer.cpus >= met.cpus
    )
