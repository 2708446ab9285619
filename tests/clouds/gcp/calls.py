"""The methods of Compute Engine that are emulated, by their ids."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tests.clouds.gcp import operations
from tests.clouds.gcp.checks import check_insert, check_labels, check_metadata
from tests.clouds.gcp.errors import ApiError, Json, not_found
from tests.clouds.gcp.facts import DISK_TYPES, Image, MachineType, region_of
from tests.clouds.gcp.faults import Fault
from tests.clouds.gcp.lifecycle import Lifecycle
from tests.clouds.gcp.listing import page
from tests.clouds.gcp.world import ROOT, World, fingerprint, timestamp

EPOCH = "1969-12-31T16:00:00.000-08:00"


@dataclass(frozen=True)
class Call:
    """One call: method id, path values, query, body, and the fault that strikes after it was accepted."""

    world: World
    life: Lifecycle
    method: str
    path: Mapping[str, str]
    query: Mapping[str, str]
    body: Json
    fault: Fault | None = None

    @property
    def zone(self) -> str:
        zone = self.path["zone"]
        if zone not in self.world.facts.zones:
            message = f"Invalid value for field 'zone': '{zone}'. Unknown zone."
            raise ApiError(400, "invalid", message)
        return zone

    @property
    def request(self) -> tuple[str, str]:
        return self.method, self.query.get("requestId", "")

    def repeated(self) -> Json | None:
        return operations.repeated(self.world, *self.request)


# ------------------------------------------------------------ instances


def insert(call: Call) -> Json:
    before = call.repeated()
    if before is not None:
        return before
    zone = call.zone
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
    return _listed(call, "instance", f"zones/{call.zone}/instances", call.world.visible(call.zone))


def aggregated(call: Call) -> Json:
    zones = {zone: call.world.visible(zone) for zone in call.world.facts.zones}
    return _aggregated(call, "instance", "instances", zones)


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
    return _listed(call, "disk", f"zones/{call.zone}/disks", _disks(call.world, call.zone))


def aggregated_disks(call: Call) -> Json:
    zones = {zone: _disks(call.world, zone) for zone in call.world.facts.zones}
    return _aggregated(call, "disk", "disks", zones)


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


def wait_operation(call: Call) -> Json:
    return operations.wait(call.world, call.zone, call.path["operation"])


def list_operations(call: Call) -> Json:
    with call.world.changed:
        mine = [o for o in call.world.operations.values() if o["zone"].endswith(f"/{call.zone}")]
    return _listed(call, "operation", f"zones/{call.zone}/operations", mine)


# ------------------------------------------------------------ what is sold


def get_zone(call: Call) -> Json:
    zone = call.path["zone"]
    if zone not in call.world.facts.zones:
        raise not_found(call.world.path("zones", zone))
    return _zone(call.world, zone)


def list_zones(call: Call) -> Json:
    return _listed(call, "zone", "zones", [_zone(call.world, zone) for zone in call.world.facts.zones])


def get_region(call: Call) -> Json:
    region = call.path["region"]
    if region not in call.world.facts.regions:
        raise not_found(call.world.path("regions", region))
    return _region(call.world, region)


def list_regions(call: Call) -> Json:
    return _listed(call, "region", "regions", [_region(call.world, r) for r in call.world.facts.regions])


def get_machine_type(call: Call) -> Json:
    found = call.world.facts.type_in(call.zone, call.path["machineType"])
    if found is None:
        raise not_found(call.world.path("zones", call.zone, "machineTypes", call.path["machineType"]))
    return _machine_type(call.world, call.zone, found)


def list_machine_types(call: Call) -> Json:
    return _listed(call, "machineType", f"zones/{call.zone}/machineTypes", _types(call.world, call.zone))


def aggregated_machine_types(call: Call) -> Json:
    zones = {zone: _types(call.world, zone) for zone in call.world.facts.zones}
    return _aggregated(call, "machineType", "machineTypes", zones)


def get_accelerator_type(call: Call) -> Json:
    name = call.path["acceleratorType"]
    if call.zone not in call.world.facts.accelerators.get(name, frozenset()):
        raise not_found(call.world.path("zones", call.zone, "acceleratorTypes", name))
    return _accelerator(call.world, call.zone, name)


def list_accelerator_types(call: Call) -> Json:
    where = f"zones/{call.zone}/acceleratorTypes"
    return _listed(call, "acceleratorType", where, _accelerators(call.world, call.zone))


def aggregated_accelerator_types(call: Call) -> Json:
    zones = {zone: _accelerators(call.world, zone) for zone in call.world.facts.zones}
    return _aggregated(call, "acceleratorType", "acceleratorTypes", zones)


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


def image_from_family(call: Call) -> Json:
    project, family = call.path["project"], call.path["family"]
    found = call.world.facts.family_image(project, family)
    if found is None:
        raise not_found(f"projects/{project}/global/images/family/{family}")
    return _image(found)


def get_image(call: Call) -> Json:
    project, name = call.path["project"], call.path["image"]
    for image in call.world.facts.images:
        if (image.project, image.name) == (project, name):
            return _image(image)
    raise not_found(f"projects/{project}/global/images/{name}")


def list_images(call: Call) -> Json:
    mine = [_image(image) for image in call.world.facts.images if image.project == call.path["project"]]
    return _listed(call, "image", "global/images", mine)


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
    return _network(call, call.path["subnetwork"], "subnetwork", f"regions/{call.path['region']}/subnetworks")


def _network(call: Call, name: str, kind: str, where: str) -> Json:
    if name not in call.world.settings.networks:
        raise not_found(call.world.path(where, name))
    link = call.world.url(where, name)
    return {"kind": f"compute#{kind}", "id": "7", "name": name, "selfLink": link, "creationTimestamp": EPOCH}


# ------------------------------------------------------------ shapes and lists


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


def _image(image: Image) -> Json:
    features = ["UEFI_COMPATIBLE", "VIRTIO_SCSI_MULTIQUEUE", "GVNIC"]
    shown: Json = {
        "kind": "compute#image",
        "id": str(10**18 + sum(map(ord, image.path))),
        "name": image.name,
        "family": image.family,
        "status": "READY",
        "architecture": image.architecture,
        "diskSizeGb": str(image.disk),
        "archiveSizeBytes": str(image.disk << 29),
        "sourceType": "RAW",
        "guestOsFeatures": [{"type": feature} for feature in features],
        "selfLink": ROOT + image.path,
        "creationTimestamp": timestamp(1_790_000_000),
        "storageLocations": ["us"],
    }
    if image.deprecated:
        shown["deprecated"] = {"state": "DEPRECATED"}
    return shown


def _listed(call: Call, kind: str, where: str, items: list[Json]) -> Json:
    with call.world.changed:
        found, token = page([copy.deepcopy(item) for item in items], call.query)
    answer: Json = {
        "kind": f"compute#{kind}List",
        "id": call.world.path(where),
        "selfLink": call.world.url(where),
    }
    if found:
        answer["items"] = found
    if token:
        answer["nextPageToken"] = token
    return answer


def _aggregated(call: Call, kind: str, noun: str, zones: Mapping[str, list[Json]]) -> Json:
    """All zones at once: those with nothing carry a warning in place of items."""
    with call.world.changed:
        everything = [copy.deepcopy(item) for items in zones.values() for item in items]
    found, token = page(everything, call.query)
    scopes: Json = {}
    for zone in zones:
        mine = [item for item in found if item["zone"].rpartition("/")[2] == zone]
        scopes[f"zones/{zone}"] = {noun: mine} if mine else _nothing(f"zones/{zone}")
    answer: Json = {
        "kind": f"compute#{kind}AggregatedList",
        "id": call.world.path("aggregated", noun),
        "items": scopes,
        "selfLink": call.world.url("aggregated", noun),
    }
    if token:
        answer["nextPageToken"] = token
    return answer


def _nothing(scope: str) -> Json:
    message = f"There are no results for scope '{scope}' on this page."
    data = [{"key": "scope", "value": scope}]
    return {"warning": {"code": "NO_RESULTS_ON_PAGE", "message": message, "data": data}}


def refuse_unknown_project(call: Call) -> None:
    """Images of other projects are public; everything else of theirs is not ours to see."""
    project = call.path.get("project")
    if project in (None, call.world.settings.project, str(call.world.settings.number)):
        return
    if call.method.startswith("compute.images."):
        return
    message = f"The resource 'projects/{project}' was not found"
    raise ApiError(404, "notFound", message)


CALLS: Mapping[str, Callable[[Call], Json]] = {
    f"compute.{name}": function
    for name, function in {
        "instances.insert": insert,
        "instances.get": get,
        "instances.delete": delete,
        "instances.stop": stop,
        "instances.list": list_instances,
        "instances.aggregatedList": aggregated,
        "instances.getSerialPortOutput": serial_port,
        "instances.getGuestAttributes": guest_attributes,
        "instances.setLabels": set_labels,
        "instances.setMetadata": set_metadata,
        "disks.list": list_disks,
        "disks.get": get_disk,
        "disks.delete": delete_disk,
        "disks.aggregatedList": aggregated_disks,
        "zoneOperations.get": get_operation,
        "zoneOperations.wait": wait_operation,
        "zoneOperations.list": list_operations,
        "zones.get": get_zone,
        "zones.list": list_zones,
        "regions.get": get_region,
        "regions.list": list_regions,
        "machineTypes.get": get_machine_type,
        "machineTypes.list": list_machine_types,
        "machineTypes.aggregatedList": aggregated_machine_types,
        "acceleratorTypes.get": get_accelerator_type,
        "acceleratorTypes.list": list_accelerator_types,
        "acceleratorTypes.aggregatedList": aggregated_accelerator_types,
        "diskTypes.get": get_disk_type,
        "images.getFromFamily": image_from_family,
        "images.get": get_image,
        "images.list": list_images,
        "projects.get": get_project,
        "networks.get": get_network,
        "subnetworks.get": get_subnetwork,
    }.items()
}
