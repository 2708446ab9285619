"""The methods that make, change, show and end things: instances, their disks, and operations."""

from __future__ import annotations

import copy
from collections.abc import Callable

from tests.clouds.gcp import operations
from tests.clouds.gcp.call import Call, aggregated_by_zone, listed
from tests.clouds.gcp.checks import check_insert, check_labels, check_metadata
from tests.clouds.gcp.errors import ApiError, Json, not_found
from tests.clouds.gcp.world import ROOT, World, fingerprint


def insert(call: Call) -> Json:
    zone = call.zone
    with call.world.changed:  # two calls at once with one request id are one operation
        before = call.repeated()
        if before is not None:
            return before
        order = check_insert(call.world, zone, call.body)
        return call.life.insert(zone, call.body, order, call.fault, call.request)


def get(call: Call) -> Json:
    return call.world.instance(call.zone, call.path["instance"]).shape


def delete(call: Call) -> Json:
    before = call.repeated()
    if before is not None:
        return before
    return call.life.delete(call.world.instance(call.zone, call.path["instance"]), call.request)


def stop(call: Call) -> Json:
    return call.repeated() or call.life.stop(
        call.world.instance(call.zone, call.path["instance"]), call.request
    )


def list_instances(call: Call) -> Json:
    return listed(call, "instance", f"zones/{call.zone}/instances", call.world.visible(call.zone))


def aggregated(call: Call) -> Json:
    zones = {zone: call.world.visible(zone) for zone in call.world.facts.zones}
    return aggregated_by_zone(call, "instance", "instances", zones)


def serial_port(call: Call) -> Json:
    instance = call.world.instance(call.zone, call.path["instance"])
    if call.query.get("port", "1") != "1":
        return {"kind": "compute#serialPortOutput", "contents": "", "start": "0", "next": "0"}
    text = call.life.serial(instance).encode()
    start = int(call.query.get("start", "0"))
    return {
        "kind": "compute#serialPortOutput",
        "selfLink": f"{instance.shape['selfLink']}/serialPort",
        "contents": text[start:].decode(errors="replace"),
        "start": str(min(start, len(text))),
        "next": str(len(text)),
    }


def guest_attributes(call: Call) -> Json:
    instance = call.world.instance(call.zone, call.path["instance"])
    if instance.metadata.get("enable-guest-attributes", "").lower() != "true":
        message = "Guest attributes endpoint access is disabled, change guest attributes' policy or metadata."
        raise ApiError(403, "forbidden", message)
    query, key = call.query.get("queryPath", ""), call.query.get("variableKey", "")
    with call.world.changed:
        attributes = dict(instance.guest_attributes)
    shown: Json = {
        "kind": "compute#guestAttributes",
        "selfLink": f"{instance.shape['selfLink']}/getGuestAttributes",
    }
    if key:
        if key not in attributes:
            raise not_found(
                f"{call.world.path('zones', call.zone, 'instances', instance.name)}/guestAttributes/{key}"
            )
        return {**shown, "variableKey": key, "variableValue": attributes[key]}
    fit = {name: value for name, value in attributes.items() if not query or _below(name, query)}
    if not fit:
        raise not_found(
            f"{call.world.path('zones', call.zone, 'instances', instance.name)}/guestAttributes/{query}"
        )
    items = [
        {"namespace": name.partition("/")[0], "key": name.partition("/")[2], "value": value}
        for name, value in sorted(fit.items())
    ]
    return {**shown, "queryPath": query, "queryValue": {"items": items}}


def _below(name: str, query: str) -> bool:
    return name == query.rstrip("/") or name.startswith(query.rstrip("/") + "/")


def set_labels(call: Call) -> Json:
    instance = call.world.instance(call.zone, call.path["instance"])
    check_labels("labels", call.body.get("labels", {}))
    _same_fingerprint(call.body.get("labelFingerprint"), instance.shape["labelFingerprint"], "Labels")

    def effect() -> None:
        with call.world.change():
            instance.shape["labels"] = dict(call.body.get("labels", {}))
            instance.shape["labelFingerprint"] = fingerprint()

    return _changing(call, "setLabels", instance.shape, effect)


def set_metadata(call: Call) -> Json:
    instance = call.world.instance(call.zone, call.path["instance"])
    check_metadata(call.body)
    _same_fingerprint(call.body.get("fingerprint"), instance.shape["metadata"]["fingerprint"], "Metadata")

    def effect() -> None:
        with call.world.change():
            items = copy.deepcopy(call.body.get("items", []))
            instance.shape["metadata"].update(items=items, fingerprint=fingerprint())

    return _changing(call, "setMetadata", instance.shape, effect)


def _same_fingerprint(given: str | None, now: str, what: str) -> None:
    if given is None:
        raise ApiError(
            412, "conditionNotMet", f"{what} fingerprint either invalid or resource labels have changed"
        )
    if given != now:
        raise ApiError(
            412, "conditionNotMet", f"Supplied fingerprint does not match current {what.lower()} fingerprint."
        )


def _changing(call: Call, kind: str, shape: Json, effect: Callable[[], None]) -> Json:
    before = call.repeated()
    if before is not None:
        return before
    target = shape["selfLink"].removeprefix(call.world.url() + "/")
    return operations.begin(call.world, kind, call.zone, (target, shape["id"]), effect, request=call.request)


# ------------------------------------------------------------ disks


def list_disks(call: Call) -> Json:
    return listed(call, "disk", f"zones/{call.zone}/disks", _disks(call.world, call.zone))


def aggregated_disks(call: Call) -> Json:
    zones = {zone: _disks(call.world, zone) for zone in call.world.facts.zones}
    return aggregated_by_zone(call, "disk", "disks", zones)


def get_disk(call: Call) -> Json:
    with call.world.changed:
        found = call.world.disks.get((call.zone, call.path["disk"]))
    if found is None:
        raise not_found(call.world.path("zones", call.zone, "disks", call.path["disk"]))
    return found


def delete_disk(call: Call) -> Json:
    before = call.repeated()
    if before is not None:
        return before
    disk = get_disk(call)
    if disk["users"]:
        path, user = (link.removeprefix(ROOT) for link in (disk["selfLink"], disk["users"][0]))
        message = f"The disk resource '{path}' is already being used by '{user}'"
        raise ApiError(400, "resourceInUseByAnotherResource", message)

    def effect() -> None:
        with call.world.change():
            call.world.disks.pop((call.zone, disk["name"]), None)

    return _changing(call, "delete", disk, effect)


def _disks(world: World, zone: str) -> list[Json]:
    with world.changed:
        return [disk for (where, _), disk in world.disks.items() if where == zone]


# ------------------------------------------------------------ operations


def get_operation(call: Call) -> Json:
    return operations.find(call.world, call.zone, call.path["operation"])


def get_project_operation(call: Call) -> Json:
    return operations.find(call.world, operations.PROJECT, call.path["operation"])


def get_region_operation(call: Call) -> Json:
    return operations.find(call.world, call.region, call.path["operation"])


def wait_operation(call: Call) -> Json:
    return operations.wait(call.world, call.zone, call.path["operation"])


def list_operations(call: Call) -> Json:
    with call.world.changed:
        mine = [o for o in call.world.operations.values() if operations.is_of(o, call.zone)]
    return listed(call, "operation", f"zones/{call.zone}/operations", mine)
