"""The rules of instances.insert that no schema tells: what is required, and what goes with what."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from tests.clouds.gcp import facts, placing, policies, reserved
from tests.clouds.gcp.errors import ApiError, Json, invalid, not_found, required
from tests.clouds.gcp.facts import Image, MachineType
from tests.clouds.gcp.world import OwnImage, World

SHORTEST_RUN_S = 30
LONGEST_RUN_S = 120 * 86400
N1_GPU_COUNTS = (1, 2, 4, 8)


@dataclass(frozen=True)
class Order:
    """What an insert comes to: type, image and the files in it, boot disk size in GB, GPUs by type."""

    machine_type: MachineType
    image: Image
    files: Path | None
    disk: int
    gpu: str
    gpus: int


def check_insert(world: World, zone: str, body: Json) -> Order:
    """ApiError for what Compute Engine would refuse."""
    for name in ("name", "machineType"):
        if not body.get(name):
            raise required(name)
    machine_type = _machine_type(world, zone, body["machineType"])
    source, disk = _boot_disk(world, zone, body, machine_type)
    gpu, gpus = _accelerators(world, zone, body, machine_type)
    _check_scheduling(body.get("scheduling", {}), bool(gpus))
    _check_network(world, zone, body)
    check_labels("labels", body.get("labels", {}))
    check_metadata(body.get("metadata", {}))
    _check_service_accounts(body)
    _check_tags(body)
    policies.check_insert(world, zone, body)
    reserved.check_insert(world, zone, body)
    placing.check_insert(world, zone, body, machine_type.family)
    return Order(machine_type, source.base, source.files, disk, gpu, gpus)


def _machine_type(world: World, zone: str, reference: str) -> MachineType:
    found = re.search(r"(?:^|/)zones/([^/]+)/machineTypes/([^/]+)$", reference)
    if found is None:
        why = "The URL is malformed. Must be a valid Machine Type URL (full or partial)"
        raise invalid("machineType", reference, why)
    if found.group(1) != zone:
        raise invalid("machineType", reference, "Cross-zone reference: the zone must be the instance's own.")
    machine_type = world.facts.type_in(zone, found.group(2))
    if machine_type is None:
        name = found.group(2)
        why = f"Machine type with name '{name}' does not exist in zone '{zone}'."
        raise invalid("machineType", reference, why)
    return machine_type


def _boot_disk(world: World, zone: str, body: Json, machine_type: MachineType) -> tuple[OwnImage, int]:
    disks = body.get("disks", [])
    boot = [(number, disk) for number, disk in enumerate(disks) if disk.get("boot")]
    if not disks:
        raise invalid("disks", "", "No disks are specified.")
    if len(boot) != 1 or boot[0][0] != 0:
        raise invalid("disks[0].boot", "", "Boot disk must be the first disk attached to the instance.")
    for number, disk in enumerate(disks[1:], 1):
        _check_other_disk(number, disk)
    field = "disks[0].initializeParams"
    parameters = disks[0].get("initializeParams")
    if parameters is None:
        why = "Only new boot disks are emulated: initializeParams." if disks[0].get("source") else ""
        raise invalid(field, "", why or "A boot disk needs a source or initializeParams.")
    reference = parameters.get("sourceImage", "")
    if not reference:
        raise required(f"{field}.sourceImage")
    source = world.image(reference)
    if source is None:
        raise invalid(f"{field}.sourceImage", reference, "The referenced image resource cannot be found.")
    image = source.base
    if source.shape["status"] != "READY":
        raise ApiError(400, "resourceNotReady", f"The resource '{image.path}' is not ready")
    if image.architecture != machine_type.architecture:
        raise ApiError(
            400,
            "invalid",
            f"Requested boot disk architecture ({image.architecture}) is not compatible with machine type"
            f" architecture ({machine_type.architecture}).",
        )
    check_labels(f"{field}.labels", parameters.get("labels", {}))
    _check_disk_type(world, zone, parameters.get("diskType", ""), machine_type)
    size = int(parameters.get("diskSizeGb") or disks[0].get("diskSizeGb") or image.disk)
    if size < image.disk:
        why = f"Requested disk size cannot be smaller than the image size ({image.disk} GB)"
        raise invalid(f"{field}.diskSizeGb", size, why)
    if size > 65536:
        raise invalid(f"{field}.diskSizeGb", size, "Disk size cannot be larger than 65536 GB.")
    return source, size


def _check_other_disk(number: int, disk: Json) -> None:
    parameters = disk.get("initializeParams", {})
    scratch = disk.get("type") == "SCRATCH"
    if scratch and not parameters.get("diskType", "").endswith("/local-ssd"):
        raise invalid(f"disks[{number}].type", "SCRATCH", "A scratch disk must be of the type local-ssd.")
    if scratch and not disk.get("autoDelete"):
        raise invalid(f"disks[{number}].autoDelete", "false", "A scratch disk must be deleted automatically.")
    if not scratch and not parameters.get("diskSizeGb"):
        raise invalid(f"disks[{number}]", "", "A blank disk needs a size.")


def _check_disk_type(world: World, zone: str, reference: str, machine_type: MachineType) -> None:
    name = reference.rpartition("/")[2] or "pd-standard"
    if reference and not re.search(rf"(^|/)zones/{re.escape(zone)}/diskTypes/[^/]+$", reference):
        why = "The URL is malformed, or of another zone."
        raise invalid("disks[0].initializeParams.diskType", reference, why)
    if name not in facts.DISK_TYPES:
        raise not_found(world.path("zones", zone, "diskTypes", name))
    hyper = name.startswith("hyperdisk")
    family = machine_type.family
    if (family in facts.HYPERDISK_ONLY and not hyper) or (family in facts.NO_HYPERDISK and hyper):
        message = (
            f"[{machine_type.name}] {name} disk type cannot be used by {machine_type.name} machine type."
        )
        raise ApiError(400, "invalid", message)


def _accelerators(world: World, zone: str, body: Json, machine_type: MachineType) -> tuple[str, int]:
    """The GPU type and how many: those of the machine type, or the attached ones."""
    asked = body.get("guestAccelerators", [])
    if not asked:
        return machine_type.gpu, machine_type.gpus
    if len(asked) > 1:
        raise invalid("guestAccelerators", "", "At most one accelerator type can be specified.")
    count = asked[0].get("acceleratorCount", 0)
    reference = asked[0].get("acceleratorType", "")
    if not reference:
        raise required("guestAccelerators[0].acceleratorType")
    found = re.search(r"(?:^|/)zones/([^/]+)/acceleratorTypes/([^/]+)$", reference)
    if found is None or found.group(1) != zone:
        why = "The URL is malformed. It must be zones/ZONE/acceleratorTypes/TYPE of the instance's own zone."
        raise invalid("guestAccelerators[0].acceleratorType", reference, why)
    name = found.group(2)
    if zone not in world.facts.accelerators.get(name, frozenset()):
        raise not_found(world.path("zones", zone, "acceleratorTypes", name))
    if machine_type.gpu:
        if (name, count) != (machine_type.gpu, machine_type.gpus):
            raise ApiError(
                400,
                "badRequest",
                f"[{machine_type.name}] comes with {machine_type.gpus} of {machine_type.gpu};"
                f" guestAccelerators asks for {count} of {name}.",
            )
    elif machine_type.family not in ("n1", "custom") or name not in facts.ATTACHABLE:
        raise ApiError(
            400, "badRequest", f"[{name}] features are not compatible with machine type {machine_type.name}."
        )
    elif count not in N1_GPU_COUNTS:
        raise invalid(
            "guestAccelerators[0].acceleratorCount", count, "Accelerator count must be 1, 2, 4 or 8."
        )
    return name, count


def _check_scheduling(scheduling: Json, has_gpu: bool) -> None:
    model = scheduling.get("provisioningModel", "STANDARD")
    preemptible = scheduling.get("preemptible")
    if (model == "SPOT" and preemptible is False) or (
        model == "STANDARD" and _told(scheduling) and preemptible
    ):
        raise _bad("Scheduling must have preemptible equal to whether provisioningModel is SPOT.")
    spot = model == "SPOT" or bool(preemptible)
    if spot and scheduling.get("automaticRestart"):
        raise _bad("Scheduling must have preemptible be false when AutomaticRestart is true.")
    if spot and scheduling.get("onHostMaintenance", "TERMINATE") != "TERMINATE":
        raise _bad("Scheduling must have preemptible be false when OnHostMaintenance isn't TERMINATE.")
    if has_gpu and scheduling.get("onHostMaintenance") != "TERMINATE":
        raise _bad("Instances with guest accelerators do not support live migration.")
    _check_end(scheduling, spot)


def _check_end(scheduling: Json, spot: bool) -> None:
    duration, moment = scheduling.get("maxRunDuration"), scheduling.get("terminationTime")
    action = scheduling.get("instanceTerminationAction")
    limited = duration is not None or bool(moment)
    if duration is not None and moment:
        raise _bad("Only one of maxRunDuration and terminationTime can be specified.")
    if duration is not None:
        if int(duration.get("nanos", 0)):
            raise invalid("scheduling.maxRunDuration.nanos", duration["nanos"], "Only whole seconds.")
        seconds = int(duration.get("seconds", 0))
        if not SHORTEST_RUN_S <= seconds <= LONGEST_RUN_S:
            why = f"Must be at least {SHORTEST_RUN_S} seconds and at most 120 days ({LONGEST_RUN_S} seconds)."
            raise invalid("scheduling.maxRunDuration.seconds", seconds, why)
    if moment:
        try:
            aware = datetime.fromisoformat(moment).tzinfo is not None
        except ValueError:
            aware = False
        if not aware:
            raise invalid("scheduling.terminationTime", moment, "Must be an RFC 3339 time.")
    if action == "INSTANCE_TERMINATION_ACTION_UNSPECIFIED":
        raise invalid("scheduling.instanceTerminationAction", action, "Must be DELETE or STOP.")
    if limited and not action:
        raise _bad("instanceTerminationAction must be specified when maxRunDuration or terminationTime is.")
    if action and not limited and not spot:
        raise _bad("instanceTerminationAction needs a Spot VM or a limited run time.")


def _told(scheduling: Json) -> bool:
    return "provisioningModel" in scheduling


def _bad(message: str) -> ApiError:
    return ApiError(400, "badRequest", message)


def _check_network(world: World, zone: str, body: Json) -> None:
    interfaces = body.get("networkInterfaces", [])
    if not interfaces:
        raise invalid("networkInterfaces", "", "At least one network interface is required.")
    region = facts.region_of(zone)
    for number, interface in enumerate(interfaces):
        field = f"networkInterfaces[{number}]"
        network, subnet = interface.get("network", ""), interface.get("subnetwork", "")
        if network and not re.search(r"(^|/)(global/)?networks/[^/]+$", network):
            raise invalid(f"{field}.network", network, "The URL is malformed.")
        if network and not world.has_network(network.rpartition("/")[2]):
            raise invalid(f"{field}.network", network, "The referenced network resource cannot be found.")
        if subnet and not re.search(r"(^|/)regions/[^/]+/subnetworks/[^/]+$", subnet):
            raise invalid(f"{field}.subnetwork", subnet, "The URL is malformed.")
        if subnet and f"regions/{region}/" not in subnet:
            raise invalid(f"{field}.subnetwork", subnet, "It must be in the instance's own region.")
        if subnet and subnet.rpartition("/")[2] not in world.settings.networks:
            raise invalid(
                f"{field}.subnetwork", subnet, "The referenced subnetwork resource cannot be found."
            )
        if len(interface.get("accessConfigs", [])) > 1:
            raise invalid(f"{field}.accessConfigs", "", "At most one access config currently supported.")


_LABEL_RULE = (
    "can only contain lowercase letters, numeric characters, underscores and dashes. The {what} can be at"
    " most 63 characters long. International characters are allowed."
)


def check_labels(field: str, labels: Json) -> None:
    if len(labels) > 64:
        raise invalid(field, "", "At most 64 labels are allowed.")
    for key, value in labels.items():
        if not re.fullmatch(r"[^\W\d_A-Z][\w-]{0,62}", key) or key != key.lower():
            rule = "The key must start with a lowercase character, " + _LABEL_RULE.format(what="key")
            raise invalid(field, "", f"Label key '{key}' violates format constraints. {rule}")
        if not re.fullmatch(r"[\w-]{0,63}", value) or value != value.lower():
            rule = "The value " + _LABEL_RULE.format(what="value")
            raise invalid(field, "", f"Label value '{value}' violates format constraints. {rule}")


def check_metadata(metadata: Json) -> None:
    items = metadata.get("items", [])
    keys = [item.get("key", "") for item in items]
    for key in keys:
        if not re.fullmatch(r"[a-zA-Z0-9-_]{1,127}", key):
            raise invalid("metadata.items.key", key, "Must be a match of regex '[a-zA-Z0-9-_]{1,127}'")
        if keys.count(key) > 1:
            raise invalid("metadata.items", key, "Metadata has duplicate keys: each key must be unique.")
    for item in items:
        if len(item.get("value", "").encode()) > 256 << 10:
            raise invalid(
                f"metadata.items.{item['key']}", "", "Value is too large: at most 262144 characters."
            )
    total = sum(len(item.get("key", "")) + len(item.get("value", "").encode()) for item in items)
    if total > 512 << 10:
        raise invalid("metadata", "", "The total size of all metadata is limited to 512 KB.")


def _check_service_accounts(body: Json) -> None:
    accounts = body.get("serviceAccounts", [])
    if len(accounts) > 1:
        raise invalid("serviceAccounts", "", "At most one service account can be specified.")
    for account in accounts:
        email = account.get("email", "")
        if email != "default" and not re.fullmatch(r"[\w.-]+@[\w.-]+", email):
            raise invalid("serviceAccounts[0].email", email, "The user does not exist.")
        if not account.get("scopes"):
            raise invalid("serviceAccounts[0].scopes", "", "At least one scope must be specified.")
        for scope in account["scopes"]:
            if scope not in facts.SCOPES:
                raise invalid("serviceAccounts[0].scopes[0]", scope, "The referenced scope does not exist.")


def _check_tags(body: Json) -> None:
    items = body.get("tags", {}).get("items", [])
    for number, tag in enumerate(items):
        if not re.fullmatch(r"[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?", tag):
            why = "Must be a match of regex '(?:[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?)'"
            raise invalid(f"tags.items[{number}]", tag, why)
