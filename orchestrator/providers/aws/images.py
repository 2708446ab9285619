"""Which image a machine boots: by a public parameter that always names the newest, else by its name."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from orchestrator.errors import Fault, ProviderError
from orchestrator.model import MachineSpec
from orchestrator.providers.aws.clients import Clients, asking
from orchestrator.providers.aws.request import GIB, Image

_AMAZON = "amazon"
_CANONICAL = "099720109477"
_DLAMI = "/aws/service/deeplearning/ami/{arch}/base-oss-nvidia-driver-gpu-ubuntu-{release}/latest/ami-id"
_UBUNTU = "/aws/service/canonical/ubuntu/server/24.04/stable/current/{deb}/hvm/ebs-gp3/ami-id"
_AMAZON_LINUX = "/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-{arch}"


@dataclass(frozen=True)
class Family:
    """Images that serve alike: parameters in order of preference, then owner and pattern of the name."""

    parameters: tuple[str, ...]
    names: tuple[tuple[str, str], ...]


_GPU = Family(
    (_DLAMI.replace("{release}", "24.04"), _DLAMI.replace("{release}", "22.04")),
    (
        (_AMAZON, "Deep Learning*Base OSS Nvidia Driver GPU AMI (Ubuntu 24.04) *"),
        (_AMAZON, "Deep Learning*Base OSS Nvidia Driver GPU AMI (Ubuntu 22.04) *"),
    ),
)
_PLAIN = Family(
    (_UBUNTU, _AMAZON_LINUX),
    (
        (_CANONICAL, "ubuntu/images/hvm-ssd-gp3/ubuntu-noble-24.04-{deb}-server-*"),
        (_AMAZON, "al2023-ami-2023.*-kernel-*-{arch}"),
    ),
)
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
    """With drivers where there is a GPU; `parameters` and `names` for the offer's processor."""
    chosen = _GPU if spec.offer.accelerator_count else _PLAIN
    arch = spec.offer.arch
    words = {"arch": arch, "deb": "amd64" if arch == "x86_64" else arch}
    return Family(
        tuple(name.format(**words) for name in chosen.parameters),
        tuple((owner, name.format(**words)) for owner, name in chosen.names),
    )


def user_of(name: str) -> str:
    """Who logs in to an image of that name; "" where the name does not tell."""
    return next((user for pattern, user in _USERS if fnmatch.fnmatch(name.lower(), pattern)), "")


def find(clients: Clients, region: str, spec: MachineSpec, wanted: str | None) -> Image:
    """The image for `spec`; `wanted` is `ami-…`, `ssm:/parameter`, a pattern of names, or None.

    Raises ProviderError(INVALID) where there is none.
    """
    if wanted is None:
        return _of_family(clients, region, family(spec))
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


def _of_family(clients: Clients, region: str, wanted: Family) -> Image:
    for name in wanted.parameters:
        identity = _parameter(clients, region, name)
        found = _described(clients, region, identity) if identity else None
        if found:
            return found
    for owner, pattern in wanted.names:
        newest = _newest(clients, region, owner, pattern, None)
        if newest:
            return newest
    raise _missing(region, wanted.names[0][1])


def _missing(region: str, wanted: str) -> ProviderError:
    return ProviderError(
        Fault.INVALID,
        f"There is no image {wanted} in {region}. ORCH_AWS_IMAGE names another.",
        code="InvalidAMIID.NotFound",
    )


def _parameter(clients: Clients, region: str, name: str) -> str | None:
    """What the parameter holds; None where this endpoint has no such parameter."""
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
    return next((_image(found) for found in answer["Images"]), None)


def _newest(
    clients: Clients, region: str, owner: str | None, pattern: str, architecture: str | None
) -> Image | None:
    filters = [{"Name": "name", "Values": [pattern]}, {"Name": "state", "Values": ["available"]}]
    if architecture:
        filters.append({"Name": "architecture", "Values": [architecture]})
    with asking(clients, region):
        owners = {"Owners": [owner]} if owner else {}
        found = clients.ec2(region).describe_images(Filters=filters, **owners)["Images"]
    newest = max(found, key=lambda image: (image.get("CreationDate", ""), image["ImageId"]), default=None)
    return _image(newest) if newest else None


def _image(found: Mapping[str, Any]) -> Image:
    name = found.get("Name") or found.get("ImageLocation") or found["ImageId"]
    return Image(
        id=found["ImageId"],
        name=name,
        user=user_of(f"{name} {found.get('Description') or ''}"),
        root_device=found.get("RootDeviceName") or "/dev/sda1",
        smallest=_smallest(found),
        architecture=found.get("Architecture") or "x86_64",
    )


def _smallest(found: Mapping[str, Any]) -> int:
    """The size of the snapshot that the root disk is made of, in bytes."""
    for device in found.get("BlockDeviceMappings", ()):
        if device.get("DeviceName") == found.get("RootDeviceName"):
            return int(device.get("Ebs", {}).get("VolumeSize") or 0) * GIB
    return 0
