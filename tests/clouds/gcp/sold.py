"""The methods that tell what is sold where: zones, regions, machine types, GPUs, disk types."""

from __future__ import annotations

from tests.clouds.gcp.call import Call, aggregated_by_zone, listed
from tests.clouds.gcp.errors import Json, not_found
from tests.clouds.gcp.facts import DISK_TYPES, MachineType, region_of
from tests.clouds.gcp.world import World

EPOCH = "1969-12-31T16:00:00.000-08:00"


def get_zone(call: Call) -> Json:
    zone = call.path["zone"]
    if zone not in call.world.facts.zones:
        raise not_found(call.world.path("zones", zone))
    return _zone(call.world, zone)


def list_zones(call: Call) -> Json:
    return listed(call, "zone", "zones", [_zone(call.world, zone) for zone in call.world.facts.zones])


def get_region(call: Call) -> Json:
    region = call.path["region"]
    if region not in call.world.facts.regions:
        raise not_found(call.world.path("regions", region))
    return _region(call.world, region)


def list_regions(call: Call) -> Json:
    return listed(call, "region", "regions", [_region(call.world, r) for r in call.world.facts.regions])


def get_machine_type(call: Call) -> Json:
    found = call.world.facts.type_in(call.zone, call.path["machineType"])
    if found is None:
        raise not_found(call.world.path("zones", call.zone, "machineTypes", call.path["machineType"]))
    return _machine_type(call.world, call.zone, found)


def list_machine_types(call: Call) -> Json:
    return listed(call, "machineType", f"zones/{call.zone}/machineTypes", _types(call.world, call.zone))


def aggregated_machine_types(call: Call) -> Json:
    zones = {zone: _types(call.world, zone) for zone in call.world.facts.zones}
    return aggregated_by_zone(call, "machineType", "machineTypes", zones)


def get_accelerator_type(call: Call) -> Json:
    name = call.path["acceleratorType"]
    if call.zone not in call.world.facts.accelerators.get(name, frozenset()):
        raise not_found(call.world.path("zones", call.zone, "acceleratorTypes", name))
    return _accelerator(call.world, call.zone, name)


def list_accelerator_types(call: Call) -> Json:
    where = f"zones/{call.zone}/acceleratorTypes"
    return listed(call, "acceleratorType", where, _accelerators(call.world, call.zone))


def aggregated_accelerator_types(call: Call) -> Json:
    zones = {zone: _accelerators(call.world, zone) for zone in call.world.facts.zones}
    return aggregated_by_zone(call, "acceleratorType", "acceleratorTypes", zones)


def get_disk_type(call: Call) -> Json:
    name = call.path["diskType"]
    if name not in DISK_TYPES:
        raise not_found(call.world.path("zones", call.zone, "diskTypes", name))
    link = call.world.url("zones", call.zone, "diskTypes", name)
    zone = call.world.url("zones", call.zone)
    return {
        "kind": "compute#diskType",
        "name": name,
        "selfLink": link,
        "zone": zone,
        "creationTimestamp": EPOCH,
    }


def get_project(call: Call) -> Json:
    settings = call.world.settings
    return {
        "kind": "compute#project",
        "id": str(settings.number),
        "name": settings.project,
        "creationTimestamp": EPOCH,
        "selfLink": call.world.url(),
        "defaultServiceAccount": f"{settings.number}-compute@developer.gserviceaccount.com",
        "commonInstanceMetadata": {"kind": "compute#metadata", "fingerprint": "AAAAAAAAAAA="},
        "quotas": call.world.quota(""),
    }


def get_network(call: Call) -> Json:
    return _network(call, call.path["network"], "network", "global/networks")


def get_subnetwork(call: Call) -> Json:
    name = call.path["subnetwork"]
    found = _network(call, name, "subnetwork", f"regions/{call.path['region']}/subnetworks")
    return {**found, "network": call.world.url("global/networks", name)}


def _network(call: Call, name: str, kind: str, where: str) -> Json:
    if not call.world.has_network(name):
        raise not_found(call.world.path(where, name))
    link = call.world.url(where, name)
    return {"kind": f"compute#{kind}", "id": "7", "name": name, "selfLink": link, "creationTimestamp": EPOCH}


def _zone(world: World, zone: str) -> Json:
    return {
        "kind": "compute#zone",
        "id": str(2000 + world.facts.zones.index(zone)),
        "name": zone,
        "description": zone,
        "status": "UP",
        "region": world.url("regions", region_of(zone)),
        "selfLink": world.url("zones", zone),
        "creationTimestamp": EPOCH,
    }


def _region(world: World, region: str) -> Json:
    zones = [world.url("zones", zone) for zone in world.facts.zones if region_of(zone) == region]
    return {
        "kind": "compute#region",
        "id": str(1000 + world.facts.regions.index(region)),
        "name": region,
        "description": region,
        "status": "UP",
        "zones": zones,
        "quotas": world.quota(region),
        "selfLink": world.url("regions", region),
        "creationTimestamp": EPOCH,
    }


def _types(world: World, zone: str) -> list[Json]:
    return [_machine_type(world, zone, one) for one in world.facts.types.values() if zone in one.zones]


def _machine_type(world: World, zone: str, one: MachineType) -> Json:
    shown: Json = {
        "kind": "compute#machineType",
        "id": str(1 + sum(map(ord, one.name))),
        "name": one.name,
        "guestCpus": one.vcpus,
        "memoryMb": one.memory,
        "architecture": one.architecture,
        "isSharedCpu": one.name in ("e2-micro", "e2-small", "e2-medium"),
        "zone": zone,
        "selfLink": world.url("zones", zone, "machineTypes", one.name),
        "creationTimestamp": EPOCH,
        "description": f"{one.vcpus} vCPUs, {one.memory / 1024:g} GB RAM",
    }
    if one.gpus:
        shown["accelerators"] = [{"guestAcceleratorType": one.gpu, "guestAcceleratorCount": one.gpus}]
    return shown


def _accelerators(world: World, zone: str) -> list[Json]:
    return [
        _accelerator(world, zone, name) for name, zones in world.facts.accelerators.items() if zone in zones
    ]


def _accelerator(world: World, zone: str, name: str) -> Json:
    return {
        "kind": "compute#acceleratorType",
        "id": str(10000 + sum(map(ord, name))),
        "name": name,
        "description": name.replace("-", " ").upper().replace("TESLA ", ""),
        "maximumCardsPerInstance": 16 if "a100" in name else 8,
        "zone": world.url("zones", zone),
        "selfLink": world.url("zones", zone, "acceleratorTypes", name),
        "creationTimestamp": EPOCH,
    }
