"""Images of instances: created from a stopped one, found by their tags, deleted with their snapshots.

The image and its snapshots get the same tags: `orch-machine`, the machine they were created from;
`orch-image`, the image's name; `orch-login`, its user; and the labels. Deregistering an image leaves its
snapshots, which cost money: after an interrupted deletion they are found by `orch-image`.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from orchestrator.errors import Fault, ProviderError
from orchestrator.model import ImageState, Labels, Machine, MachineImage
from orchestrator.providers.aws import tags
from orchestrator.providers.aws.clients import Clients, asking
from orchestrator.providers.aws.request import GIB, region_of_zone
from orchestrator.providers.image_names import require_image_name, taken
from orchestrator.providers.regions import ask_regions

_STOPPING_S = 900.0
"""Seconds that an instance may take to stop: its system gets minutes to shut down."""
_POLL_S = 2.0
_DUPLICATE = "InvalidAMIName.Duplicate"
_STATES = {"pending": ImageState.PENDING, "available": ImageState.AVAILABLE}
_OURS = (tags.IMAGE, *tags.OURS)


class InstanceImages:
    """The part of the provider that creates, lists and deletes images."""

    _clients: Clients

    def bake(self, machine: Machine, name: str, labels: Labels) -> MachineImage:
        require_image_name(name)
        region = str(machine.detail.get("region") or region_of_zone(machine.zone))
        found = self._known(region, name, labels)
        if found is not None:
            return found
        self._stop(machine, region)
        wanted = {**labels, tags.IMAGE: name, tags.MACHINE: machine.name, "Name": name}
        wanted[tags.LOGIN] = str(machine.detail.get("user", "root"))
        listed = [{"Key": key, "Value": value} for key, value in wanted.items()]
        try:
            with asking(self._clients, region):
                made = self._clients.ec2(region).create_image(
                    InstanceId=machine.id,
                    Name=name,
                    Description=f"Made by orch of {machine.name}",
                    TagSpecifications=[
                        {"ResourceType": kind, "Tags": listed} for kind in ("image", "snapshot")
                    ],
                )
        except ProviderError as error:
            known = self._known(region, name, labels) if error.code == _DUPLICATE else None
            if known is None:
                raise
            return known
        return MachineImage(
            "aws", name, made["ImageId"], ImageState.PENDING, dict(labels), datetime.now(UTC), region
        )

    def images(self, labels: Labels) -> Sequence[MachineImage]:
        return ask_regions(self._clients.regions, lambda region: self._in_region(region, labels))[0]

    def delete_image(self, image: MachineImage) -> None:
        require_image_name(image.name)
        filters = [{"Name": f"tag:{tags.IMAGE}", "Values": [image.name]}]
        ec2 = self._clients.ec2(image.region)
        for found in self._registered(image.region, filters):
            try:
                with asking(self._clients, image.region):
                    ec2.deregister_image(ImageId=found["ImageId"])
            except ProviderError as error:
                if error.code not in ("InvalidAMIID.NotFound", "InvalidAMIID.Unavailable"):
                    raise
        for snapshot in self._snapshots(image.region, filters):
            try:
                with asking(self._clients, image.region):
                    ec2.delete_snapshot(SnapshotId=snapshot["SnapshotId"])
            except ProviderError as error:
                if error.code != "InvalidSnapshot.NotFound":
                    raise

    # ------------------------------------------------------------ inside

    def _known(self, region: str, name: str, labels: Labels) -> MachineImage | None:
        """Return the image that orch created with this name. Raise CONFLICT if it has other labels."""
        found = next((one for one in self._in_region(region, {}) if one.name == name), None)
        if found is not None and dict(found.labels) != dict(labels):
            raise taken(found)
        return found

    def _in_region(self, region: str, labels: Labels) -> list[MachineImage]:
        filters = [
            {"Name": "tag-key", "Values": [tags.IMAGE]},
            *({"Name": f"tag:{key}", "Values": [tags.literal(value)]} for key, value in labels.items()),
        ]
        stored: dict[str, list[Mapping[str, Any]]] = {}
        for snapshot in self._snapshots(region, filters):
            stored.setdefault(tags.tags_in(snapshot)[tags.IMAGE], []).append(snapshot)
        images = [_image(found, region, stored) for found in self._registered(region, filters)]
        names = {image.name for image in images}
        left = (_left(name, region, held) for name, held in stored.items() if name not in names)
        return [*images, *left]

    def _registered(self, region: str, filters: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        with asking(self._clients, region):
            answer = self._clients.ec2(region).describe_images(Owners=["self"], Filters=list(filters))
        return list(answer["Images"])

    def _snapshots(self, region: str, filters: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        with asking(self._clients, region):
            pages = self._clients.ec2(region).get_paginator("describe_snapshots")
            asked = pages.paginate(OwnerIds=["self"], Filters=list(filters))
            return [snapshot for page in asked for snapshot in page["Snapshots"]]

    def _stop(self, machine: Machine, region: str) -> None:
        """Stop the instance, and wait until it has stopped, so that all files are on its disk."""
        end = time.monotonic() + _STOPPING_S
        while (state := self._state(machine, region)) != "stopped":
            if state not in ("pending", "running", "stopping"):
                raise ProviderError(
                    Fault.INVALID,
                    f"{machine.id} is {state or 'gone'}, so no image can be created from it.",
                    code="IncorrectInstanceState",
                )
            if state == "running":
                with asking(self._clients, region):
                    self._clients.ec2(region).stop_instances(InstanceIds=[machine.id])
            if time.monotonic() > end:
                raise ProviderError(
                    Fault.UNKNOWN,
                    f"{machine.id} has not stopped within {_STOPPING_S:.0f} s.",
                    code="NotStopped",
                )
            time.sleep(_POLL_S)

    def _state(self, machine: Machine, region: str) -> str:
        with asking(self._clients, region):
            answer = self._clients.ec2(region).describe_instances(InstanceIds=[machine.id])
        found = (one for each in answer["Reservations"] for one in each["Instances"])
        return next((str(one["State"]["Name"]) for one in found), "")


def _image(
    found: Mapping[str, Any], region: str, stored: Mapping[str, Sequence[Mapping[str, Any]]]
) -> MachineImage:
    name = found.get("Name") or found["ImageId"]
    root = found.get("RootDeviceName")
    ebs: Mapping[str, Any] = next(
        (one.get("Ebs", {}) for one in _devices(found) if one.get("DeviceName") == root), {}
    )
    return MachineImage(
        provider="aws",
        name=name,
        reference=found["ImageId"],
        state=_STATES.get(found["State"], ImageState.FAILED),
        labels=_labels(found),
        created_at=_time(found.get("CreationDate")),
        region=region,
        disk=int(ebs.get("VolumeSize") or 0) * GIB,
        size=_size(stored.get(name, ())),
        detail={"architecture": found.get("Architecture"), "why": _why(found)},
    )


def _left(name: str, region: str, held: Sequence[Mapping[str, Any]]) -> MachineImage:
    """Return a deregistered image of which snapshots are left."""
    return MachineImage(
        provider="aws",
        name=name,
        reference="",
        state=ImageState.FAILED,
        labels=_labels(held[0]),
        created_at=_time(held[0].get("StartTime")),
        region=region,
        disk=sum(int(one.get("VolumeSize") or 0) for one in held) * GIB,
        size=_size(held),
        detail={"why": "its image is deregistered, its snapshots are left"},
    )


def _why(found: Mapping[str, Any]) -> str:
    return str((found.get("StateReason") or {}).get("Message") or "")


def _devices(found: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
    devices: Iterable[Mapping[str, Any]] = found.get("BlockDeviceMappings", ())
    return devices


def _labels(found: Mapping[str, Any]) -> dict[str, str]:
    ours = tags.tags_in(found)
    return {key: value for key, value in ours.items() if key not in _OURS and not key.startswith("aws:")}


def _size(held: Sequence[Mapping[str, Any]]) -> int | None:
    """Return the size of all snapshots in bytes; None if EC2 does not report it."""
    sizes = [one.get("FullSnapshotSizeInBytes") for one in held]
    known = [int(size) for size in sizes if size]
    return sum(known) if known and len(known) == len(sizes) else None


def _time(told: Any) -> datetime:
    if isinstance(told, datetime):
        return told if told.tzinfo else told.replace(tzinfo=UTC)
    try:
        return datetime.fromisoformat(str(told))
    except ValueError:
        return datetime.fromtimestamp(0, UTC)
