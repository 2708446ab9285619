"""The approved price, and the question that is asked again if only a more expensive offer is left."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import replace

from orchestrator.errors import NOTHING_CREATED, Fault, ProviderError
from orchestrator.model import Offer
from orchestrator.plan import Plan
from orchestrator.profile import Profile

Approve = Callable[[Plan], bool]
"""Receives a plan with its price; returns whether to go on."""


class Consent:
    """The approval of one `up`. Without `approve` (scripts), every offer that fits is accepted.

    `agreed`: US dollars per hour that were approved before. `up`: the command that was typed; default: one
    without options.
    """

    def __init__(
        self, approve: Approve | None, wanted: Profile, agreed: float | None = None, *, up: str = ""
    ) -> None:
        self._approve = approve
        self._wanted = wanted
        self._up = up or f"orch up {shlex.quote(str(wanted.path))}"
        self._price = agreed

    def require(self, planned: Plan, offer: Offer) -> None:
        """Raise ProviderError if `offer` costs more than was approved and is not approved now.

        The first offer is the one that the plan showed.
        """
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
        total = offer.price * self._wanted.resources.nodes
        if not self._approve(again):
            raise ProviderError(
                Fault.CAPACITY,
                f"The approved machine is not available. The next offer, {offer.instance_type} in "
                f"{offer.zone or offer.region}, costs ${offer.price:.4g}/h, not ${approved:.4g}/h.",
                code="DearerNotApproved",
                exists=NOTHING_CREATED,
                next_command=f"{self._up} --yes --set max_price={total:.4g}    "
                "# or without --yes, to be asked",
            )
