"""Instances that name a resource policy: where they can be placed close together.

https://cloud.google.com/compute/docs/instances/placement-policies-overview; the words of the refusal of a
machine type: dstackai/dstack#2591.
"""

from __future__ import annotations

import re

from tests.clouds.gcp.errors import ApiError, Json, OperationError, invalid
from tests.clouds.gcp.facts import region_of
from tests.clouds.gcp.world import Instance, World

COMPACT = frozenset({"a2", "a3", "a4", "a4x", "c2", "c2d", "c3", "c3d", "g2", "g4", "h3", "n2", "n2d"})


def check_insert(world: World, zone: str, body: Json, family: str) -> None:
    """ApiError for an instance that cannot be placed by the policy that it names."""
    name = named_by(body, zone)
    if name is None:
        return
    found = world.placements.get((region_of(zone), name))
    if found is None or found["status"] != "READY":
        why = "The referenced resource policy cannot be found."
        raise invalid("resourcePolicies[0]", body["resourcePolicies"][0], why)
    if family not in COMPACT:
        kind = str(body["machineType"]).rpartition("/")[2]
        raise ApiError(400, "invalid", f"Placement policy is not applicable to machine type {kind}.")
    if body.get("scheduling", {}).get("onHostMaintenance") != "TERMINATE":
        message = "Instances with a collocated placement policy do not support live migration."
        raise ApiError(400, "badRequest", message)


def enter(world: World, instance: Instance) -> None:
    """OperationError where there is no room close to the other instances of its policy."""
    name = named_by(instance.shape, instance.zone)
    if name is None:
        return
    others = [
        one
        for one in world.instances.values()
        if one is not instance and named_by(one.shape, one.zone) == name
    ]
    if len(others) >= world.settings.crowded.get(instance.zone, len(others) + 1):
        message = (
            f"The zone '{world.path('zones', instance.zone)}' does not have enough resources available to "
            "fulfill the request, '(resource type:compute)'."
        )
        raise OperationError("ZONE_RESOURCE_POOL_EXHAUSTED", message, (503, "SERVICE UNAVAILABLE"))


def named_by(body: Json, zone: str) -> str | None:
    """The name of the policy of an instance; ApiError where it is not one of its region."""
    policies = body.get("resourcePolicies", [])
    if not policies:
        return None
    if len(policies) > 1:
        raise invalid("resourcePolicies", "", "At most one resource policy can be specified.")
    found = re.search(r"(?:^|/)regions/([^/]+)/resourcePolicies/([^/]+)$", policies[0])
    if found is None or found[1] != region_of(zone):
        why = "The URL is malformed, or of another region."
        raise invalid("resourcePolicies[0]", policies[0], why)
    return found[2]
