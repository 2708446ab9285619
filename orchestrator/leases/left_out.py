"""Remember refusals of create calls, and leave out offers that would be refused for the same reason."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.errors import Fault, ProviderError
from orchestrator.model import Offer, Progress
from orchestrator.model.progress import notice


class LeftOut:
    """The lasting refusals of one `up`. Waiting changes neither quotas nor networks, so they are kept
    between its tries.
    """

    def __init__(self) -> None:
        self._met: list[tuple[Offer, ProviderError]] = []

    def note(self, offer: Offer, error: ProviderError, tell: Progress) -> None:
        """Keep and report a refusal of `offer`, if it is a lasting one."""
        if is_lasting(error):
            self._met.append((offer, error))
            notice(tell, error.message)

    def has(self, offer: Offer) -> bool:
        """Return whether a kept refusal applies to `offer` too."""
        return any(
            (error.everywhere or offer.region == met.region)
            and (error.fault is not Fault.QUOTA or _needs_as_much(offer, met))
            for met, error in self._met
        )

    def others(self, offers: Sequence[Offer]) -> tuple[Offer, ...]:
        """Return the offers to which no kept refusal applies."""
        return tuple(offer for offer in offers if not self.has(offer))


def leads_on(error: ProviderError) -> bool:
    """Return whether another offer may succeed after this refusal."""
    return error.fault is Fault.CAPACITY or is_lasting(error)


def leads_apart(error: ProviderError) -> bool:
    """Return whether the same offer may succeed without a placement group after this refusal with one: the
    group, and not the machine, may be what was refused.
    """
    return not error.undecided and error.fault in (Fault.CAPACITY, Fault.QUOTA, Fault.AUTH, Fault.INVALID)


def is_lasting(error: ProviderError) -> bool:
    """Return whether the refusal will not change by waiting."""
    return error.fault is Fault.QUOTA or error.there_alone


def _needs_as_much(offer: Offer, met: Offer) -> bool:
    """Return whether an offer exceeds a quota that `met` exceeded. Quotas count CPUs, or GPUs of one
    name; spot machines have their own.
    """
    return (
        (offer.cloud, offer.spot, offer.accelerator) == (met.cloud, met.spot, met.accelerator)
        and offer.accelerator_count >= met.accelerator_count
        and offer.cpus >= met.cpus
    )
