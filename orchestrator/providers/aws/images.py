"""Choose the image of a machine: from a public SSM parameter that names the newest one, else by the image's
name.

GPUs before Turing need the proprietary kernel modules (NVIDIA Driver Installation Guide, "Kernel Modules"):
AWS has a separate image for "G3, P3, P3dn" (DLAMI release notes). Its system is older. AWS hides images two
years after their creation, when they are deprecated, unless a request includes them.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.errors import Fault, ProviderError
from orchestrator.model import MachineSpec
from orchestrator.model.needs import is_before_turing
from orchestrator.providers.aws import tags
from orchestrator.providers.aws.clients import Clients, asking
from orchestrator.providers.aws.request import GIB, Image

_AMAZON = "amazon"
_CANONICAL = "099720109477"
_DLAMI = (
    "/aws/service/deeplearning/ami/{arch}/base-{modules}-nvidia-driver-gpu-ubuntu-{release}/latest/ami-id"
)
_UBUNTU = "/aws/service/canonical/ubuntu/server/24.04/stable/current/{deb}/hvm/ebs-gp3/ami-id"
_AMAZON_LINUX = "/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-{arch}"


@dataclass(frozen=True)
class Family:
    """Interchangeable images: SSM parameters in order of preference, then owner and name pattern."""

    parameters: tuple[str, ...]
    names: tuple[tuple[str, str], ...]


def _deep_learning(modules: str, title: str, *releases: str) -> Family:
    """Return the family of AWS images with a GPU driver. `modules`: the kernel modules, as in the
    parameter's name; `title`: as in the image's name.
    """
    return Family(
        tuple(_DLAMI.replace("{modules}", modules).replace("{release}", each) for each in releases),
        tuple(
            (_AMAZON, f"Deep Learning {{word}}Base {title} Nvidia Driver GPU AMI (Ubuntu {each}) *")
            for each in releases
        ),
    )


_GPU = _deep_learning("oss", "OSS", "24.04", "22.04")
_OLDER_GPU = _deep_learning("proprietary", "Proprietary", "22.04", "20.04")
_PLAIN = Family(
    (_UBUNTU, _AMAZON_LINUX),
    (
        (_CANONICAL, "ubuntu/images/hvm-ssd-gp3/ubuntu-noble-24.04-{deb}-server-*"),
        (_AMAZON, "al2023-ami-2023.*-kernel-*-{arch}"),
    ),
)
_DENIED = ("AccessDenied", "AccessDeniedException", "UnauthorizedOperation")
_USERS = (
    ("*ubuntu*", "ubuntu"),
    ("*debian*", "admin"),
    ("amzn*", "ec2-user"),
    ("al20*", "ec2-user"),
    ("*amazon linux*", "ec2-user"),
    ("rhel*", "ec2-user"),
    ("suse*", "ec2-user"),
    ("*fedora*", "fedora"),
    ("*rocky*", "rocky"),
    ("*almalinux*", "ec2-user"),
)


def family(spec: MachineSpec) -> Family:
    """Return the images for an offer: with a driver if it has a GPU, and for its processor architecture."""
    arch, gpu = spec.offer.arch, spec.offer.accelerator or ""
    chosen = _PLAIN
    if gpu or spec.offer.accelerator_count:
        chosen = _OLDER_GPU if is_before_turing(gpu) else _GPU
    arm = arch != "x86_64"
    words = {"arch": arch, "deb": arch if arm else "amd64", "word": "ARM64 " if arm else ""}
    return Family(
        tuple(name.format(**words) for name in chosen.parameters),
        tuple((owner, name.format(**words)) for owner, name in chosen.names),
    )


def user_of(name: str) -> str:
    """Return the login user of an image with this name; "" if the name does not show it."""
    return next((user for pattern, user in _USERS if fnmatch.fnmatch(name.lower(), pattern)), "")


def find(clients: Clients, region: str, spec: MachineSpec, wanted: str | None) -> Image:
    """Return the image for `spec`. `wanted` is `ami-…`, `ssm:/parameter`, a name pattern, or None.

    Raises ProviderError(INVALID) if there is none.
    """
    if wanted is None:
        return _of_family(clients, region, family(spec), spec.offer.arch)
    if wanted.startswith("ami-"):
        found = _described(clients, region, wanted)
    elif wanted.startswith(("ssm:", "resolve:ssm:")):
        identity = _parameter(clients, region, wanted.rpartition("ssm:")[2])
        found = _described(clients, region, identity) if identity else None
    else:
        found = _newest(clients, region, None, wanted, spec.offer.arch)
    if found is None:
        raise _missing(region, wanted)
    return found


def _of_family(clients: Clients, region: str, wanted: Family, arch: str) -> Image:
    for name in wanted.parameters:
        try:
            identity = _parameter(clients, region, name)
        except ProviderError as error:
            if error.code.partition(".")[0] not in _DENIED:
                raise
            break  # AmazonEC2FullAccess does not include Systems Manager; then the image is found by its name
        found = _described(clients, region, identity) if identity else None
        if found:
            return found
    for owner, pattern in wanted.names:
        newest = _newest(clients, region, owner, pattern, arch)
        if newest:
            return newest
    raise _missing(region, wanted.names[0][1])


def _missing(region: str, wanted: str) -> ProviderError:
    return ProviderError(
        Fault.INVALID,
        f"There is no image {wanted} in {region} that runs Linux. Name another with `image` in the "
        "profile, or with ORCH_AWS_IMAGE.",
        code="InvalidAMIID.NotFound",
    )


def _parameter(clients: Clients, region: str, name: str) -> str | None:
    """Return the value of an SSM parameter; None if this endpoint does not have it."""
    try:
        with asking(clients, region):
            answer = clients.client("ssm", region).get_parameter(Name=name)
        return str(answer["Parameter"]["Value"])
    except ProviderError as error:
        if error.code.partition(".")[0] in ("ParameterNotFound", "ValidationException"):
            return None
        raise


def _described(clients: Clients, region: str, identity: str) -> Image | None:
    try:
        with asking(clients, region):
            answer = clients.ec2(region).describe_images(ImageIds=[identity])
    except ProviderError as error:
        if error.code.startswith("InvalidAMIID."):
            return None
        raise
    return next(iter(_of_linux(answer["Images"])), None)


def _newest(
    clients: Clients, region: str, owner: str | None, pattern: str, architecture: str
) -> Image | None:
    wanted = {"name": pattern, "state": "available", "architecture": architecture}
    filters = [{"Name": name, "Values": [value]} for name, value in wanted.items()]
    with asking(clients, region):
        owners = {"Owners": [owner]} if owner else {}
        found = clients.ec2(region).describe_images(Filters=filters, IncludeDeprecated=True, **owners)[
            "Images"
        ]
    newest = sorted(found, key=lambda image: (image.get("CreationDate", ""), image["ImageId"]), reverse=True)
    return next(iter(_of_linux(newest)), None)


def _of_linux(found: Sequence[Mapping[str, Any]]) -> list[Image]:
    """Return the images without Windows, which has neither cloud-init nor a POSIX shell."""
    return [_image(image) for image in found if image.get("Platform", "").lower() != "windows"]


def _image(found: Mapping[str, Any]) -> Image:
    name = found.get("Name") or found.get("ImageLocation") or found["ImageId"]
    return Image(
        id=found["ImageId"],
        name=name,
        user=_own_user(found) or user_of(f"{name} {found.get('Description') or ''}"),
        root_device=found.get("RootDeviceName") or "/dev/sda1",
        smallest=_smallest(found),
        architecture=found.get("Architecture") or "x86_64",
    )


def _own_user(found: Mapping[str, Any]) -> str:
    """Return the login user of an image that orch created; tags are visible to the image's account only."""
    ours = tags.tags_in(found)
    return ours.get(tags.LOGIN, "") if tags.IMAGE in ours else ""


def _smallest(found: Mapping[str, Any]) -> int:
    """Return the size in bytes of the snapshot of the root disk."""
    for device in found.get("BlockDeviceMappings", ()):
        if device.get("DeviceName") == found.get("RootDeviceName"):
            return int(device.get("Ebs", {}).get("VolumeSize") or 0) * GIB
    return 0
