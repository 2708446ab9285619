"""How the API shows an instance and its disk, made from what was asked for."""

from __future__ import annotations

import copy
import time
from datetime import datetime

from tests.clouds.gcp.checks import Order
from tests.clouds.gcp.errors import Json
from tests.clouds.gcp.facts import region_of
from tests.clouds.gcp.world import ROOT, World, fingerprint, timestamp

_GPU_METRICS = {
    "nvidia-tesla-t4": "NVIDIA_T4_GPUS",
    "nvidia-l4": "NVIDIA_L4_GPUS",
    "nvidia-tesla-a100": "NVIDIA_A100_GPUS",
    "nvidia-a100-80gb": "NVIDIA_A100_80GB_GPUS",
    "nvidia-tesla-v100": "NVIDIA_V100_GPUS",
    "nvidia-tesla-p100": "NVIDIA_P100_GPUS",
    "nvidia-tesla-p4": "NVIDIA_P4_GPUS",
}


def instance(world: World, zone: str, asked: Json, order: Order) -> Json:
    """The instance as it is shown while it is being made."""
    shape = copy.deepcopy(asked)
    name = shape["name"]
    shape.update(
        kind="compute#instance",
        id=world.new_id(),
        creationTimestamp=timestamp(),
        selfLink=world.url("zones", zone, "instances", name),
        zone=world.url("zones", zone),
        status="PROVISIONING",
        machineType=world.url("zones", zone, "machineTypes", order.machine_type.name),
        cpuPlatform="Unknown CPU Platform",
        labelFingerprint=fingerprint(),
        fingerprint=fingerprint(),
        startRestricted=False,
        deletionProtection=bool(shape.get("deletionProtection")),
        canIpForward=bool(shape.get("canIpForward")),
    )
    shape["tags"] = {**shape.get("tags", {}), "fingerprint": fingerprint()}
    shape["metadata"] = {
        "kind": "compute#metadata",
        "fingerprint": fingerprint(),
        **{k: v for k, v in shape.get("metadata", {}).items() if k == "items"},
    }
    shape["scheduling"] = _scheduling(shape.get("scheduling", {}))
    shape["disks"] = [_attached(world, zone, name, n, disk, order) for n, disk in enumerate(shape["disks"])]
    for number, interface in enumerate(shape["networkInterfaces"]):
        _fill_interface(world, zone, number, interface)
    for account in shape.get("serviceAccounts", []):
        if account["email"] == "default":
            account["email"] = f"{world.settings.number}-compute@developer.gserviceaccount.com"
    if order.gpus:
        accelerator = world.url("zones", zone, "acceleratorTypes", order.gpu)
        shape["guestAccelerators"] = [{"acceleratorType": accelerator, "acceleratorCount": order.gpus}]
    return shape


def _scheduling(asked: Json) -> Json:
    spot = asked.get("provisioningModel") == "SPOT" or bool(asked.get("preemptible"))
    return {
        "onHostMaintenance": "TERMINATE" if spot else "MIGRATE",
        "automaticRestart": not spot,
        "provisioningModel": "SPOT" if asked.get("provisioningModel") == "SPOT" else "STANDARD",
        **asked,
        "preemptible": spot,
        **({"instanceTerminationAction": asked.get("instanceTerminationAction", "STOP")} if spot else {}),
    }


def _attached(world: World, zone: str, name: str, number: int, asked: Json, order: Order) -> Json:
    parameters = asked.pop("initializeParams", {})
    size = str(order.disk) if number == 0 else str(parameters.get("diskSizeGb", 375))
    disk_name = parameters.get("diskName") or (name if number == 0 else f"{name}-{number}")
    return {
        "type": "PERSISTENT",
        "mode": "READ_WRITE",
        **asked,
        "kind": "compute#attachedDisk",
        "index": number,
        "boot": number == 0,
        "autoDelete": bool(asked.get("autoDelete")),
        "deviceName": asked.get("deviceName") or f"persistent-disk-{number}",
        "interface": asked.get("interface", "SCSI"),
        "diskSizeGb": size,
        "source": world.url("zones", zone, "disks", disk_name),
        **({"architecture": order.image.architecture} if number == 0 else {}),
    }


def _fill_interface(world: World, zone: str, number: int, interface: Json) -> None:
    subnet = interface.get("subnetwork", "").rpartition("/")[2]
    network = interface.get("network", "").rpartition("/")[2] or subnet or "default"
    interface.update(
        kind="compute#networkInterface",
        name=f"nic{number}",
        fingerprint=fingerprint(),
        network=world.url("global", "networks", network),
        subnetwork=world.url("regions", region_of(zone), "subnetworks", subnet or network),
        stackType=interface.get("stackType", "IPV4_ONLY"),
    )
    for config in interface.get("accessConfigs", []):
        config.update(kind="compute#accessConfig", networkTier=config.get("networkTier", "PREMIUM"))
        config.setdefault("type", "ONE_TO_ONE_NAT")
        config.setdefault("name", "External NAT")


def boot_disk(world: World, zone: str, asked: Json, shape: Json, order: Order) -> Json:
    """The disk that is made with the instance, as disks.get shows it."""
    parameters = asked["disks"][0]["initializeParams"]
    source = shape["disks"][0]["source"]
    return {
        "kind": "compute#disk",
        "id": world.new_id(),
        "name": source.rpartition("/")[2],
        "creationTimestamp": timestamp(),
        "sizeGb": str(order.disk),
        "zone": world.url("zones", zone),
        "status": "READY",
        "selfLink": source,
        "sourceImage": ROOT + order.image.path,
        "type": world.url(
            "zones", zone, "diskTypes", parameters.get("diskType", "").rpartition("/")[2] or "pd-standard"
        ),
        "labels": parameters.get("labels", {}),
        "labelFingerprint": fingerprint(),
        "architecture": order.image.architecture,
        "guestOsFeatures": order.image.features,
        "users": [shape["selfLink"]],
        "physicalBlockSizeBytes": "4096",
    }


def usage(shape: Json, order: Order) -> dict[str, float]:
    """What an instance takes of each quota."""
    spot = shape["scheduling"]["preemptible"]
    prefix = "PREEMPTIBLE_" if spot else ""
    used = {
        f"{prefix}CPUS": float(order.machine_type.vcpus),
        "CPUS_ALL_REGIONS": float(order.machine_type.vcpus),
        "INSTANCES": 1.0,
    }
    if order.gpus:
        if order.gpu in _GPU_METRICS:  # newer ones are counted by the quota API alone
            used[prefix + _GPU_METRICS[order.gpu]] = float(order.gpus)
        used["GPUS_ALL_REGIONS"] = float(order.gpus)
    if any(interface.get("accessConfigs") for interface in shape["networkInterfaces"]):
        used["IN_USE_ADDRESSES"] = 1.0
    return used


def termination_time(scheduling: Json) -> float | None:
    """When an instance that begins to run now must end, seconds since the epoch."""
    if "maxRunDuration" in scheduling:
        return time.time() + int(scheduling["maxRunDuration"]["seconds"])
    if scheduling.get("terminationTime"):
        return datetime.fromisoformat(scheduling["terminationTime"]).timestamp()
    return None
