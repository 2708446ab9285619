"""Resource policies that place instances close together, and the inserts that name one.

https://cloud.google.com/compute/docs/instances/placement-policies-overview; the words of the refusal of a
machine type: dstackai/dstack#2591.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from tests.clouds.gcp import operations
from tests.clouds.gcp.call import Call, aggregated_by_region
from tests.clouds.gcp.errors import ApiError, Json, OperationError, exists, invalid, not_found, required
from tests.clouds.gcp.facts import region_of
from tests.clouds.gcp.faults import OPERATION_KINDS, Place
from tests.clouds.gcp.world import Instance, World, timestamp

_COMPACT = frozenset({"a2", "a3", "c2", "c2d", "c3", "c3d", "g2", "h3", "n2", "n2d"})


def aggregated(call: Call) -> Json:
    regions = {region: _shown(call.world, region) for region in call.world.facts.regions}
    return aggregated_by_region(call, "resourcePolicy", "resourcePolicies", regions)


def get(call: Call) -> Json:
    found = next((one for one in _shown(call.world, call.region) if one["name"] == _name(call)), None)
    if found is None:
        raise not_found(_path(call.world, call.region, _name(call)))
    return found


def insert(call: Call) -> Json:
    world, region, name = call.world, call.region, str(call.body.get("name", ""))
    if not name:
        raise required("name")
    if call.body.get("groupPlacementPolicy", {}).get("collocation") != "COLLOCATED":
        raise invalid("groupPlacementPolicy", "", "Only collocated placement is emulated.")
    policy = {**call.body, "id": world.new_id(), "creationTimestamp": timestamp()}
    with world.change():
        before = call.repeated()
        if before is not None:
            return before
        if (region, name) in world.placements:
            raise exists(_path(world, region, name))
        world.placements[region, name] = {**policy, "status": "CREATING"}

        def effect() -> None:
            world.placements[region, name] = {**policy, "status": "READY"}

        def undo() -> None:
            del world.placements[region, name]

        return _begin(call, "insert", policy, effect, undo)


def delete(call: Call) -> Json:
    world, region = call.world, call.region
    with world.change():
        before = call.repeated()
        if before is not None:
            return before
        policy = get(call)
        users = [one for one in world.instances.values() if named_by(one.shape, one.zone) == policy["name"]]
        if users:
            user = world.path("zones", users[0].zone, "instances", users[0].name)
            message = (
                f"The resource_policy resource '{_path(world, region, policy['name'])}' is already being "
                f"used by '{user}'"
            )
            raise ApiError(400, "resourceInUseByAnotherResource", message)

        def effect() -> None:
            world.placements.pop((region, policy["name"]), None)

        return _begin(call, "delete", policy, effect, lambda: None)


def check_insert(world: World, zone: str, body: Json, family: str) -> None:
    """ApiError for an instance that cannot be placed by the policy that it names."""
    name = named_by(body, zone)
    if name is None:
        return
    found = world.placements.get((region_of(zone), name))
    if found is None or found["status"] != "READY":
        why = "The referenced resource policy cannot be found."
        raise invalid("resourcePolicies[0]", body["resourcePolicies"][0], why)
    if family not in _COMPACT:
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


# ------------------------------------------------------------ inside


def _begin(call: Call, kind: str, policy: Json, change: Callable[[], None], undo: Callable[[], None]) -> Json:
    world, region, name = call.world, call.region, str(policy["name"])

    def effect() -> None:
        with world.change():
            if call.fault is not None:
                undo()
                raise OPERATION_KINDS[call.fault.kind](call.fault, Place(world.settings.project, "", name))
            change()

    target = f"regions/{region}/resourcePolicies/{name}", str(policy["id"])
    return operations.begin(world, kind, region, target, effect, request=call.request)


def _name(call: Call) -> str:
    return call.path["resourcePolicy"]


def _path(world: World, region: str, name: str) -> str:
    return world.path("regions", region, "resourcePolicies", name)


def _shown(world: World, region: str) -> list[Json]:
    with world.changed:
        return [
            {
                "kind": "compute#resourcePolicy",
                **policy,
                "region": world.url("regions", region),
                "selfLink": world.url("regions", region, "resourcePolicies", name),
            }
            for (where, name), policy in world.placements.items()
            if where == region
        ]
