"""What the cloud has besides instances: images, public parameters, spot prices, security groups."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from moto.core.responses import ActionResult
from moto.core.utils import utcnow
from moto.ec2.exceptions import EC2ClientError
from moto.ec2.models import ec2_backends
from moto.ec2.models.amis import Ami
from moto.ec2.models.instance_types import INSTANCE_TYPES
from moto.ssm.models import Parameter

from tests.clouds.aws import checks, images, market
from tests.clouds.aws.life import LIVES, TERMINATED
from tests.clouds.aws.settings import ACCOUNT


class CloudAmi(Ami):
    """An image whose root volume has its true size and ends with the instance."""

    chosen: images.Image

    @property
    def state(self) -> str:
        baked = images.BAKED.get(self.id)
        return "available" if baked is None or baked.available else "pending"

    @state.setter
    def state(self, value: str) -> None:
        """Ignore moto's own: an image is available some time after it was made."""

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


def load_amis(self: Any) -> None:
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
            platform=chosen.platform,
        )
        made.chosen = chosen
        self.amis[made.id] = made


def load_parameters(self: Any, key: str) -> None:
    """AWS's public parameters: those of this cloud's images."""
    if not str(key or "").startswith("/aws") or getattr(self, "orch_loaded", False):
        return
    self.orch_loaded = True
    for name, value in images.parameters(self.region_name).items():
        dict.setdefault(self, name, []).append(
            Parameter(  # type: ignore[abstract]
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


def describe_spot_price_history(self: Any) -> ActionResult:
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


def open_group(region: str, name: str) -> None:
    """A security group of the default VPC that admits ssh from anywhere."""
    backend = ec2_backends[ACCOUNT][region]
    vpc = backend.get_default_vpc()
    assert vpc is not None
    group = backend.create_security_group(name, "ssh", vpc_id=vpc.id)
    backend.authorize_security_group_ingress(group.id, "tcp", "22", "22", ip_ranges=[{"CidrIp": "0.0.0.0/0"}])


def kept_while_used(original: Any) -> Any:
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
