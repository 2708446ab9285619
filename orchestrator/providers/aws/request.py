"""Build the parameters of one RunInstances call from a MachineSpec. Pure."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from orchestrator.errors import Fault, ProviderError
from orchestrator.model import DiskKind, MachineSpec
from orchestrator.providers.aws import disks, tags
from orchestrator.providers.aws.firstboot import user_data
from orchestrator.providers.aws.hostkey import KeyPair

GIB = 1 << 30


@dataclass(frozen=True)
class Image:
    """An AMI. `smallest`: minimum disk in bytes; `architecture` as in Offer.arch; `user`: its login user."""

    id: str
    name: str
    user: str
    root_device: str
    smallest: int
    architecture: str


@dataclass(frozen=True)
class Network:
    """Security groups, and a subnet in the machine's zone. `public`: the machine gets a public address.
    `profile`: the instance profile that Session Manager may need to reach it, or None.
    """

    subnet: str
    groups: tuple[str, ...]
    public: bool
    profile: str | None = None


def region_of(spec: MachineSpec) -> str:
    return spec.offer.region or region_of_zone(spec.offer.zone)


def region_of_zone(zone: str) -> str:
    """Return the region of a zone: us-east-1a is in us-east-1, the Local Zone us-west-2-lax-1a in
    us-west-2.
    """
    found = re.match(r"[a-z]{2}(?:-[a-z]+)+-\d+", zone)
    if not found:
        raise ProviderError(Fault.INVALID, f"{zone!r} is not an AWS zone.", code="InvalidZone")
    return found.group()


def client_token(spec: MachineSpec, generation: int) -> str:
    """Return the token of a machine: always the same 64 ASCII characters. `generation` counts its
    instances.
    """
    text = "\0".join((spec.id, str(spec.attempt), spec.offer.zone, str(generation)))
    return hashlib.sha256(text.encode()).hexdigest()


def run_instances(
    spec: MachineSpec,
    image: Image,
    network: Network,
    *,
    user: str,
    host_key: KeyPair | None,
    is_block: bool = False,
) -> dict[str, Any]:
    """Return all parameters except the ClientToken. `is_block`: the reservation is a capacity block.

    Raises ProviderError(INVALID) for values that EC2 would refuse.
    """
    require_sound(spec, image)
    proof = tags.INJECTED if host_key else tags.CONSOLE
    ours = tags.tags_of(spec, user=user, proof=proof, host_key=host_key.public if host_key else "")
    request: dict[str, Any] = {
        "MinCount": 1,
        "MaxCount": 1,
        "ImageId": image.id,
        "InstanceType": spec.offer.instance_type,
        "NetworkInterfaces": [_interface(network)],
        "BlockDeviceMappings": [_disk(spec, image)],
        "InstanceInitiatedShutdownBehavior": "terminate",
        "MetadataOptions": {
            "HttpEndpoint": "enabled",
            "HttpTokens": "required",
            "HttpPutResponseHopLimit": 1,
            "InstanceMetadataTags": "disabled",
        },
        "TagSpecifications": _tagged(ours, spec),
        "UserData": user_data(
            lasts=spec.seconds(datetime.now(UTC)),
            user=user,
            authorized_key=spec.ssh_public_key,
            script=spec.user_data,
            host_key=host_key,
        ),
    }
    profile = spec.identity or network.profile
    if profile:
        request["IamInstanceProfile"] = {"Name": profile}
    if spec.reservation:
        target = {"CapacityReservationId": spec.reservation}
        request["CapacityReservationSpecification"] = {"CapacityReservationTarget": target}
    if is_block:
        request["InstanceMarketOptions"] = {"MarketType": "capacity-block"}
    if spec.offer.zone:
        request["Placement"] = _placed(spec)
    if spec.offer.spot:
        request["InstanceMarketOptions"] = _spot()
    return request


def _placed(spec: MachineSpec) -> dict[str, str]:
    zone = spec.offer.zone
    group = {"GroupName": tags.placement_group(spec.group, zone)} if spec.group else {}
    return {"AvailabilityZone": zone, **group}


def _interface(network: Network) -> dict[str, Any]:
    return {
        "DeviceIndex": 0,
        "SubnetId": network.subnet,
        "Groups": list(network.groups),
        "AssociatePublicIpAddress": network.public,
        "DeleteOnTermination": True,
    }


def _disk(spec: MachineSpec, image: Image) -> dict[str, Any]:
    """Return the root disk. Its encryption is the account's default, because naming a key would need
    permissions on it.
    """
    size = -(-spec.disk // GIB)
    volume: dict[str, Any] = {
        "VolumeSize": size,
        "VolumeType": _kind(spec).name,
        "DeleteOnTermination": True,
    }
    if spec.volume.iops:
        volume["Iops"] = spec.volume.iops
    if spec.volume.throughput:
        volume["Throughput"] = spec.volume.throughput
    return {"DeviceName": image.root_device, "Ebs": volume}


def _kind(spec: MachineSpec) -> DiskKind:
    found = disks.MARKET.chosen(spec.volume, spec.offer.instance_type)
    return found or disks.MARKET.kinds[0]


def _spot() -> dict[str, Any]:
    options = {"SpotInstanceType": "one-time", "InstanceInterruptionBehavior": "terminate"}
    return {"MarketType": "spot", "SpotOptions": options}


def _tagged(ours: Mapping[str, str], spec: MachineSpec) -> list[dict[str, Any]]:
    """Return the tag specifications: the same tags for all resources, but host key tags for the instance
    only.
    """
    common = {key: value for key, value in ours.items() if key not in (tags.HOST_KEY, tags.PROOF)}
    kinds = ["volume", "network-interface", *(["spot-instances-request"] if spec.offer.spot else [])]
    rest = [{"ResourceType": kind, "Tags": _list(common)} for kind in kinds]
    return [{"ResourceType": "instance", "Tags": _list(ours)}, *rest]


def _list(ours: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"Key": key, "Value": value} for key, value in ours.items()]


def require_sound(spec: MachineSpec, image: Image) -> None:
    """Raise ProviderError(INVALID) for the first invalid part of the spec."""
    size = -(-spec.disk // GIB)
    refused = _kind(spec).problems(spec.disk, spec.volume)
    problems: Sequence[tuple[bool, str, str]] = (
        (spec.deadline.tzinfo is None, "BadDeadline", "its deadline has no time zone"),
        (len(spec.ssh_public_key.strip().splitlines()) != 1, "BadKey", "its key is not one OpenSSH line"),
        (
            bool(spec.user_data) and not spec.user_data.startswith("#!"),
            "BadUserData",
            "its user_data does not begin with #!",
        ),
        (
            image.architecture != spec.offer.arch,
            "InvalidAMIID",
            f"the image {image.id} ({image.name}) is for {image.architecture}, "
            f"and {spec.offer.instance_type} is {spec.offer.arch}",
        ),
        (
            spec.disk < image.smallest,
            "InvalidBlockDeviceMapping",
            f"resources.disk is {size} GiB, and the image {image.name} needs {image.smallest // GIB} GiB",
        ),
        *((True, "InvalidBlockDeviceMapping", f"resources.disk.{key}: {why}") for key, why in refused),
    )
    for wrong, code, what in problems:
        if wrong:
            raise ProviderError(Fault.INVALID, f"{tags.name_of(spec)} was not requested: {what}.", code=code)
