"""What the security groups of the emulated AWS let through, as EC2 decides it."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from typing import Any

from orchestrator.model import Machine
from tests.clouds.aws import Cloud

PREFIX = "orch-group-"
Found = Mapping[str, Any]


def reaches(cloud: Cloud, machine: Machine, address: str, port: int) -> bool:
    """Whether TCP from the machine to the address is let out at one end and in at the other."""
    ec2 = cloud.client("ec2")
    found = [
        one
        for reservation in ec2.describe_instances()["Reservations"]
        for one in reservation["Instances"]
        if one["State"]["Name"] == "running"
    ]
    source = next(one for one in found if one["InstanceId"] == machine.id)
    targets = [one for one in found if one.get("PrivateIpAddress") == address]
    groups = {one["GroupId"]: one for one in ec2.describe_security_groups()["SecurityGroups"]}

    def admits(here: Found, key: str, there: Found) -> bool:
        rules = [rule for group in _groups(here) for rule in groups[group][key]]
        return any(_admits(rule, _groups(there), there["PrivateIpAddress"], port) for rule in rules)

    return any(
        admits(source, "IpPermissionsEgress", target) and admits(target, "IpPermissions", source)
        for target in targets
    )


def groups(cloud: Cloud) -> Sequence[str]:
    """The names of the security groups and placement groups that were made for groups of machines."""
    ec2 = cloud.client("ec2")
    found = ec2.describe_security_groups()["SecurityGroups"]
    found += ec2.describe_placement_groups()["PlacementGroups"]
    return [one["GroupName"] for one in found if one["GroupName"].startswith(PREFIX)]


def _groups(instance: Found) -> list[str]:
    return [one["GroupId"] for nic in instance["NetworkInterfaces"] for one in nic["Groups"]]


def _admits(rule: Found, groups: Sequence[str], address: str, port: int) -> bool:
    everything = rule["IpProtocol"] == "-1"
    if not everything and not (rule["IpProtocol"] == "tcp" and rule["FromPort"] <= port <= rule["ToPort"]):
        return False
    nets = [ipaddress.ip_network(one["CidrIp"]) for one in rule.get("IpRanges", ())]
    pairs = [one["GroupId"] for one in rule.get("UserIdGroupPairs", ())]
    return any(ipaddress.ip_address(address) in net for net in nets) or any(one in groups for one in pairs)
