"""Images made of instances: CreateImage, and the disks of stopped instances."""

from __future__ import annotations

import re
import shutil
import tempfile
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from moto.core.responses import ActionResult
from moto.ec2.exceptions import EC2ClientError
from moto.ec2.utils import random_ami_id

from tests.clouds.aws import images
from tests.clouds.aws.settings import ACCOUNT, SETTINGS
from tests.clouds.disk_files import copied

_NAME = re.compile(r"[A-Za-z0-9()\[\] ./\-'@_]{3,128}\Z")


@dataclass
class Baked:
    """An image of an instance. `files`: its disk."""

    image: images.Image
    region: str
    files: Path
    made_at: float

    @property
    def available(self) -> bool:
        return time.time() - self.made_at >= SETTINGS.image_after_s


_DISKS: dict[str, Path] = {}
"""The disk of each stopped instance."""


def keep(instance: str, pid: int) -> None:
    """Copy the disk of an instance that stops, while its machine still shows its files."""
    _DISKS[instance] = copied(pid, "aws")


def forget_all() -> None:
    for path in (*_DISKS.values(), *(baked.files for baked in images.BAKED.values())):
        shutil.rmtree(path, ignore_errors=True)


# ---------------------------------------------------------------- the calls


def create_image(self: Any) -> ActionResult:
    """CreateImage, in the place of moto's."""
    from tests.clouds.aws.goods import CloudAmi
    from tests.clouds.aws.life import LIVES

    backend, name = self.ec2_backend, self._get_param("Name") or ""
    instance = backend.get_instance(self._get_param("InstanceId"))
    tags = _tags(self._get_param("TagSpecifications", []) or [])
    if not _NAME.match(name):
        raise EC2ClientError(
            "InvalidAMIName.Malformed", f"AMI names must be between 3 and 128 characters: {name}"
        )
    taken = next((one for one in backend.amis.values() if one.name == name and one.owner_id == ACCOUNT), None)
    if taken is not None:
        raise EC2ClientError(
            "InvalidAMIName.Duplicate", f"AMI name {name} is already in use by AMI {taken.id}"
        )
    if instance.state not in ("running", "stopping", "stopped"):
        raise EC2ClientError(
            "IncorrectInstanceState",
            f"The instance '{instance.id}' is not in a state from which an image can be created.",
        )
    self.error_on_dryrun()
    life = LIVES.get(instance.id)
    assert life is not None
    base = images.image(self.region, instance.image_id)
    assert base is not None
    if instance.state == "running" and life.guest is not None:
        files = copied(life.guest._pid, "aws")
    else:
        files = _DISKS.get(instance.id) or Path(tempfile.mkdtemp(prefix="orch-aws-disk-"))
    image = images.Image(
        name=name,
        owner=ACCOUNT,
        arch=base.arch,
        user=life.user,
        root_device=base.root_device,
        size=instance.block_device_mapping[base.root_device].size,
        created="",
        description=self._get_param("Description") or "",
        drivers=base.drivers,
    )
    identity = random_ami_id()
    made = CloudAmi(
        backend,
        identity,
        instance=instance,
        name=name,
        description=image.description,
        owner_id=ACCOUNT,
        creation_date=datetime.now(UTC).replace(microsecond=0),
        image_location=f"{ACCOUNT}/{name}",
        root_device_type="ebs",
        root_device_name=base.root_device,
        region_name=f"{self.region}a",
    )
    made.chosen, made.architecture = image, base.arch
    made.add_tags(tags.get("image", {}))
    made.ebs_snapshot.add_tags(tags.get("snapshot", {}))
    made.ebs_snapshot.owner_id = ACCOUNT
    backend.amis[identity] = made
    images.BAKED[identity] = Baked(image, self.region, files, time.time())
    return ActionResult({"ImageId": identity})


def _tags(specifications: list[dict[str, Any]]) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for one in specifications:
        if one.get("ResourceType") not in ("image", "snapshot"):
            raise EC2ClientError(
                "InvalidParameterValue",
                f"'{one.get('ResourceType')}' is not a valid taggable resource type for this operation.",
            )
        found[one["ResourceType"]] = {tag["Key"]: tag.get("Value", "") for tag in one.get("Tags", [])}
    return found


def deregister_image(original: Any) -> Any:
    def corrected(self: Any, ami_id: str) -> None:
        if ami_id in self.amis and self.amis[ami_id].owner_id != ACCOUNT:
            raise EC2ClientError("AuthFailure", f"Not authorized for image:{ami_id}")
        original(self, ami_id)
        images.BAKED.pop(ami_id, None)

    return corrected


def owned(original: Any) -> Any:
    """DescribeSnapshots with OwnerIds, which moto overlooks."""

    def describe_snapshots(self: Any) -> ActionResult:
        owners = {ACCOUNT if one == "self" else one for one in self._get_param("OwnerIds", []) or []}
        found: list[Any] = original(self).result["Snapshots"]
        return ActionResult({"Snapshots": [one for one in found if not owners or one.owner_id in owners]})

    return describe_snapshots
