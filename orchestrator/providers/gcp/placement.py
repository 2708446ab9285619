"""The resource policies that keep the machines of a group close together: one for each zone that was tried.

Google places a machine with such a policy as close to the others as it can, and refuses it if there is no
room. The policy's description has the group. Every step looks first, so it may be repeated.
"""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.errors import Fault, ProviderError
from orchestrator.providers.gcp.calls import Json
from orchestrator.providers.gcp.names import (
    GROUP_PREFIX,
    described_group,
    describes,
    last,
    policy_name,
    region_of,
)
from orchestrator.providers.gcp.policy_calls import PolicyCalls
from orchestrator.providers.groups import still_in_use


def require(calls: PolicyCalls, zone: str, group: str) -> None:
    """Create the policy of the group in this zone, if it is missing."""
    name, region = policy_name(group, zone), region_of(zone)
    if calls.policy(region, name) is not None:
        return
    policy = {
        "name": name,
        "description": describes(group),
        "groupPlacementPolicy": {"collocation": "COLLOCATED"},
    }
    try:
        calls.make_policy(region, policy)
    except ProviderError as error:
        if error.fault is not Fault.CONFLICT:  # another call, or an earlier one, has made it
            raise


def separate(calls: PolicyCalls, group: str) -> None:
    """Delete the policies of the group."""
    for one in ours(calls):
        if group_of(one) == group:
            remove(calls, one)


def ours(calls: PolicyCalls) -> Sequence[Json]:
    """Return the policies of orch. None if they may not be listed: then `require` made none."""
    try:
        return calls.policies(f"{GROUP_PREFIX}.*")
    except ProviderError as error:
        if error.fault is not Fault.AUTH:
            raise
        return ()


def remove(calls: PolicyCalls, policy: Json) -> None:
    """Delete the policy. Raise TRANSIENT while machines have it, also those that are ending."""
    region, name = last(str(policy["region"])), str(policy["name"])
    try:
        calls.remove_policy(region, name)
    except ProviderError as error:
        if not is_in_use(error):
            raise
        raise still_in_use("Google", f"placement policy {name}", region, error) from error


def is_in_use(error: ProviderError) -> bool:
    return error.code.replace("_", "").lower() == "resourceinusebyanotherresource"


def group_of(policy: Json) -> str:
    return described_group(str(policy.get("description", "")))
