"""Ask a cloud, before anybody is asked to approve a price, for what would make the create call fail."""

from __future__ import annotations

import importlib
from collections.abc import Sequence

from orchestrator.errors import Fault, ProviderError
from orchestrator.model import Check, CheckState, Offer, Topic, Wanted, clouds
from orchestrator.profile import Profile


def require_ready(wanted: Profile, offers: Sequence[Offer]) -> tuple[str, ...]:
    """What to warn of. Raise ProviderError where network, quota, plan or a policy refuse the first offer.

    What cannot be told, for a permission or for an answer that does not come, stops nothing.
    """
    module = clouds.traits(wanted.cloud).readiness
    if not module or not offers:
        return ()
    need = wanted.need()
    checks: Sequence[Check] = importlib.import_module(module).before_up(
        Wanted(tuple(offers), need.disk, offers[0].region, need.image)
    )
    lacking = [check for check in checks if check.state is CheckState.MISSING]
    if lacking:
        first = min(lacking, key=lambda check: check.topic is Topic.QUOTA)
        raise ProviderError(
            Fault.QUOTA if first.topic is Topic.QUOTA else Fault.INVALID,
            " ".join(_sentence(check, offers[0].region) for check in lacking),
            code=f"Before{first.topic.title()}",
            exists="Nothing was made; nothing costs.",
            next_command=first.remedy,
        )
    return tuple(check.detail for check in checks if check.state is CheckState.WARNING)


def _sentence(check: Check, region: str) -> str:
    told = check.detail.rstrip(".")
    return (
        f"The quota {check.name} of {region} does not do: {told}."
        if check.topic is Topic.QUOTA
        else f"{told}."
    )
