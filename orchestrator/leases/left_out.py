"""What a refusal of a create call says of other offers: those that would be refused as well are left out."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.errors import Fault, ProviderError
from orchestrator.model import Offer, Progress


class LeftOut:
    """Of one `up`. Waiting raises no quota and makes no network, so refusals are kept between its tries."""

    def __init__(self) -> None:
        self._met: list[tuple[Offer, ProviderError]] = []

    def note(self, offer: Offer, error: ProviderError, tell: Progress) -> None:
        """Keep a refusal of `offer`, and say it, where it lasts."""
        if is_lasting(error):
            self._met.append((offer, error))
            tell.say(error.message)

    def has(self, offer: Offer) -> bool:
        """Whether a refusal that was met holds for `offer` too."""
        return any(
            (error.everywhere or offer.region == met.region)
            and (error.fault is not Fault.QUOTA or _needs_as_much(offer, met))
            for met, error in self._met
        )

    def others(self, offers: Sequence[Offer]) -> tuple[Offer, ...]:
        """The offers for which none holds."""
        return tuple(offer for offer in offers if not self.has(offer))


def leads_on(error: ProviderError) -> bool:
    """Whether another offer may do where a create call is refused so."""
    return error.fault is Fault.CAPACITY or is_lasting(error)


def is_lasting(error: ProviderError) -> bool:
    """Whether it is refused however long anybody waits."""
    return error.fault is Fault.QUOTA or error.there_alone


def _needs_as_much(offer: Offer, met: Offer) -> bool:
    """Quotas count CPUs, or GPUs of one name; those of spot machines are others."""
    return (
        (offer.cloud, offer.spot, offer.accelerator) == (met.cloud, met.spot, met.accelerator)
        and offer.accelerator_count >= met.accelerator_count
        and offer.cpus >= met.cpus
    )
