"""What AWS refuses to launch, and moto lets pass."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Mapping, Sequence
from typing import Any

from moto.ec2.exceptions import EC2ClientError
from moto.ec2.models.instance_types import INSTANCE_TYPE_OFFERINGS, INSTANCE_TYPES

from tests.clouds.aws import market
from tests.clouds.aws.faults import MESSAGES
from tests.clouds.aws.images import BAKED, Image, image
from tests.clouds.aws.life import Life
from tests.clouds.aws.settings import SETTINGS

USER_DATA_LIMIT = 16384
FREE_PLAN = {"c7i-flex.large", "m7i-flex.large", "t3.micro", "t3.small", "t4g.micro", "t4g.small"}
"""What an account of the Free plan may launch (RhinoSecurityLabs/cloudgoat#375)."""
VOLUME_TYPES = {"gp2", "gp3", "io1", "io2", "st1", "sc1", "standard"}


def offered_zones(instance_type: str, region: str) -> list[str]:
    """Zones of that region that sell the type."""
    offerings = INSTANCE_TYPE_OFFERINGS["availability-zone"].get(region, [])
    return sorted(item["Location"] for item in offerings if item["InstanceType"] == instance_type)


def instance_type(name: str) -> Mapping[str, Any]:
    """The type's facts; refuses one that does not exist."""
    if name not in INSTANCE_TYPES:
        raise EC2ClientError("InvalidInstanceType", f"Invalid value '{name}' for InstanceType.")
    found: Mapping[str, Any] = INSTANCE_TYPES[name]
    return found


def zone(name: str, region: str, wanted: str | None) -> str:
    """Where it will run; refuses a zone that does not sell the type, or has none left."""
    zones = offered_zones(name, region)
    if wanted and wanted not in zones:
        others = f" or choosing {', '.join(zones)}" if zones else ""
        raise EC2ClientError(
            "Unsupported",
            f"Your requested instance type ({name}) is not supported in your requested Availability Zone "
            f"({wanted}). Please retry your request by not specifying an Availability Zone{others}.",
        )
    if not zones:
        raise EC2ClientError(
            "Unsupported", f"The requested configuration is currently not supported: {name}."
        )
    left = [one for one in ([wanted] if wanted else zones) if not sold_out(name, one)]
    if not left:
        message = MESSAGES["InsufficientInstanceCapacity"].format(type=name, zone=wanted or region)
        raise EC2ClientError("InsufficientInstanceCapacity", message)
    return left[0]


def sold_out(name: str, where: str) -> bool:
    return any(fnmatch.fnmatchcase(f"{name}@{where}", pattern) for pattern in SETTINGS.sold_out)


def ami(region: str, ami_id: str, info: Mapping[str, Any]) -> Image:
    """The image; refuses one of another region or another architecture."""
    if not re.fullmatch(r"ami-[0-9a-f]{8,17}", ami_id):
        raise EC2ClientError("InvalidAMIID.Malformed", f'Invalid id: "{ami_id}" (expecting "ami-...")')
    found = image(region, ami_id)
    if found is None:
        raise EC2ClientError("InvalidAMIID.NotFound", f"The image id '[{ami_id}]' does not exist")
    baked = BAKED.get(ami_id)
    if baked is not None and not baked.available:
        raise EC2ClientError("InvalidAMIID.Unavailable", f"The image id '[{ami_id}]' is pending")
    architectures = info["ProcessorInfo"]["SupportedArchitectures"]
    if found.arch not in architectures:
        raise EC2ClientError(
            "InvalidParameterValue",
            f"The architecture '{architectures[0]}' of the specified instance type does not match the "
            f"architecture '{found.arch}' of the specified AMI. Specify an instance type and an AMI that "
            "have matching architectures, and try again. You can use 'describe-instance-types' or "
            "'describe-images' to discover the architecture of the instance type or AMI.",
        )
    return found


def free_plan(name: str) -> None:
    """What the Free plan of an account refuses, in AWS's words (splunk/attack_range#1302)."""
    if SETTINGS.free_plan and name not in FREE_PLAN:
        raise EC2ClientError(
            "InvalidParameterCombination",
            "The specified instance type is not eligible for Free Tier. For a list of Free Tier instance "
            "types, run 'describe-instance-types' with the filter 'free-tier-eligible=true'.",
        )


def user_data(data: bytes) -> None:
    if len(data) > USER_DATA_LIMIT:
        raise EC2ClientError("InvalidParameterValue", "User data is limited to 16384 bytes")


def tags(specifications: Sequence[Mapping[str, Any]]) -> None:
    for specification in specifications:
        pairs = specification.get("Tags", [])
        keys = [pair.get("Key", "") for pair in pairs]
        if len(pairs) > 50:
            raise EC2ClientError(
                "TagLimitExceeded", "The maximum number of Tags for a resource has been reached."
            )
        if len(keys) != len(set(keys)):
            raise EC2ClientError("InvalidParameterValue", "Duplicate tag key specified.")
        for pair in pairs:
            key, value = pair.get("Key", ""), pair.get("Value", "")
            if not 1 <= len(key) <= 128 or len(value) > 256:
                raise EC2ClientError(
                    "InvalidParameterValue", "Tag keys have 1 to 128 characters, values at most 256."
                )
            if key.lower().startswith("aws:"):
                raise EC2ClientError("InvalidParameterValue", "Tag keys starting with 'aws:' are reserved.")


def volumes(mappings: Sequence[Mapping[str, Any]], chosen: Image) -> None:
    names = [mapping.get("DeviceName") for mapping in mappings]
    if len(names) != len(set(names)):
        raise EC2ClientError("InvalidBlockDeviceMapping", "The device is used in more than one mapping.")
    for mapping in mappings:
        _volume(mapping.get("DeviceName", ""), mapping.get("Ebs") or {}, chosen)


def _volume(device: str, ebs: Mapping[str, Any], chosen: Image) -> None:
    kind = ebs.get("VolumeType", "gp2")
    size = int(ebs.get("VolumeSize") or chosen.size)
    iops, throughput = ebs.get("Iops"), ebs.get("Throughput")
    if kind not in VOLUME_TYPES:
        raise EC2ClientError("InvalidParameterValue", f"Invalid volume type: {kind}")
    if device == chosen.root_device and size < chosen.size:
        raise EC2ClientError(
            "InvalidBlockDeviceMapping",
            f"Volume of size {size}GB is smaller than snapshot 'snap-{chosen.id('')[4:]}', "
            f"expect size>= {chosen.size}GB",
        )
    if size > (65536 if kind == "gp3" else 16384) and kind != "io2":
        raise EC2ClientError(
            "InvalidParameterValue", f"Volume of {size}GB is too large for volume type {kind}"
        )
    if throughput and kind != "gp3":
        raise EC2ClientError(
            "InvalidParameterCombination", f"The parameter throughput is not supported for {kind}"
        )
    if iops and kind not in ("gp3", "io1", "io2"):
        raise EC2ClientError(
            "InvalidParameterCombination", f"The parameter iops is not supported for {kind} volumes."
        )
    if kind == "gp3" and iops and not 3000 <= int(iops) <= 80000:
        raise EC2ClientError("InvalidParameterValue", f"Volume iops of {iops} is not between 3000 and 80000.")
    if kind == "gp3" and throughput and not 125 <= int(throughput) <= 2000:
        raise EC2ClientError(
            "InvalidParameterValue", f"Throughput of {throughput} is not between 125 and 2000."
        )
    if kind == "gp3" and throughput and int(throughput) > 0.25 * int(iops or 3000):
        raise EC2ClientError(
            "InvalidParameterValue", "Throughput (MiBps) to iops ratio is too high; maximum is 0.25."
        )


def quota(info: Mapping[str, Any], count: int, spot: bool, lives: Sequence[Life], region: str) -> None:
    """Refuses what would exceed the vCPUs allowed at once in this region."""
    name = info["InstanceType"]
    code = market.bucket(name, spot)
    allowed = market.limit(code, region)
    used = sum(
        INSTANCE_TYPES[life.instance.instance_type]["VCpuInfo"]["DefaultVCpus"]
        for life in lives
        if life.region == region
        and life.instance.state in ("pending", "running", "stopping", "shutting-down")
        and market.bucket(life.instance.instance_type, life.spot is not None) == code
    )
    if used + count * info["VCpuInfo"]["DefaultVCpus"] <= allowed:
        return
    if spot:
        raise EC2ClientError("MaxSpotInstanceCountExceeded", MESSAGES["MaxSpotInstanceCountExceeded"])
    raise EC2ClientError("VcpuLimitExceeded", MESSAGES["VcpuLimitExceeded"].format(limit=int(allowed)))


def spot_price(options: Mapping[str, Any], info: Mapping[str, Any], where: str) -> None:
    if "spot" not in info.get("SupportedUsageClasses", ["spot"]):
        raise EC2ClientError(
            "InvalidParameterValue", f"The instance type {info['InstanceType']} is not supported for Spot."
        )
    price = options.get("MaxPrice")
    least = market.spot(info, where)
    if price is not None and float(price) < least:
        raise EC2ClientError(
            "SpotMaxPriceTooLow",
            f"Your Spot request price of {price} is lower than the minimum required Spot request "
            f"fulfillment price of {least}.",
        )
