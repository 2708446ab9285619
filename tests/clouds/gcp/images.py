"""Images: the public ones, and those that are made of disks of this project.

https://cloud.google.com/compute/docs/images/create-custom
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from tests.clouds import disk_files
from tests.clouds.gcp import operations
from tests.clouds.gcp.call import Call, listed
from tests.clouds.gcp.checks import check_labels
from tests.clouds.gcp.errors import ApiError, Json, OperationError, exists, invalid, not_found, required
from tests.clouds.gcp.facts import Image
from tests.clouds.gcp.faults import OPERATION_KINDS, Place
from tests.clouds.gcp.machines import Running
from tests.clouds.gcp.world import ROOT, OwnImage, World, fingerprint, timestamp

_SOURCES = ("sourceDisk", "sourceImage", "sourceSnapshot", "rawDisk")
_MULTI_REGIONS = ("us", "eu", "asia")


def from_family(call: Call) -> Json:
    project, family = call.path["project"], call.path["family"]
    found = call.world.facts.family_image(project, family)
    if found is None:
        raise not_found(f"projects/{project}/global/images/family/{family}")
    return _public(found)


def get(call: Call) -> Json:
    project, name = call.path["project"], call.path["image"]
    if project == call.world.settings.project:
        return copy.deepcopy(_own(call.world, name).shape)
    for image in call.world.facts.images:
        if (image.project, image.name) == (project, name):
            return _public(image)
    raise not_found(f"projects/{project}/global/images/{name}")


def list_images(call: Call) -> Json:
    project = call.path["project"]
    if project == call.world.settings.project:
        with call.world.changed:
            found = [image.shape for image in call.world.images.values()]
    else:
        found = [_public(image) for image in call.world.facts.images if image.project == project]
    return listed(call, "image", "global/images", found)


def insert(call: Call) -> Json:
    world, asked = call.world, call.body
    name = str(asked.get("name", ""))
    if not name:
        raise required("name")
    check_labels("labels", asked.get("labels", {}))
    _check_locations(asked.get("storageLocations", []))
    disk = _source(world, asked)
    with world.change():
        before = call.repeated()
        if before is not None:
            return before
        if name in world.images:
            raise exists(_path(world, name))
        if call.query.get("forceCreate", "").lower() != "true":
            _require_at_rest(world, disk)
        made = OwnImage(_shape(world, asked, disk), _base(world, name, disk), None)
        world.images[name] = made

    def effect() -> None:
        if call.fault is not None:
            _end_badly(call, made)
        _store(call, made, disk)

    return _begin(call, "insert", made, effect)


def delete(call: Call) -> Json:
    world = call.world
    with world.change():
        before = call.repeated()
        if before is not None:
            return before
        doomed = _own(world, call.path["image"])
        if doomed.shape["status"] in ("PENDING", "DELETING"):
            path = _path(world, doomed.shape["name"])
            raise ApiError(400, "resourceNotReady", f"The resource '{path}' is not ready")
        doomed.shape["status"] = "DELETING"

    def effect() -> None:
        with world.change():
            world.images.pop(doomed.shape["name"], None)

    return _begin(call, "delete", doomed, effect)


# ---------------------------------------------------------------- inside


def _begin(call: Call, kind: str, image: OwnImage, effect: Callable[[], None]) -> Json:
    target = f"global/images/{image.shape['name']}", image.shape["id"]
    return operations.begin(call.world, kind, operations.PROJECT, target, effect, request=call.request)


def _own(world: World, name: str) -> OwnImage:
    with world.changed:
        found = world.images.get(name)
    if found is None:
        raise not_found(_path(world, name))
    return found


def _path(world: World, name: str) -> str:
    return world.path("global", "images", name)


def _check_locations(locations: list[str]) -> None:
    if len(locations) > 1:
        raise invalid("storageLocations", locations, "At most one storage location can be specified.")
    for one in locations:
        if one not in _MULTI_REGIONS and not re.fullmatch(r"[a-z]+-[a-z]+\d{1,2}", one):
            raise invalid("storageLocations[0]", one, "It is neither a region nor a multi-region.")


def _source(world: World, asked: Json) -> Json:
    """The disk that it is made of: other sources exist, and are not emulated."""
    if len([each for each in _SOURCES if asked.get(each)]) != 1:
        raise ApiError(
            400, "invalid", "Invalid resource usage: 'Must specify exactly one source for an image.'"
        )
    reference = str(asked.get("sourceDisk", ""))
    found = re.search(r"(?:^|/)zones/([^/]+)/disks/([^/]+)$", reference)
    if found is None:
        raise invalid("sourceDisk", reference, "The URL is malformed, or its kind is not emulated.")
    with world.changed:
        disk = world.disks.get((found[1], found[2]))
    if disk is None:
        raise not_found(world.path("zones", found[1], "disks", found[2]))
    return disk


def _require_at_rest(world: World, disk: Json) -> None:
    """A disk that a machine writes would be copied in the middle of its writes."""
    for user in disk["users"]:
        zone, _, name = user.rpartition("/zones/")[2].split("/")
        instance = world.instances.get((zone, name))
        if instance is not None and instance.shape["status"] != "TERMINATED":
            path, by = (link.removeprefix(ROOT) for link in (disk["selfLink"], user))
            message = f"The disk resource '{path}' is already being used by '{by}'"
            raise ApiError(400, "resourceInUseByAnotherResource", message)


def _shape(world: World, asked: Json, disk: Json) -> Json:
    region = disk["zone"].rpartition("/")[2].rpartition("-")[0]
    return {
        "labels": {},
        **copy.deepcopy(asked),
        "kind": "compute#image",
        "id": world.new_id(),
        "creationTimestamp": timestamp(),
        "selfLink": world.url("global", "images", asked["name"]),
        "status": "PENDING",
        "sourceType": "RAW",
        "sourceDisk": disk["selfLink"],
        "sourceDiskId": disk["id"],
        "diskSizeGb": disk["sizeGb"],
        "architecture": disk["architecture"],
        "labelFingerprint": fingerprint(),
        "storageLocations": asked.get("storageLocations") or [region.partition("-")[0]],
        "guestOsFeatures": disk.get("guestOsFeatures", []),
        "licenses": disk.get("licenses", []),
    }


def _base(world: World, name: str, disk: Json) -> Image:
    """The system in it is that of the image that its disk was made of."""
    source = world.image(disk["sourceImage"])
    assert source is not None
    return replace(
        source.base,
        project=world.settings.project,
        name=name,
        family="",
        disk=int(disk["sizeGb"]),
        drivers=source.base.driver,
    )


def _store(call: Call, made: OwnImage, disk: Json) -> None:
    """Store what the disk held. Where it goes before that is done, nothing is stored."""
    world, key = call.world, (disk["zone"].rpartition("/")[2], disk["name"])
    files = _files(world, key)
    world.stopping.wait(world.settings.image_s)
    with world.change():
        if world.disks.get(key) is not disk:
            made.shape["status"] = "FAILED"
            message = f"The resource '{world.path('zones', key[0], 'disks', key[1])}' was not found"
            raise OperationError("RESOURCE_NOT_FOUND", message, (404, "NOT FOUND"))
        made.files = files
        made.shape.update(status="READY", archiveSizeBytes=str(int(disk["sizeGb"]) << 28))


def _files(world: World, key: tuple[str, str]) -> Path | None:
    with world.changed:
        instance = world.instances.get(key)  # a boot disk has its instance's name
        kept = world.disk_files.get(key)
    if instance is not None and isinstance(instance.machine, Running) and instance.machine.alive():
        return disk_files.copied(instance.machine.pid, "gcp", world.state)
    return kept


def _end_badly(call: Call, made: OwnImage) -> None:
    """A refusal leaves no image, and a failure one that failed."""
    assert call.fault is not None
    world, name = call.world, str(made.shape["name"])
    with world.change():
        if call.fault.kind == "internal":
            made.shape["status"] = "FAILED"
        else:
            world.images.pop(name, None)
    raise OPERATION_KINDS[call.fault.kind](call.fault, Place(world.settings.project, "", _path(world, name)))


def _public(image: Image) -> Json:
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
        "guestOsFeatures": image.features,
        "selfLink": ROOT + image.path,
        "creationTimestamp": timestamp(1_790_000_000),
        "storageLocations": ["us"],
    }
    if image.deprecated:
        shown["deprecated"] = {"state": "DEPRECATED"}
    return shown
