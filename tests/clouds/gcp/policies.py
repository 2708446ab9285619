"""What the policies of an organisation refuse of an insert."""

from __future__ import annotations

from tests.clouds.gcp.errors import ApiError, Json
from tests.clouds.gcp.world import World


def check_insert(world: World, zone: str, body: Json) -> None:
    """What the organisation's policies refuse of an insert: 412, with the constraint in its words alone."""
    shield = body.get("shieldedInstanceConfig", {})
    whole = all(shield.get(f"enable{part}") for part in ("SecureBoot", "Vtpm", "IntegrityMonitoring"))
    image = body["disks"][0]["initializeParams"]["sourceImage"]
    owner = image[image.index("projects/") :].split("/")[1] if "projects/" in image else ""
    public = any(one.get("accessConfigs") for one in body.get("networkInterfaces", []))
    told = {item["key"]: item.get("value", "") for item in body.get("metadata", {}).get("items", [])}
    broken = {
        "compute.requireShieldedVm": not whole,
        "compute.trustedImageProjects": not _listed(
            world, "compute.trustedImageProjects", f"projects/{owner}"
        ),
        "gcp.resourceLocations": not _listed(
            world, "gcp.resourceLocations", f"in:{zone.rpartition('-')[0]}-locations"
        ),
        "compute.vmExternalIpAccess": public,
        "compute.requireOsLogin": told.get("enable-oslogin", "TRUE").upper() != "TRUE",
    }
    for name, is_broken in broken.items():
        policy = world.settings.policies.get(name, {})
        strict = policy.get("booleanPolicy", {}).get("enforced") or policy.get("listPolicy")
        if is_broken and strict:
            message = f"Constraint constraints/{name} violated for project {world.settings.project}."
            raise ApiError(412, "conditionNotMet", message)


def _listed(world: World, name: str, value: str) -> bool:
    return value in world.settings.policies.get(name, {}).get("listPolicy", {}).get("allowedValues", ())
