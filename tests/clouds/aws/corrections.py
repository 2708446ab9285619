"""moto's EC2 and SSM, with their lies corrected inside its process. `apply()` once, before any request."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from moto.core.responses import ActionResult
from moto.core.types import Base64EncodedString
from moto.core.utils import utcnow
from moto.ec2.exceptions import DryRunClientError, EC2ClientError, InvalidInstanceIdError
from moto.ec2.models.amis import Ami, AmiBackend
from moto.ec2.models.instance_types import INSTANCE_TYPES
from moto.ec2.models.instances import Instance, InstanceBackend
from moto.ec2.models.security_groups import SecurityGroupBackend
from moto.ec2.models.spot_requests import SpotInstanceRequest
from moto.ec2.responses.general import General
from moto.ec2.responses.instances import InstanceResponse
from moto.ec2.responses.spot_instances import SpotInstances
from moto.ec2.utils import filter_dict_attribute_mapping, random_spot_request_id
from moto.ssm.models import Parameter, ParameterDict

from tests.clouds.aws import checks, images, market
from tests.clouds.aws.guests import Size
from tests.clouds.aws.imds import Metadata
from tests.clouds.aws.life import LIVES, TERMINATED, Life
from tests.clouds.aws.settings import ACCOUNT, SETTINGS

GIB = 1 << 30
_LAUNCHES = threading.RLock()
_UNCOUNTED = ("ClientToken", "Action", "Version", "DryRun")


@dataclass
class Token:
    """A ClientToken that was used: for which request, and what came of it."""

    digest: str
    reservation: Any


_TOKENS: dict[tuple[str, str], Token] = {}


def apply() -> None:
    """Put every correction in place."""
    _original_run["run"] = InstanceResponse.run_instances
    for owner, name, correct in (
        (InstanceResponse, "run_instances", _run_instances),
        (InstanceResponse, "terminate_instances", _terminate_instances),
        (InstanceResponse, "stop_instances", _stop_instances),
        (InstanceResponse, "start_instances", _start_instances),
        (InstanceResponse, "_parse_block_device_mapping", lambda self: []),
        (InstanceBackend, "all_reservations", _all_reservations(InstanceBackend.all_reservations)),
        (InstanceBackend, "get_multi_instances_by_id", _checked(InstanceBackend.get_multi_instances_by_id)),
        (
            InstanceBackend,
            "get_reservations_by_instance_ids",
            _checked(InstanceBackend.get_reservations_by_instance_ids),
        ),
        (General, "get_console_output", _get_console_output),
        (SpotInstances, "describe_spot_price_history", _describe_spot_price_history),
        (AmiBackend, "_load_amis", _load_amis),
        (
            SecurityGroupBackend,
            "delete_security_group",
            _kept_while_used(SecurityGroupBackend.delete_security_group),
        ),
        (ParameterDict, "_check_loading_status", _load_parameters),
    ):
        setattr(owner, name, correct)
    for name, attribute in (
        ("client-token", "client_token"),
        ("instance-lifecycle", "lifecycle"),
        ("spot-instance-request-id", "spot_instance_request_id"),
        ("reservation-id", "reservation_id"),
        ("instance-state-code", "state_code"),
    ):
        filter_dict_attribute_mapping.setdefault(name, attribute)
    Instance.instance_lifecycle = property(lambda self: self.lifecycle)
    Instance.spot_instance_request_id = None


_original_run: dict[str, Any] = {}


# ---------------------------------------------------------------- launching


def _run_instances(self: Any) -> ActionResult:
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
            "Arguments on this idempotent request are inconsistent with arguments used in previous request(s).",
        )
    if all(instance.state in ("terminated", "shutting-down") for instance in known.reservation.instances):
        raise EC2ClientError(
            "IdempotentInstanceTerminated",
            "The request to launch an instance uses the same client token as a previous request for which the "
            "instance has been terminated.",
        )
    return ActionResult(known.reservation)


def _launch(self: Any, token: str | None, digest: str) -> ActionResult:
    name = self._get_param("InstanceType") or "m1.small"
    count = int(self._get_param("MinCount") or 1)
    info = checks.instance_type(name)
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
    checks.quota(info, count, is_spot, LIVES.all(), self.region)
    if is_spot:
        checks.spot_price(spot.get("SpotOptions") or {}, info, where)
    if wanted is None:
        self.params.setdefault("Placement", {})["AvailabilityZone"] = where
    result = _original_run["run"](self)
    reservation = result.result
    for instance in reservation.instances:
        _volumes(self, instance, mappings, chosen)
        _interfaces(self, instance)
        request = _spot_request(self, instance, spot.get("SpotOptions") or {}) if is_spot else None
        instance.client_token = token
        instance.reservation_id = reservation.id
        LIVES.begin(_life(self, instance, where, info, chosen, data, request))
    if token:
        _TOKENS[(self.region, token)] = Token(digest, reservation)
    return ActionResult(reservation)


def _zone_asked(self: Any) -> str | None:
    placed = self._get_param("Placement.AvailabilityZone")
    interfaces = self._get_param("NetworkInterfaces", []) or [{}]
    subnet = self._get_param("SubnetId") or interfaces[0].get("SubnetId")
    found = self.ec2_backend.get_subnet(subnet).availability_zone if subnet else None
    if found and placed and found != placed:
        raise EC2ClientError(
            "InvalidParameterValue",
            f"The availability zone of the subnet '{subnet}' is {found}, not {placed}.",
        )
    return found or placed


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
        def create_time(self) -> Any:  # type: ignore[override]
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
        **{"instance-id": instance.id, "ami-id": instance.image_id, "instance-type": instance.instance_type},
        **{"placement/availability-zone": where, "placement/region": self.region},
        **{"instance-life-cycle": "spot" if request is not None else "on-demand"},
        **{"hostname": instance.private_dns_name, "local-hostname": instance.private_dns_name},
        **{"mac": instance.nics[0].mac_address, "services/domain": "amazonaws.com"},
        **{"reservation-id": instance.reservation_id, "profile": "default-hvm"},
        **({"public-keys/0/openssh-key": key.strip()} if key else {}),
        **(
            {f"tags/instance/{tag['key']}": tag["value"] for tag in instance.get_tags()}
            if tags_inside
            else {}
        ),
    }
    identity = {
        **{
            "accountId": ACCOUNT,
            "architecture": chosen.arch,
            "availabilityZone": where,
            "region": self.region,
        },
        **{"instanceId": instance.id, "instanceType": instance.instance_type, "imageId": instance.image_id},
        **{"pendingTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"), "version": "2017-09-30"},
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
    )


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


# ---------------------------------------------------------------- seeing and ending


def _all_reservations(original: Any) -> Any:
    def all_reservations(self: Any, filters: Any = None) -> Any:
        for reservation in list(self.reservations.values()):
            lives = [LIVES.get(instance.id) for instance in reservation.instances]
            if lives and all(life is not None and not life.listed for life in lives):
                self.reservations.pop(reservation.id, None)
        seen = []
        for reservation in original(self, None):
            visible = [
                one for one in reservation.instances if (life := LIVES.get(one.id)) is None or life.visible
            ]
            if visible:
                reservation.instances = visible
                seen.append(reservation)
        if filters is None:
            return seen
        from moto.ec2.utils import filter_reservations

        return filter_reservations(seen, filters)

    return all_reservations


def _checked(original: Any) -> Any:
    """Refuses ids that are none, and names those that are not there as AWS does."""

    def checked(self: Any, instance_ids: Sequence[str], filters: Any = None) -> Any:
        for identity in instance_ids:
            if not re.fullmatch(r"i-([0-9a-f]{8}|[0-9a-f]{17})", identity):
                raise EC2ClientError("InvalidInstanceID.Malformed", f'Invalid id: "{identity}"')
        known = {instance.id for reservation in self.all_reservations() for instance in reservation.instances}
        absent = [identity for identity in instance_ids if identity not in known]
        if absent:
            raise InvalidInstanceIdError(absent if len(absent) > 1 else absent[0])
        return original(self, list(dict.fromkeys(instance_ids)), filters=filters)

    return checked


def _terminate_instances(self: Any) -> ActionResult:
    chosen = self.ec2_backend.get_multi_instances_by_id(self._get_param("InstanceIds", []))
    self.error_on_dryrun()
    for instance in chosen:
        if instance.disable_api_termination is True:
            raise EC2ClientError(
                "OperationNotPermitted",
                f"The instance '{instance.id}' may not be terminated. Modify its 'disableApiTermination' "
                "instance attribute and try again.",
            )
    before = {instance.id: _state(instance) for instance in chosen}
    for instance in chosen:
        life = LIVES.get(instance.id)
        if life is not None:
            LIVES.terminate(life, "Client.UserInitiatedShutdown", "User initiated shutdown")
    return _changes("TerminatingInstances", chosen, before)


def _stop_instances(self: Any) -> ActionResult:
    chosen = self.ec2_backend.get_multi_instances_by_id(self._get_param("InstanceIds", []))
    self.error_on_dryrun()
    for instance in chosen:
        if instance.lifecycle == "spot":
            raise EC2ClientError(
                "UnsupportedOperation",
                f"You can't stop the Spot Instance '{instance.id}' because it is associated with a one-time Spot "
                "Instance request. You can only stop Spot Instances associated with persistent Spot Instance "
                "requests.",
            )
        if instance.state in ("terminated", "shutting-down", "pending"):
            raise _wrong_state(instance)
    before = {instance.id: _state(instance) for instance in chosen}
    for instance in chosen:
        life = LIVES.get(instance.id)
        if life is not None:
            LIVES.stop(life, "Client.UserInitiatedShutdown", "User initiated shutdown")
    return _changes("StoppingInstances", chosen, before)


def _start_instances(self: Any) -> ActionResult:
    """Refused: the disk of a stopped machine is not kept by this test cloud."""
    for instance in self.ec2_backend.get_multi_instances_by_id(self._get_param("InstanceIds", [])):
        if instance.state != "stopped":
            raise _wrong_state(instance)
    raise EC2ClientError("UnsupportedOperation", "This test cloud starts no stopped instance again.")


def _wrong_state(instance: Any) -> EC2ClientError:
    return EC2ClientError(
        "IncorrectInstanceState",
        f"This instance '{instance.id}' is not in a state from which it can be stopped or started.",
    )


def _state(instance: Any) -> dict[str, Any]:
    return {"Code": instance.state_code, "Name": instance.state}


def _changes(name: str, chosen: Sequence[Any], before: Mapping[str, Mapping[str, Any]]) -> ActionResult:
    changes = [
        {"InstanceId": one.id, "CurrentState": _state(one), "PreviousState": before[one.id]} for one in chosen
    ]
    return ActionResult({name: changes})


def _get_console_output(self: Any) -> ActionResult:
    instance = self.ec2_backend.get_instance(self._get_param("InstanceId"))
    life = LIVES.get(instance.id)
    text = LIVES.console(life).decode(errors="replace")[-65536:] if life is not None else ""
    result: dict[str, Any] = {"InstanceId": instance.id, "Timestamp": utcnow()}
    if text:
        result["Output"] = Base64EncodedString.from_raw_string(text.replace("\n", "\r\n"))
    return ActionResult(result)


# ---------------------------------------------------------------- images, prices, parameters, groups


class CloudAmi(Ami):
    """An image whose root volume has its true size and ends with the instance."""

    chosen: images.Image

    @property
    def block_device_mappings(self) -> list[dict[str, Any]]:
        ebs = {
            "SnapshotId": self.ebs_snapshot.id,
            "VolumeSize": self.chosen.size,
            "DeleteOnTermination": True,
            "VolumeType": "gp3" if "jammy" not in self.chosen.name else "gp2",
            "Encrypted": False,
        }
        return [{"DeviceName": self.root_device_name, "Ebs": ebs}]

    @property
    def image_owner_alias(self) -> str | None:
        return self.owner_alias


def _load_amis(self: Any) -> None:
    for chosen in images.IMAGES:
        made = CloudAmi(
            self,
            chosen.id(self.region_name),
            name=chosen.name,
            description=chosen.description or chosen.name,
            owner_id=chosen.owner,
            owner_alias=chosen.alias,
            public=True,
            virtualization_type="hvm",
            architecture=chosen.arch,
            creation_date=datetime.strptime(chosen.created, "%Y-%m-%dT%H:%M:%S.000Z").replace(tzinfo=UTC),
            image_location=f"{chosen.owner}/{chosen.name}",
            hypervisor="xen",
            root_device_type="ebs",
            root_device_name=chosen.root_device,
            region_name=f"{self.region_name}a",
            boot_mode="uefi-preferred",
        )
        made.chosen = chosen
        self.amis[made.id] = made


def _load_parameters(self: Any, key: str) -> None:
    """AWS's public parameters: those of this cloud's images."""
    if not str(key or "").startswith("/aws") or getattr(self, "orch_loaded", False):
        return
    self.orch_loaded = True
    for name, value in images.parameters(self.region_name).items():
        dict.setdefault(self, name, []).append(
            Parameter(
                account_id=self.account_id,
                name=name,
                value=value,
                parameter_type="String",
                description=None,
                allowed_pattern=None,
                keyid=None,
                last_modified_date=utcnow(),
                version=1,
                data_type="aws:ec2:image",
            )
        )


def _describe_spot_price_history(self: Any) -> ActionResult:
    filters = self._filters_from_querystring()
    names = self._get_param("InstanceTypes", []) or filters.get("instance-type") or sorted(INSTANCE_TYPES)
    wanted = self._get_param("AvailabilityZone") or filters.get("availability-zone")
    wanted = [wanted] if isinstance(wanted, str) else wanted
    history = [
        {
            "InstanceType": name,
            "ProductDescription": "Linux/UNIX",
            "SpotPrice": f"{market.spot(INSTANCE_TYPES[name], zone):.6f}",
            "AvailabilityZone": zone,
            "Timestamp": utcnow(),
        }
        for name in names
        if name in INSTANCE_TYPES and "spot" in INSTANCE_TYPES[name].get("SupportedUsageClasses", [])
        for zone in checks.offered_zones(name, self.region)
        if not wanted or zone in wanted
    ]
    start = int(self._get_param("NextToken") or 0)
    page = min(int(self._get_param("MaxResults") or 1000), 1000)
    more = str(start + page) if start + page < len(history) else ""
    return ActionResult({"SpotPriceHistory": history[start : start + page], "NextToken": more})


def _kept_while_used(original: Any) -> Any:
    def delete_security_group(self: Any, name: str | None = None, group_id: str | None = None) -> Any:
        for life in LIVES.all():
            groups = {group.id: group.name for group in life.instance.security_groups}
            groups.update({g.id: g.name for nic in life.instance.nics.values() for g in nic.group_set})
            if life.instance.state != TERMINATED[0] and (group_id in groups or name in groups.values()):
                raise EC2ClientError(
                    "DependencyViolation", f"resource {group_id or name} has a dependent object"
                )
        return original(self, name=name, group_id=group_id)

    return delete_security_group
