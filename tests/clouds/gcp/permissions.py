"""Which permissions each emulated method needs, as Google's reference of Compute Engine's IAM has them."""

from __future__ import annotations

import re
from collections.abc import Mapping

from tests.clouds.gcp.errors import ApiError, Json
from tests.clouds.gcp.world import World

NEEDED: Mapping[str, tuple[str, ...]] = {
    "compute.instances.insert": (
        "compute.instances.create",
        "compute.disks.create",
        "compute.subnetworks.use",
    ),
    "compute.instances.get": ("compute.instances.get",),
    "compute.instances.delete": ("compute.instances.delete",),
    "compute.instances.stop": ("compute.instances.stop",),
    "compute.instances.list": ("compute.instances.list",),
    "compute.instances.aggregatedList": ("compute.instances.list",),
    "compute.instances.getSerialPortOutput": ("compute.instances.getSerialPortOutput",),
    "compute.instances.getGuestAttributes": ("compute.instances.getGuestAttributes",),
    "compute.instances.setLabels": ("compute.instances.setLabels",),
    "compute.instances.setMetadata": ("compute.instances.setMetadata",),
    "compute.disks.list": ("compute.disks.list",),
    "compute.disks.aggregatedList": ("compute.disks.list",),
    "compute.disks.get": ("compute.disks.get",),
    "compute.disks.delete": ("compute.disks.delete",),
    "compute.zoneOperations.get": ("compute.zoneOperations.get",),
    "compute.zoneOperations.wait": ("compute.zoneOperations.get",),
    "compute.zoneOperations.list": ("compute.zoneOperations.list",),
    "compute.zones.get": ("compute.zones.get",),
    "compute.zones.list": ("compute.zones.list",),
    "compute.regions.get": ("compute.regions.get",),
    "compute.regions.list": ("compute.regions.list",),
    "compute.machineTypes.get": ("compute.machineTypes.get",),
    "compute.machineTypes.list": ("compute.machineTypes.list",),
    "compute.machineTypes.aggregatedList": ("compute.machineTypes.list",),
    "compute.acceleratorTypes.get": ("compute.acceleratorTypes.get",),
    "compute.acceleratorTypes.list": ("compute.acceleratorTypes.list",),
    "compute.acceleratorTypes.aggregatedList": ("compute.acceleratorTypes.list",),
    "compute.diskTypes.get": ("compute.diskTypes.get",),
    "compute.projects.get": ("compute.projects.get",),
    "compute.networks.get": ("compute.networks.get",),
    "compute.firewalls.get": ("compute.firewalls.get",),
    "compute.globalOperations.get": ("compute.globalOperations.get",),
    "compute.firewalls.list": ("compute.firewalls.list",),
    "compute.firewalls.insert": ("compute.firewalls.create", "compute.networks.updatePolicy"),
    "compute.firewalls.patch": ("compute.firewalls.update", "compute.networks.updatePolicy"),
    "compute.firewalls.delete": ("compute.firewalls.delete", "compute.networks.updatePolicy"),
    "compute.subnetworks.get": ("compute.subnetworks.get",),
    "compute.resourcePolicies.aggregatedList": ("compute.resourcePolicies.list",),
    "compute.resourcePolicies.get": ("compute.resourcePolicies.get",),
    "compute.resourcePolicies.insert": ("compute.resourcePolicies.create",),
    "compute.resourcePolicies.delete": ("compute.resourcePolicies.delete",),
    "compute.regionOperations.get": ("compute.regionOperations.get",),
    "compute.images.insert": ("compute.images.create",),
    "compute.images.list": ("compute.images.list",),
    "compute.images.get": ("compute.images.get",),
    "compute.images.getFromFamily": ("compute.images.getFromFamily",),
    "compute.images.delete": ("compute.images.delete",),
}
"""Images of public projects need none in one's own."""


def needed(method: str, body: Json) -> list[str]:
    """The permissions of one call; some fields of an insert need their own."""
    wanted = list(NEEDED.get(method, ()))
    if method == "compute.instances.insert":
        fields = {
            "compute.instances.setLabels": bool(body.get("labels")),
            "compute.instances.setMetadata": bool(body.get("metadata", {}).get("items")),
            "compute.instances.setTags": bool(body.get("tags", {}).get("items")),
            "compute.instances.setServiceAccount": bool(body.get("serviceAccounts")),
            "iam.serviceAccounts.actAs": bool(body.get("serviceAccounts")),
            "compute.resourcePolicies.use": bool(body.get("resourcePolicies")),
            "compute.subnetworks.useExternalIp": any(
                one.get("accessConfigs") for one in body.get("networkInterfaces", [])
            ),
            "compute.disks.setLabels": any(
                one.get("initializeParams", {}).get("labels") for one in body.get("disks", [])
            ),
        }
        wanted += [name for name, present in fields.items() if present]
    if method == "compute.images.insert":
        wanted += ["compute.disks.useReadOnly"] if body.get("sourceDisk") else []
        wanted += ["compute.images.setLabels"] if body.get("labels") else []
    return wanted


def require(world: World, method: str, path: Mapping[str, str], body: Json) -> None:
    """ApiError 403 for a permission that the caller is said to lack."""
    own = f"projects/{world.settings.project}/"
    if method.startswith("compute.images.") and path["project"] != world.settings.project:
        return
    wanted = needed(method, body)
    if any(own in one.get("initializeParams", {}).get("sourceImage", "") for one in body.get("disks", [])):
        wanted.append("compute.images.useReadOnly")
    for name in wanted:
        if name in world.settings.denied:
            where = [part for key in ("zone", "region") if key in path for part in (f"{key}s", path[key])]
            noun = "instances" if "instances" in method else method.split(".")[1]
            last = path.get("instance") or path.get("image") or path.get("resource") or body.get("name") or ""
            resource = world.path(*where, noun, *filter(None, [last]))
            message = f"Required '{name}' permission for '{resource}'"
            raise ApiError(403, "forbidden", message)


def granted(world: World, body: object) -> Json:
    """The answer of projects.testIamPermissions."""
    if (
        not isinstance(body, dict)
        or set(body) != {"permissions"}
        or not isinstance(body["permissions"], list)
    ):
        raise ApiError(400, "badRequest", "Invalid JSON payload received: permissions must be a list.")
    for name in body["permissions"]:
        if not isinstance(name, str) or not re.fullmatch(r"[a-z]+(\.[a-zA-Z]+){2}", name):
            raise ApiError(400, "badRequest", f"Permission {name} is not valid for this resource.")
    has = [name for name in body["permissions"] if name not in world.settings.denied]
    return {"permissions": has} if has else {}
