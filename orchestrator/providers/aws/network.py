"""Find the security group that admits ssh, and the subnet in the zone of a machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from orchestrator.errors import Fault, ProviderError
from orchestrator.providers.aws.clients import Clients, asking
from orchestrator.providers.aws.request import Network
from orchestrator.providers.aws.settings import Settings

GROUP = "orch-ssh"
"""The name of the security group that `orch setup aws`, or terraform/aws, creates."""


def find(clients: Clients, region: str, zone: str, settings: Settings) -> Network:
    """Return the network for a machine in `zone` ("": any).

    Raises ProviderError: INVALID without a security group, CAPACITY without a subnet in the zone.
    """
    groups, vpc = _groups(clients, region, settings.groups)
    subnet = _subnet(clients, region, zone, settings.subnets, vpc)
    return Network(subnet, groups, settings.public, settings.instance_profile)


def _groups(clients: Clients, region: str, named: Sequence[str]) -> tuple[tuple[str, ...], str]:
    """Return the ids of the security groups, and their VPC."""
    with asking(clients, region):
        found = _described(clients, region, named)
    if not found:
        raise _no_group(region)
    if named:
        return tuple(named), found[0]["VpcId"]
    return (found[0]["GroupId"],), found[0]["VpcId"]


def _no_group(region: str) -> ProviderError:
    error = ProviderError(
        Fault.INVALID,
        f"There is no security group called {GROUP} in {region}, so a machine there could not be reached.",
        code="InvalidGroup.NotFound",
        next_command=f"orch setup aws --region {region}"
        "    # or, for one of yours: export ORCH_AWS_SECURITY_GROUP=sg-…",
    )
    error.there_alone = True
    return error


def _described(clients: Clients, region: str, named: Sequence[str]) -> list[dict[str, Any]]:
    ask = clients.ec2(region).describe_security_groups
    if named:
        return list(ask(GroupIds=list(named))["SecurityGroups"])
    for name in ("group-name", "tag:Name"):
        found = ask(Filters=[{"Name": name, "Values": [GROUP]}])["SecurityGroups"]
        if found:
            return sorted(found, key=lambda group: (not _is_ours(group), group["GroupId"]))
    return []


def _subnet(clients: Clients, region: str, zone: str, named: Sequence[str], vpc: str) -> str:
    filters = [{"Name": "vpc-id", "Values": [vpc]}, {"Name": "state", "Values": ["available"]}]
    wanted: dict[str, Any] = {"SubnetIds": list(named)} if named else {"Filters": filters}
    with asking(clients, region):
        found = list(clients.ec2(region).describe_subnets(**wanted)["Subnets"])
    fitting = [subnet for subnet in found if zone in ("", subnet["AvailabilityZone"])]
    if not fitting:
        where = ", ".join(sorted({subnet["AvailabilityZone"] for subnet in found})) or "nowhere"
        raise ProviderError(
            Fault.CAPACITY,
            f"{'ORCH_AWS_SUBNET' if named else vpc} has no subnet in {zone or region}, only in {where}",
            code="NoSubnetInZone",
        )
    return str(min(fitting, key=_preference)["SubnetId"])


def _preference(subnet: Mapping[str, Any]) -> tuple[Any, ...]:
    """Sort key of subnets: those tagged for orch, then the zone's default, then the one with most free
    addresses.
    """
    free = subnet.get("AvailableIpAddressCount", 0)
    return (not _is_ours(subnet), not subnet.get("DefaultForAz", False), -free, subnet["SubnetId"])


def _is_ours(thing: Mapping[str, Any]) -> bool:
    return any(tag["Key"] == "Name" and tag["Value"].startswith("orch") for tag in thing.get("Tags", ()))
