"""The emulated clouds, seen from outside: what exists there, by the cloud's own account.

Each is a process of its own, which goes on when a verb is killed. Its machines are real ones.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

KINDS = ("aws", "gcp")

_INSERT = "POST us-central1-a/instances"
_DELETE = "DELETE instances/[^:]*"


def _around(call: str) -> tuple[str, str]:
    return f"{call}: asked", f"{call}: answered"


CALLS: Mapping[tuple[str, str], Sequence[str]] = {
    ("aws", "up"): ("RunInstances: asked", "RunInstances: answered", "CreateTags: answered"),
    ("aws", "up, only down"): ("RunInstances: asked", "RunInstances: answered"),
    ("aws", "down"): ("TerminateInstances: asked", "TerminateInstances: answered"),
    ("aws", "image bake"): (
        *_around("StopInstances"),
        *_around("CreateImage"),
        *_around("TerminateInstances"),
    ),
    ("aws", "image bake, only down"): _around("CreateImage"),
    ("aws", "image delete"): (*_around("DeregisterImage"), *_around("DeleteSnapshot")),
    ("aws", "run"): ("RunInstances: answered", "TerminateInstances: answered"),
    ("gcp", "up"): (f"{_INSERT}: asked", f"{_INSERT}: answered", "GET operations/.*: answered"),
    ("gcp", "up, only down"): (f"{_INSERT}: asked", f"{_INSERT}: answered"),
    ("gcp", "down"): (f"{_DELETE}: asked", f"{_DELETE}: answered"),
    ("gcp", "image bake"): (*_around("POST .*/stop"), *_around("POST global/images"), *_around(_DELETE)),
    ("gcp", "image bake, only down"): _around("POST global/images"),
    ("gcp", "image delete"): _around("DELETE images/[^:]*"),
    ("gcp", "run"): (f"{_INSERT}: answered", f"{_DELETE}: answered"),
}
"""By cloud and verb, patterns of the effects around the calls that make, change and end a machine."""

_OVER = ("terminated", "shutting-down")


@dataclass(frozen=True)
class Emulated:
    """`folder` holds its machines; `env` leads clients to it; `machines` and `others` ask what exists."""

    kind: str
    folder: Path
    env: Mapping[str, str]
    machines: Callable[[], Sequence[str]]
    others: Callable[[], frozenset[str]]
    before: frozenset[str]

    def alive(self) -> Sequence[str]:
        return self.machines()

    def left(self) -> Sequence[str]:
        """Disks, keys, groups, addresses: what is there and was not before orch came."""
        return sorted(self.others() - self.before)


@contextmanager
def emulated(kind: str) -> Iterator[Emulated]:
    """A cloud of that kind, which ends with its machines when this is left."""
    with tempfile.TemporaryDirectory(prefix="orch-crash-cloud-", ignore_cleanup_errors=True) as folder:
        state = Path(folder)
        with _aws(state) if kind == "aws" else _google(state) as made:
            yield made


@contextmanager
def _aws(state: Path) -> Iterator[Emulated]:
    from tests.clouds.ground_aws import REGION, grounded

    with grounded(state=state) as cloud:
        ec2 = cloud.client("ec2", REGION)

        def machines() -> Sequence[str]:
            return [one["id"] for one in cloud.instances() if one["state"] not in _OVER]

        def others() -> frozenset[str]:
            return frozenset(_on_aws(ec2))

        env = {**cloud.env, "ORCH_AWS_REGIONS": REGION}
        yield Emulated("aws", state, env, machines, others, others())


def _on_aws(ec2: Any) -> Iterator[str]:
    for volume in ec2.describe_volumes()["Volumes"]:
        yield f"disk {volume['VolumeId']}"
    for key in ec2.describe_key_pairs()["KeyPairs"]:
        yield f"key {key['KeyName']}"
    for group in ec2.describe_security_groups()["SecurityGroups"]:
        yield f"security group {group['GroupId']} {group['IpPermissions']}"
    for placement in ec2.describe_placement_groups()["PlacementGroups"]:
        yield f"placement group {placement['GroupName']}"
    for address in ec2.describe_addresses()["Addresses"]:
        yield f"address {address['AllocationId']}"
    for image in ec2.describe_images(Owners=["self"])["Images"]:
        yield f"image {image['ImageId']}"
    for snapshot in ec2.describe_snapshots(OwnerIds=["self"])["Snapshots"]:
        yield f"snapshot {snapshot['SnapshotId']}"
    for link in ec2.describe_network_interfaces()["NetworkInterfaces"]:
        yield f"network interface {link['NetworkInterfaceId']}"


@contextmanager
def _google(state: Path) -> Iterator[Emulated]:
    from tests.clouds import gcp

    with gcp.running(state=state) as cloud:

        def machines() -> Sequence[str]:
            return [str(one["name"]) for one in cloud.state()["instances"]]

        def others() -> frozenset[str]:
            """Its users can make instances, disks and images; every other insert is refused."""
            state = cloud.state()
            disks = (f"disk {disk['name']}" for disk in state["disks"])
            return frozenset((*disks, *(f"image {image['name']}" for image in state["images"])))

        yield Emulated("gcp", state, dict(cloud.env), machines, others, others())
