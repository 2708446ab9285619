"""The placement groups that keep the machines of a group close together: one for each zone that was tried.

A placement group belongs to a zone as soon as it has a machine, so its name has the zone; it is found by its
tags. Every step looks first, so it may be repeated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from orchestrator.errors import Fault, ProviderError
from orchestrator.model import LABEL_LEASE
from orchestrator.providers.aws import tags
from orchestrator.providers.aws.clients import Clients, asking
from orchestrator.providers.groups import still_in_use
from orchestrator.providers.regions import ask_regions

_DUPLICATE = "InvalidPlacementGroup.Duplicate"
_UNKNOWN = "InvalidPlacementGroup.Unknown"
IN_USE = "InvalidPlacementGroup.InUse"

Described = Mapping[str, Any]


def require(clients: Clients, region: str, zone: str, group: str) -> None:
    """Create the group's placement group in this zone, if it is missing."""
    name = tags.placement_group(group, zone)
    named = [{"Name": "group-name", "Values": [tags.literal(name)]}]
    if any(one["State"] in ("pending", "available") for one in described(clients, region, named)):
        return
    ours = {"Name": name, tags.MACHINE: name, LABEL_LEASE: group}
    listed = [{"Key": key, "Value": value} for key, value in ours.items()]
    try:
        with asking(clients, region):
            clients.ec2(region).create_placement_group(
                GroupName=name,
                Strategy="cluster",
                TagSpecifications=[{"ResourceType": "placement-group", "Tags": listed}],
            )
    except ProviderError as error:
        if error.code != _DUPLICATE:
            raise


def separate(clients: Clients, group: str) -> None:
    """Delete the group's placement groups in whatever region they are."""
    wanted = [{"Name": f"tag:{LABEL_LEASE}", "Values": [tags.literal(group)]}]

    def find(region: str) -> list[tuple[str, str]]:
        return [(region, str(one["GroupName"])) for one in ours(clients, region, wanted)]

    for region, name in ask_regions(clients.regions, find)[0]:
        delete(clients, region, name)


def ours(clients: Clients, region: str, filters: Sequence[Described]) -> Sequence[Described]:
    """Return the placement groups of orch. None if they may not be seen: then `require` made none."""
    made = {"Name": "tag-key", "Values": [tags.MACHINE]}
    try:
        return described(clients, region, [made, *filters])
    except ProviderError as error:
        if error.fault is not Fault.AUTH:
            raise
        return ()


def described(clients: Clients, region: str, filters: Sequence[Described]) -> Sequence[Described]:
    with asking(clients, region):
        answer = clients.ec2(region).describe_placement_groups(Filters=list(filters))
    return [one for one in answer["PlacementGroups"] if one["State"] not in ("deleting", "deleted")]


def delete(clients: Clients, region: str, name: str) -> None:
    """Delete it. Raise TRANSIENT while machines are in it, also those that are ending."""
    try:
        with asking(clients, region):
            clients.ec2(region).delete_placement_group(GroupName=name)
    except ProviderError as error:
        if error.code == IN_USE:
            raise still_in_use("EC2", f"placement group {name}", region, error) from error
        if error.code != _UNKNOWN:
            raise
