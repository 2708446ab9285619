"""Images of instances: made of the boot disk of a stopped one, found by their labels.

An image gets, beside the labels that it is given: `orch-image`, its own name; `orch-machine`, the machine it
was made of; and `orch-origin`, the project of the image that this machine booted. Features of the guest and
licences are those of the disk. It is stored in the machine's region, and machines of every region boot it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from orchestrator.errors import Fault, ProviderError
from orchestrator.model import ImageState, Labels, Machine, MachineImage
from orchestrator.providers.gcp import seen
from orchestrator.providers.gcp.image_calls import ImageCalls
from orchestrator.providers.gcp.images import path_of
from orchestrator.providers.gcp.names import (
    LABEL_IMAGE,
    LABEL_MACHINE,
    LABEL_ORIGIN,
    is_label,
    region_of,
)
from orchestrator.providers.image_names import require_image_name, taken

Json = Mapping[str, Any]

_STOPPING_S = 900.0
"""Seconds that an instance may take to stop: its guest gets minutes to shut down."""
_DELETING_S = 120.0
_POLL_S = 1.0
_GIB = 1 << 30
_STOPPED = ("TERMINATED", "STOPPED")
_STOPPABLE = ("PROVISIONING", "STAGING", "RUNNING", "REPAIRING", "PENDING_STOP", "STOPPING")
_STATES = {"PENDING": ImageState.PENDING, "READY": ImageState.AVAILABLE}
_WHY = {"FAILED": "Google could not store it", "DELETING": "it is being deleted"}
_OURS = (LABEL_IMAGE, LABEL_MACHINE, LABEL_ORIGIN)


class InstanceImages:
    """The part of the provider that makes images."""

    _calls: ImageCalls

    def bake(self, machine: Machine, name: str, labels: Labels) -> MachineImage:
        require_image_name(name)
        found = self._known(name, labels)
        if found is not None:
            return found
        instance = self._stopped(machine)
        try:
            self._calls.store_image(_body(instance, machine, name, labels))
        except ProviderError as error:
            known = self._known(name, labels) if error.fault is Fault.CONFLICT else None
            if known is None:
                raise
            return known
        return self._known(name, labels) or MachineImage(
            "gcp", name, self._path(name), ImageState.PENDING, dict(labels), datetime.now(UTC)
        )

    def images(self, labels: Labels) -> Sequence[MachineImage]:
        found = map(_image, self._calls.own_images(f"labels.{LABEL_IMAGE}:*"))
        return [image for image in found if labels.items() <= image.labels.items()]

    def delete_image(self, image: MachineImage) -> None:
        require_image_name(image.name)
        asked, end = False, time.monotonic() + _DELETING_S
        while (found := self._calls.own_image(image.name)) is not None and _is_ours(found):
            if time.monotonic() > end:
                return  # it is listed until it is gone
            if asked:
                time.sleep(_POLL_S)
            if found.get("status") != "DELETING":
                self._calls.remove_image(image.name)
            asked = True

    # ------------------------------------------------------------ inside

    def _known(self, name: str, labels: Labels) -> MachineImage | None:
        """Return the image that orch made with this name. Raise CONFLICT if the name is another's, or its
        labels are others.
        """
        found = self._calls.own_image(name)
        if found is None:
            return None
        if not _is_ours(found):
            raise ProviderError(
                Fault.CONFLICT,
                f"The project {self._calls.project} has an image {name} that orch did not make.",
                code="ImageNameTaken",
                next_command="orch image bake --name OTHER    # OTHER: a name that is free",
            )
        image = _image(found)
        if dict(image.labels) != dict(labels):
            raise taken(image)
        return image

    def _stopped(self, machine: Machine) -> Json:
        """Stop the instance, and return it once it is stopped: files that were not written would be
        missing.
        """
        end = time.monotonic() + _STOPPING_S
        while True:
            instance = self._calls.instance_of(machine)
            status = str(instance.get("status", "")) if instance is not None else "gone"
            if instance is not None and status in _STOPPED:
                return instance
            if instance is None or status not in _STOPPABLE:
                raise ProviderError(
                    Fault.INVALID,
                    f"{machine.id} is {status.lower()}, so no image can be made of it.",
                    code="InstanceState",
                )
            if time.monotonic() > end:
                raise ProviderError(
                    Fault.UNKNOWN,
                    f"{machine.id} has not stopped within {_STOPPING_S:.0f} s.",
                    code="NotStopped",
                )
            if status == "RUNNING":
                self._calls.stop(machine.zone, machine.id, local_ssd=_has_local_ssd(instance))
            time.sleep(_POLL_S)

    def _path(self, name: str) -> str:
        return f"projects/{self._calls.project}/global/images/{name}"


def _body(instance: Json, machine: Machine, name: str, labels: Labels) -> dict[str, Any]:
    """Return the Image resource of a stopped instance."""
    boot = next((disk for disk in instance.get("disks", ()) if disk.get("boot")), None)
    if boot is None:
        raise ProviderError(Fault.INVALID, f"{machine.id} has no boot disk.", code="NoBootDisk")
    origin = seen.origin(instance)
    ours = {LABEL_IMAGE: name, LABEL_MACHINE: machine.name}
    if is_label(LABEL_ORIGIN, origin):  # the name of a project of a domain is no label
        ours[LABEL_ORIGIN] = origin
    return {
        "name": name,
        "description": f"Made by orch of {machine.name}",
        "labels": {**labels, **ours},
        "sourceDisk": path_of(str(boot["source"])),
        "storageLocations": [region_of(machine.zone)],
    }


def _has_local_ssd(instance: Json) -> bool:
    return any(disk.get("type") == "SCRATCH" for disk in instance.get("disks", ()))


def _is_ours(found: Json) -> bool:
    return LABEL_IMAGE in found.get("labels", {})


def _image(found: Json) -> MachineImage:
    status = str(found.get("status", "PENDING"))
    size = int(found.get("archiveSizeBytes") or 0)
    told = found.get("labels", {})
    return MachineImage(
        provider="gcp",
        name=str(found["name"]),
        reference=path_of(str(found["selfLink"])),
        state=_STATES.get(status, ImageState.FAILED),
        labels={key: value for key, value in told.items() if key not in _OURS},
        created_at=_time(found.get("creationTimestamp")),
        disk=int(found.get("diskSizeGb") or 0) * _GIB,
        size=size or None,
        detail={
            "architecture": found.get("architecture"),
            "stored_in": list(found.get("storageLocations", ())),
            "why": _WHY.get(status, ""),
        },
    )


def _time(told: Any) -> datetime:
    try:
        return datetime.fromisoformat(str(told)).astimezone(UTC)
    except ValueError:
        return datetime.fromtimestamp(0, UTC)
