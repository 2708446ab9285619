"""Ask a cloud, before a price is approved, for what would make the create call fail."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from orchestrator.errors import NOTHING_CREATED, Fault, ProviderError
from orchestrator.model import Check, CheckState, Offer, Topic, Wanted, clouds
from orchestrator.profile import Profile

MOST_REGIONS = 4
"""Regions whose quota is checked: each takes a few requests, and most lists have dozens."""

_FAULTS = {Topic.QUOTA: Fault.QUOTA, Topic.CREDENTIALS: Fault.AUTH}
"""The fault for each topic; INVALID for all others."""


@dataclass(frozen=True)
class Ready:
    """`offers`: best first, the first one without a known refusal.

    `warnings`: reasons why it may still fail.
    """

    offers: tuple[Offer, ...]
    warnings: tuple[str, ...]


def require_ready(wanted: Profile, offers: Sequence[Offer]) -> Ready:
    """Return the offers without regions whose quota is used up; warnings name those.

    Raise ProviderError if there are no credentials; if the network, the plan or a policy refuses the first
    offer; or if the quota of every region that was asked is used up. What cannot be determined, because a
    permission is missing or an answer does not come, is not an error.
    """
    refused: list[Check] = []
    left, first = tuple(offers), None
    for _ in range(MOST_REGIONS):
        checks = _asked(wanted, left)
        lacking = [check for check in checks if check.state is CheckState.MISSING]
        short = [check for check in lacking if check.topic is Topic.QUOTA]
        if not lacking:
            told = (check.detail for check in checks if check.state is CheckState.WARNING)
            return Ready(left, (*_left_out(refused), *told))
        first = first or _refusal(lacking, left[0].region)
        others = tuple(offer for offer in left if offer.region != left[0].region)
        if len(short) < len(lacking) or not others:
            break
        refused += short
        left = others
    assert first is not None
    raise first


def _asked(wanted: Profile, offers: Sequence[Offer]) -> Sequence[Check]:
    """The known refusals of the first offer, and warnings."""
    module = clouds.traits(wanted.cloud).readiness
    if not module or not offers:
        return ()
    disk, image = wanted.need().disk, wanted.need().image
    checks: Sequence[Check] = importlib.import_module(module).before_up(
        Wanted(tuple(offers), disk, offers[0].region, image)
    )
    return checks


def _left_out(refused: Sequence[Check]) -> Iterator[str]:
    for check in refused:
        yield f"left out for its quota: {check.detail.rstrip('.')}. To raise it: {check.remedy}"


def _refusal(lacking: Sequence[Check], region: str) -> ProviderError:
    first = min(lacking, key=lambda check: check.topic is Topic.QUOTA)
    return ProviderError(
        _FAULTS.get(first.topic, Fault.INVALID),
        " ".join(_sentence(check, region) for check in lacking),
        code=f"Before{first.topic.title()}",
        exists=NOTHING_CREATED,
        next_command=first.remedy,
    )


def _sentence(check: Check, region: str) -> str:
    told = check.detail.rstrip(".")
    return (
        f"The quota {check.name} of {region} is not enough: {told}."
        if check.topic is Topic.QUOTA
        else f"{told}."
    )
