"""The machine images of this cloud and the public SSM parameters that name them.

Ids differ by region, as in AWS. There are older editions, deprecated ones, and a stranger's image with a
tempting name and the newest date: what is chosen by name alone is chosen wrongly.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

AMAZON = "898082745236"  # Deep Learning AMIs
AMAZON_LINUX = "137112412989"
CANONICAL = "099720109477"
STRANGER = "666666666666"


@dataclass(frozen=True)
class Image:
    """`parameters` are SSM names that resolve to it; `size` of its root volume in GiB; `drivers`: NVIDIA's
    are in it.
    """

    name: str
    owner: str
    arch: str
    user: str
    root_device: str
    size: int
    created: str
    parameters: tuple[str, ...] = ()
    description: str = ""
    platform: str | None = None
    drivers: bool = False

    @property
    def alias(self) -> str | None:
        return "amazon" if self.owner in (AMAZON, AMAZON_LINUX) else None

    def id(self, region: str) -> str:
        return "ami-" + hashlib.sha256(f"{region}/{self.owner}/{self.name}".encode()).hexdigest()[:17]


def _deep_learning() -> Iterator[Image]:
    systems = {
        "Ubuntu 22.04": ("ubuntu-22.04", "ubuntu", "/dev/sda1", 65),
        "Ubuntu 24.04": ("ubuntu-24.04", "ubuntu", "/dev/sda1", 65),
        "Amazon Linux 2023": ("amazon-linux-2023", "ec2-user", "/dev/xvda", 65),
    }
    for system, (slug, user, device, size) in systems.items():
        for arch, word in (("x86_64", ""), ("arm64", "ARM64 ")):
            for edition, newest in (("20260918", False), ("20261113", True)):
                path = f"/aws/service/deeplearning/ami/{arch}/base-oss-nvidia-driver-gpu-{slug}"
                yield Image(
                    name=f"Deep Learning {word}Base OSS Nvidia Driver GPU AMI ({system}) {edition}",
                    owner=AMAZON,
                    arch=arch,
                    user=user,
                    root_device=device,
                    size=size,
                    created=_date(edition),
                    parameters=(f"{path}/latest/ami-id",) if newest else (),
                    description="Supported EC2 instances: G4dn, G5, G6, Gr6, G6e, P4d, P4de, P5, P6-B200",
                    drivers=True,
                )
    yield Image(
        name="Deep Learning Base Proprietary Nvidia Driver GPU AMI (Ubuntu 20.04) 20250523",
        owner=AMAZON,
        arch="x86_64",
        user="ubuntu",
        root_device="/dev/sda1",
        size=65,
        created=_date("20250523"),
        description="Supported EC2 instances: G3, P3, P3dn",
        drivers=True,
    )
    for edition in ("20260901", "20261106"):
        path = "/aws/service/deeplearning/ami/x86_64/oss-nvidia-driver-gpu-tensorflow-2.19-amazon-linux-2023"
        yield Image(
            name=f"Deep Learning OSS Nvidia Driver AMI GPU TensorFlow 2.19 (Amazon Linux 2023) {edition}",
            owner=AMAZON,
            arch="x86_64",
            user="ec2-user",
            root_device="/dev/xvda",
            size=75,
            created=_date(edition),
            parameters=(f"{path}/latest/ami-id",) if edition == "20261106" else (),
        )


def _ubuntu() -> Iterator[Image]:
    for version, codename, volume in (("22.04", "jammy", "gp2"), ("24.04", "noble", "gp3")):
        for arch, word in (("x86_64", "amd64"), ("arm64", "arm64")):
            for edition, newest in (("20260801", False), ("20261110", True)):
                disk = "hvm-ssd-gp3" if volume == "gp3" else "hvm-ssd"
                stable = f"/aws/service/canonical/ubuntu/server/{version}/stable/current"
                path = f"{stable}/{word}/hvm/ebs-{volume}/ami-id"
                yield Image(
                    name=f"ubuntu/images/{disk}/ubuntu-{codename}-{version}-{word}-server-{edition}",
                    owner=CANONICAL,
                    arch=arch,
                    user="ubuntu",
                    root_device="/dev/sda1",
                    size=8,
                    created=_date(edition),
                    parameters=(path,) if newest else (),
                )


def _amazon_linux() -> Iterator[Image]:
    for arch in ("x86_64", "arm64"):
        for edition, newest in (("20260820", False), ("20261105", True)):
            names = ("kernel-default", "kernel-6.1")
            base = "/aws/service/ami-amazon-linux-latest/al2023-ami"
            yield Image(
                name=f"al2023-ami-2023.9.{edition}.0-kernel-6.1-{arch}",
                owner=AMAZON_LINUX,
                arch=arch,
                user="ec2-user",
                root_device="/dev/xvda",
                size=8,
                created=_date(edition),
                parameters=tuple(f"{base}-{name}-{arch}" for name in names) if newest else (),
            )


def _strangers() -> Iterator[Image]:
    yield Image(
        name="Deep Learning Base OSS Nvidia Driver GPU AMI (Ubuntu 22.04) 20261119",
        owner=STRANGER,
        arch="x86_64",
        user="ubuntu",
        root_device="/dev/sda1",
        size=65,
        created=_date("20261119"),
    )


def _windows() -> Iterator[Image]:
    yield Image(
        name="Deep Learning Base Proprietary Nvidia Driver GPU AMI (Windows Server 2022) 20261101",
        owner=AMAZON,
        arch="x86_64",
        user="Administrator",
        root_device="/dev/sda1",
        size=65,
        created=_date("20261101"),
        platform="windows",
    )


def _date(edition: str) -> str:
    return f"{edition[:4]}-{edition[4:6]}-{edition[6:]}T04:21:07.000Z"


IMAGES = (*_deep_learning(), *_ubuntu(), *_amazon_linux(), *_strangers(), *_windows())


BAKED: dict[str, Any] = {}
"""The images that this account made, by id: see tests.clouds.aws.baked."""


def image(region: str, ami_id: str) -> Image | None:
    """The image that has this id there."""
    baked = BAKED.get(ami_id)
    if baked is not None and baked.region == region:
        made: Image = baked.image
        return made
    return next((found for found in IMAGES if found.id(region) == ami_id), None)


def parameters(region: str) -> dict[str, str]:
    """SSM name → AMI id."""
    return {name: found.id(region) for found in IMAGES for name in found.parameters}
