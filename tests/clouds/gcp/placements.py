"""Resource policies that place instances close together: made, shown and deleted."""

from __future__ import annotations

from collections.abc import Callable

from tests.clouds.gcp import operations
from tests.clouds.gcp.call import Call, aggregated_by_region
from tests.clouds.gcp.errors import ApiError, Json, exists, invalid, not_found, required
from tests.clouds.gcp.faults import OPERATION_KINDS, Place
from tests.clouds.gcp.placing import named_by
from tests.clouds.gcp.world import World, timestamp


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
