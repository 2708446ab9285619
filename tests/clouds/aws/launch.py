"""Launching instances as AWS does it: checked, once a ClientToken, with all that was asked for."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from moto.core.exceptions import ServiceException
from moto.core.responses import ActionResult
from moto.core.utils import utcnow
from moto.ec2.exceptions import DryRunClientError, EC2ClientError
from moto.ec2.models.instance_types import INSTANCE_TYPES
from moto.ec2.models.spot_requests import SpotInstanceRequest
from moto.ec2.responses.instances import InstanceResponse
from moto.ec2.utils import random_spot_request_id

from tests.clouds import driver
from tests.clouds.aws import checks, images, market, placement, reserved
from tests.clouds.aws.guests import Size
from tests.clouds.aws.imds import Metadata
from tests.clouds.aws.life import LIVES, Life
from tests.clouds.aws.settings import ACCOUNT, SETTINGS

GIB = 1 << 30
_LAUNCHES = threading.RLock()
_UNCOUNTED = ("ClientToken", "Action", "Version", "DryRun")
_MOTOS: Callable[[Any], ActionResult] = InstanceResponse.run_instances


@dataclass
class Token:
    """A ClientToken that was used: for which request, and what came of it."""

    digest: str
    reservation: Any


_TOKENS: dict[tuple[str, str], Token] = {}


def run_instances(self: Any) -> ActionResult:
    """RunInstances, in the place of moto's."""
    with _LAUNCHES:
        _forget_old_tokens()
        token = self._get_param("ClientToken")
        digest = _digest(self.querystring)
        if token is not None and not 1 <= len(token) <= 64:
            raise EC2ClientError("InvalidParameterValue", "The client token has at most 64 ASCII characters.")
        known = _TOKENS.get((self.region, token)) if token else None
        if known is not None:
            return _again(known, digest)
        return _launch(self, token, digest)


def _again(known: Token, digest: str) -> ActionResult:
    if known.digest != digest:
        raise EC2ClientError(
            "IdempotentParameterMismatch",
            "Arguments on this idempotent request are inconsistent with arguments used in previous "
            "request(s).",
        )
    if all(instance.state in ("terminated", "shutting-down") for instance in known.reservation.instances):
        raise EC2ClientError(
            "IdempotentInstanceTerminated",
            "The request to launch an instance uses the same client token as a previous request for which "
            "the instance has been terminated.",
        )
    return ActionResult(known.reservation)


def _launch(self: Any, token: str | None, digest: str) -> ActionResult:
    name = self._get_param("InstanceType") or "m1.small"
    count = int(self._get_param("MinCount") or 1)
    info = checks.instance_type(name)
    checks.free_plan(name)
    chosen = checks.ami(self.region, self._get_param("ImageId") or "", info)
    mappings = self._get_param("BlockDeviceMappings", [])
    data = base64.b64decode(str(self._get_param("UserData") or ""))
    spot = self._get_param("InstanceMarketOptions", {}) or {}
    is_spot = spot.get("MarketType") == "spot"
    checks.user_data(data)
    checks.tags(self._get_param("TagSpecifications", []) or [])
    checks.volumes(mappings, chosen)
    wanted = _zone_asked(self)
    if self._get_param("DryRun"):
        raise DryRunClientError()
    where = checks.zone(name, self.region, wanted)
    target = (self._get_param("CapacityReservationSpecification") or {}).get(
        "CapacityReservationTarget"
    ) or {}
    held = target.get("CapacityReservationId")
    reserved.check(held, name, where, spot.get("MarketType"), self.region, LIVES.all())
    checks.quota(info, count, is_spot, LIVES.all(), self.region)
    together = self._get_param("Placement.GroupName") or ""
    placement.enter(self.region, together, info, where)
    if is_spot:
        checks.spot_price(spot.get("SpotOptions") or {}, info, where)
    if wanted is None:
        self.params.setdefault("Placement", {})["AvailabilityZone"] = where
    result = _by_moto(self)
    reservation: Any = result.result
    for instance in reservation.instances:
        _volumes(self, instance, mappings, chosen)
        _interfaces(self, instance)
        request = _spot_request(self, instance, spot.get("SpotOptions") or {}) if is_spot else None
        instance.client_token, instance.reserved_in = token, held
        instance.placement.group_name = together
        instance.reservation_id = reservation.id
        LIVES.begin(_life(self, instance, where, info, chosen, data, request))
    if token:
        _TOKENS[(self.region, token)] = Token(digest, reservation)
    return ActionResult(reservation)


def _by_moto(self: Any) -> ActionResult:
    try:
        return _MOTOS(self)
    except ServiceException as error:
        if error.code != "NoSuchEntity":
            raise
        profile = self._get_param("IamInstanceProfile", {})
        name, value = next(iter(profile.items()))
        raise EC2ClientError(
            "InvalidParameterValue",
            f"Value ({value}) for parameter iamInstanceProfile.{name.lower()} is invalid. Invalid IAM "
            f"Instance Profile {name.lower()}",
        ) from error


def _zone_asked(self: Any) -> str | None:
    placed = self._get_param("Placement.AvailabilityZone")
    interfaces = self._get_param("NetworkInterfaces", []) or [{}]
    subnet = self._get_param("SubnetId") or interfaces[0].get("SubnetId")
    found: str | None = self.ec2_backend.get_subnet(subnet).availability_zone if subnet else None
    if found and placed and found != placed:
        raise EC2ClientError(
            "InvalidParameterValue",
            f"The availability zone of the subnet '{subnet}' is {found}, not {placed}.",
        )
    return found or (str(placed) if placed else None)


def _volumes(self: Any, instance: Any, mappings: Sequence[Mapping[str, Any]], chosen: images.Image) -> None:
    """All volumes as asked for, the image's root volume among them, with the tags for volumes."""
    root = {"DeviceName": chosen.root_device, "Ebs": {}}
    if not any(mapping.get("DeviceName") == chosen.root_device for mapping in mappings):
        mappings = [root, *mappings]
    for device in list(instance.block_device_mapping):  # moto's own default
        volume = instance.block_device_mapping[device].volume_id
        self.ec2_backend.detach_volume(volume, instance.id, device)
        self.ec2_backend.delete_volume(volume)
    tags = self._parse_tag_specification().get("volume", {})
    for mapping in mappings:
        if mapping.get("NoDevice") is not None or "VirtualName" in mapping:
            continue
        ebs = mapping.get("Ebs") or {}
        is_root = mapping["DeviceName"] == chosen.root_device
        kind = ebs.get("VolumeType", "gp2" if not is_root or "jammy" in chosen.name else "gp3")
        volume = self.ec2_backend.create_volume(
            size=int(ebs.get("VolumeSize") or chosen.size),
            zone_name=instance.placement.zone,
            encrypted=bool(ebs.get("Encrypted", False)),
            kms_key_id=ebs.get("KmsKeyId"),
            volume_type=kind,
            iops=ebs.get("Iops"),
            throughput=ebs.get("Throughput") or (125 if kind == "gp3" else None),
        )
        ends = bool(ebs.get("DeleteOnTermination", is_root))
        self.ec2_backend.attach_volume(volume.id, instance.id, mapping["DeviceName"], ends)
        volume.add_tags(tags)


def _interfaces(self: Any, instance: Any) -> None:
    """A network interface made by a launch ends with it, unless the request says otherwise."""
    asked = {int(one.get("DeviceIndex", 0)): one for one in self._get_param("NetworkInterfaces", []) or []}
    for index, nic in instance.nics.items():
        wish = asked.get(index, {})
        if "NetworkInterfaceId" not in wish:
            nic.delete_on_termination = bool(wish.get("DeleteOnTermination", True))


def _spot_request(self: Any, instance: Any, options: Mapping[str, Any]) -> Any:
    class Fulfilled(SpotInstanceRequest):
        def launch_instance(self) -> Any:
            return instance

        @property
        def create_time(self) -> Any:
            return utcnow()

    backend = self.ec2_backend
    request = Fulfilled(
        ec2_backend=backend,
        spot_request_id=random_spot_request_id(),
        price=str(
            options.get("MaxPrice") or market.on_demand(INSTANCE_TYPES[instance.instance_type], self.region)
        ),
        image_id=instance.image_id,
        spot_instance_type=options.get("SpotInstanceType", "one-time"),
        valid_from=None,
        valid_until=options.get("ValidUntil"),
        launch_group=None,
        availability_zone_group=None,
        key_name=instance.key_name,
        security_groups=[],
        user_data=instance.user_data,
        instance_type=instance.instance_type,
        placement=instance.placement.zone,
        kernel_id=None,
        ramdisk_id=None,
        monitoring_enabled=False,
        subnet_id=instance.subnet_id,
        tags=self._parse_tag_specification(),
        spot_fleet_id=None,
        instance_interruption_behaviour=options.get("InstanceInterruptionBehavior"),
    )
    backend.spot_instance_requests[request.id] = request
    instance.lifecycle = "spot"
    instance.spot_instance_request_id = request.id
    return request


def _life(
    self: Any,
    instance: Any,
    where: str,
    info: Mapping[str, Any],
    chosen: images.Image,
    data: bytes,
    request: Any,
) -> Life:
    backend = self.ec2_backend
    key = backend.key_pairs[instance.key_name].public_key if instance.key_name else ""
    root = instance.block_device_mapping[chosen.root_device]
    options = instance.metadata_options
    tags_inside = options.instance_metadata_tags == "enabled"
    values = {
        "instance-id": instance.id,
        "ami-id": instance.image_id,
        "instance-type": instance.instance_type,
        "placement/availability-zone": where,
        "placement/region": self.region,
        "instance-life-cycle": "spot" if request is not None else "on-demand",
        "hostname": instance.private_dns_name,
        "local-hostname": instance.private_dns_name,
        "mac": instance.nics[0].mac_address,
        "services/domain": "amazonaws.com",
        "reservation-id": instance.reservation_id,
        "profile": "default-hvm",
        **({"public-keys/0/openssh-key": key.strip()} if key else {}),
        **(
            {f"tags/instance/{tag['key']}": tag["value"] for tag in instance.get_tags()}
            if tags_inside
            else {}
        ),
    }
    identity = {
        "accountId": ACCOUNT,
        "architecture": chosen.arch,
        "availabilityZone": where,
        "region": self.region,
        "instanceId": instance.id,
        "instanceType": instance.instance_type,
        "imageId": instance.image_id,
        "pendingTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "version": "2017-09-30",
    }
    metadata = Metadata(
        values,
        data,
        identity,
        tokens_required=options.http_tokens == "required",
        enabled=options.http_endpoint != "disabled",
    )
    return Life(
        instance=instance,
        region=self.region,
        zone=where,
        size=Size(info["VCpuInfo"]["DefaultVCpus"], info["MemoryInfo"]["SizeInMiB"] << 20, root.size * GIB),
        user=chosen.user,
        key=key,
        user_data=data,
        metadata=metadata,
        spot=request,
        public=instance.nics[0].public_ip is not None,
        nvidia_smi=_nvidia_smi(info, chosen),
        files=baked.files if (baked := images.BAKED.get(instance.image_id)) else None,
    )


def _nvidia_smi(info: Mapping[str, Any], chosen: images.Image) -> str:
    """The driver's program, where there are GPUs and the image brings it."""
    gpus = info.get("GpuInfo", {}).get("Gpus", ())
    if not gpus or not (chosen.drivers or "Nvidia Driver" in chosen.name):
        return ""
    return driver.program(f"NVIDIA {gpus[0]['Name']}", sum(gpu["Count"] for gpu in gpus))


def _digest(form: Mapping[str, Sequence[str]]) -> str:
    counted = {name: list(values) for name, values in form.items() if name not in _UNCOUNTED}
    return hashlib.sha256(json.dumps(counted, sort_keys=True).encode()).hexdigest()


def _forget_old_tokens() -> None:
    """A token is remembered for as long as its instance lives, and some time after."""
    for key, token in list(_TOKENS.items()):
        lives = [LIVES.get(instance.id) for instance in token.reservation.instances]
        ends = [life.ended_at for life in lives if life is not None]
        if ends and all(end is not None and time.time() - end > SETTINGS.token_valid_s for end in ends):
            del _TOKENS[key]
