"""The part of the provider that groups instances: by a security group, and by placement groups."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

from orchestrator.errors import ProviderError
from orchestrator.model import LABEL_LEASE, Machine
from orchestrator.providers.aws import group as security_group
from orchestrator.providers.aws import placement, tags
from orchestrator.providers.aws.clients import Clients, asking
from orchestrator.providers.aws.instances import described, identity_of, region_of
from orchestrator.providers.groups import require_sound
from orchestrator.providers.regions import ask_regions

_IN_USE = ("DependencyViolation", placement.IN_USE)


class _Left(NamedTuple):
    """What is left of a group. `identity`: of a security group; "" for the placement group `name`."""

    region: str
    group: str
    name: str
    identity: str = ""


class InstanceGroups:
    """The part of the provider that groups instances."""

    _clients: Clients

    def join(self, group: str, machines: Sequence[Machine], ports: range) -> Sequence[str]:
        """Connect them by a security group of their own; the addresses are private ones of their network."""
        require_sound(group, ports)
        found = {one.id: described(self._clients, region_of(one), identity_of(one)) for one in machines}
        return security_group.join(self._clients, set(map(region_of, machines)), group, found, ports)

    def separate(self, group: str) -> None:
        security_group.separate(self._clients, group)
        placement.separate(self._clients, group)

    def prune(self, *, dry_run: bool = False) -> Sequence[str]:
        left, _ = ask_regions(self._clients.regions, lambda region: tuple(self._left(region)))
        removed = left if dry_run else [one for one in left if self._removed(one)]
        return tuple(dict.fromkeys(one.group for one in removed))

    def _left(self, region: str) -> Iterator[_Left]:
        """Yield what no instance needs, not even one that is ending."""
        filters = [{"Name": "tag-key", "Values": [tags.MACHINE]}]
        named = {"Name": "group-name", "Values": [f"{tags.GROUP_PREFIX}*"]}
        groups = security_group.described(self._clients, region, [*filters, named])
        placements = placement.ours(self._clients, region, ())
        if not groups and not placements:
            return
        needed = self._needed(region)
        found = [_Left(region, _lease(one), one["GroupName"], one["GroupId"]) for one in groups]
        found += [_Left(region, _lease(one), one["GroupName"]) for one in placements]
        yield from (one for one in found if not {one.group, one.identity or one.name} & needed)

    def _needed(self, region: str) -> set[str]:
        """Return the leases, security groups and placement groups of all instances."""
        needed = set()
        with asking(self._clients, region):
            pages = self._clients.ec2(region).get_paginator("describe_instances")
            for page in pages.paginate(Filters=tags.filters({}), PaginationConfig={"PageSize": 1000}):
                for one in (each for found in page["Reservations"] for each in found["Instances"]):
                    needed |= {tags.tags_in(one).get(LABEL_LEASE, ""), _placed(one)}
                    needed |= {each["GroupId"] for nic in one["NetworkInterfaces"] for each in nic["Groups"]}
        return needed

    def _removed(self, left: _Left) -> bool:
        """Delete it. EC2 refuses that if an instance has entered it meanwhile."""
        remove = partial(security_group.delete if left.identity else placement.delete, self._clients)
        try:
            remove(left.region, left.identity or left.name)
        except ProviderError as error:
            if error.code not in _IN_USE:
                raise
            return False
        return True


def _lease(found: placement.Described) -> str:
    return tags.tags_in(found).get(LABEL_LEASE, "")


def _placed(instance: placement.Described) -> str:
    return str(instance.get("Placement", {}).get("GroupName", ""))
