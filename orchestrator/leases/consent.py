"""The price that was approved, and the question that is asked again where only a dearer offer is left."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import replace

from orchestrator.errors import Fault, ProviderError
from orchestrator.model import Offer
from orchestrator.plan import Plan
from orchestrator.profile import Profile

Approve = Callable[[Plan], bool]


class Consent:
    """Of one `up`. Without `approve`, as for scripts that ask nobody, every offer that fits will do.

    `agreed`: US dollars an hour to which somebody said yes before.
    """

    def __init__(self, approve: Approve | None, wanted: Profile, agreed: float | None = None) -> None:
        self._approve = approve
        self._wanted = wanted
        self._price = agreed

    def require(self, planned: Plan, offer: Offer) -> None:
        """Raise ProviderError where `offer` is dearer than what was approved, and is not approved now.

        The first offer is what the plan showed."""
        approved = self._price
        self._price = offer.price if approved is None else max(approved, offer.price)
        if self._approve is None or approved is None or offer.price <= approved:
            return
        rest = planned.offers[planned.offers.index(offer) :] if offer in planned.offers else (offer,)
        again = replace(
            planned,
            offers=rest,
            price=offer.price,
            worst_case=planned.cost(offer),
            most=self._wanted.max_price,
        )
        if not self._approve(again):
            raise ProviderError(
                Fault.CAPACITY,
                f"What was approved cannot be had. The next, {offer.instance_type} in "
                f"{offer.zone or offer.region}, costs ${offer.price:.4g}/h, not ${approved:.4g}/h.",
                code="DearerNotApproved",
                exists="Nothing was created; nothing costs money.",
                next_command=f"orch up {shlex.quote(str(self._wanted.path))} --yes "
                f"--set max_price={offer.price:.4g}    # or without --yes, to be asked",
            )
