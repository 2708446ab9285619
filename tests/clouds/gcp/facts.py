"""What the cloud sells where: zones, machine types, GPUs, images, disk types."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

HYPERDISK_ONLY = frozenset({"c4", "c4a", "c4d", "n4", "g4"})
ATTACHABLE = frozenset(f"nvidia-tesla-{name}" for name in ("t4", "p4", "v100", "p100"))
"""GPUs that are attached to n1 types; all others come with types of their own."""
NO_HYPERDISK = frozenset({"e2", "n1", "g2", "t2a", "t2d", "c2", "c2d"})
DISK_TYPES = (
    "pd-standard",
    "pd-balanced",
    "pd-ssd",
    "hyperdisk-balanced",
    "hyperdisk-throughput",
    "hyperdisk-ml",
)
SCOPES = frozenset(
    f"https://www.googleapis.com/auth/{name}"
    for name in (
        *("cloud-platform", "compute", "compute.readonly", "devstorage.read_only", "devstorage.read_write"),
        *("devstorage.full_control", "logging.write", "monitoring", "monitoring.write", "service.management"),
        *("service.management.readonly", "servicecontrol", "trace.append", "userinfo.email", "pubsub"),
    )
)


@dataclass(frozen=True)
class MachineType:
    """memory in MiB; `gpu` is the accelerator that is built in, or ""; zones in which it can be had."""

    name: str
    vcpus: int
    memory: int
    architecture: str
    gpu: str
    gpus: int
    zones: frozenset[str]

    @property
    def family(self) -> str:
        return self.name.partition("-")[0]


@dataclass(frozen=True)
class Image:
    """disk is its size in GB. `cloud_init` tells whether it carries out user-data (Google's own Debian
    images do not); `root_login` whether its sshd lets root in with a key."""

    project: str
    name: str
    family: str
    architecture: str
    disk: int
    cloud_init: bool
    root_login: bool
    deprecated: bool = False
    drivers: bool = False

    @property
    def features(self) -> list[dict[str, str]]:
        """guestOsFeatures: what the virtual hardware may offer it."""
        windows = ["WINDOWS"] if self.project == "windows-cloud" else []
        names = ["UEFI_COMPATIBLE", "VIRTIO_SCSI_MULTIQUEUE", "GVNIC", *windows]
        return [{"type": name} for name in names]

    @property
    def path(self) -> str:
        return f"projects/{self.project}/global/images/{self.name}"

    @property
    def driver(self) -> bool:
        """Whether NVIDIA's driver comes with it."""
        return self.drivers or "nvidia" in self.name


@dataclass(frozen=True)
class Facts:
    zones: tuple[str, ...]
    types: Mapping[str, MachineType]
    accelerators: Mapping[str, frozenset[str]]
    images: tuple[Image, ...]

    @property
    def regions(self) -> tuple[str, ...]:
        return tuple(sorted({region_of(zone) for zone in self.zones}))

    def type_in(self, zone: str, name: str) -> MachineType | None:
        found = self.types.get(name) or _custom(name, frozenset(self.zones))
        return found if found is not None and zone in found.zones else None

    def family_image(self, project: str, family: str) -> Image | None:
        """The newest image of a family that is not deprecated."""
        fit = [i for i in self.images if (i.project, i.family) == (project, family) and not i.deprecated]
        return max(fit, key=lambda image: image.name, default=None)

    def image(self, reference: str, own_project: str) -> Image | None:
        """By URL or part of one: projects/P/global/images/[family/]NAME or global/images/[family/]NAME."""
        found = re.search(r"(?:projects/([^/]+)/)?global/images/(family/)?([^/]+)$", reference)
        if found is None:
            return None
        project, by_family, name = found.group(1) or own_project, found.group(2), found.group(3)
        if by_family:
            return self.family_image(project, name)
        fit = (image for image in self.images if (image.project, image.name) == (project, name))
        return next(fit, None)


def region_of(zone: str) -> str:
    return zone.rpartition("-")[0]


@functools.cache
def load() -> Facts:
    folder = Path(__file__).parent / "facts"
    found = json.loads((folder / "machines.json").read_text())
    zones: list[str] = found["zones"]
    sets = [frozenset(zones[number] for number in numbers) for numbers in found["zone_sets"]]
    types = {
        name: MachineType(name, vcpus, memory, architecture, gpu, gpus, sets[where])
        for name, vcpus, memory, architecture, gpu, gpus, where in found["types"]
    }
    accelerators = {name: sets[number] for name, number in found["accelerators"].items()}
    images = json.loads((folder / "images.json").read_text())
    return Facts(tuple(zones), types, accelerators, tuple(Image(**image) for image in images))


def _custom(name: str, zones: frozenset[str]) -> MachineType | None:
    found = re.fullmatch(r"(e2|n1|n2|n2d|custom)-?(?:custom)?-(\d+)-(\d+)", name)
    if found is None or "custom" not in name or int(found.group(3)) % 256:
        return None
    return MachineType(name, int(found.group(2)), int(found.group(3)), "X86_64", "", 0, zones)
