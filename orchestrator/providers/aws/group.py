"""The security group through which the machines of a group connect to each other.

It admits TCP at the group's ports from itself and to itself only: a new security group would allow all
outgoing traffic, which the machines' other groups may forbid. Every step checks the present state first, so
it may be repeated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from orchestrator.errors import Fault, ProviderError
from orchestrator.model import LABEL_LEASE
from orchestrator.providers.aws import tags
from orchestrator.providers.aws.clients import Clients, asking
from orchestrator.providers.groups import still_in_use

_LIVING = ("pending", "running", "stopping", "stopped")
_UNKNOWN = ("InvalidGroup.NotFound", "InvalidGroupId.NotFound")
_DONE = ("InvalidPermission.Duplicate", "InvalidPermission.NotFound")
_AT_ONCE = 8

Described = Mapping[str, Any]


def join(
    clients: Clients, regions: set[str], group: str, found: Mapping[str, Described | None], ports: range
) -> Sequence[str]:
    """Connect these instances, described by id, disconnect all others, and return the private addresses."""
    if len(regions) != 1:
        raise ProviderError(Fault.INVALID, f"{group} is in several regions.", code="SeveralRegions")
    (region,) = regions
    instances = [_running(identity, instance) for identity, instance in found.items()]
    networks = {str(instance["VpcId"]) for instance in instances}
    if len(networks) != 1:
        raise ProviderError(
            Fault.INVALID, f"The machines of {group} are in several networks.", code="SeveralVpcs"
        )
    for instance in instances:
        _require_free(instance, group)
    identity = _made(clients, region, group, networks.pop(), ports)
    ours = {instance["InstanceId"] for instance in instances}
    for other in _members(clients, region, identity):
        if other["InstanceId"] not in ours:
            _attach(clients, region, other, identity, member=False)
    for instance in instances:
        _attach(clients, region, instance, identity, member=True)
    return [str(instance["PrivateIpAddress"]) for instance in instances]


def separate(clients: Clients, group: str) -> None:
    """Delete the security group, in whichever region it is; running instances are removed from it first."""
    refused: list[ProviderError] = []

    def find(region: str) -> list[tuple[str, str]]:
        try:
            named = [{"Name": "group-name", "Values": [_name(group)]}]
            return [(region, str(one["GroupId"])) for one in described(clients, region, named)]
        except ProviderError as error:
            if error.fault is not Fault.AUTH:
                raise
            refused.append(error)
            return []

    with ThreadPoolExecutor(max_workers=min(_AT_ONCE, len(clients.regions))) as pool:
        found = [one for each in pool.map(find, clients.regions) for one in each]
    for region, identity in found:
        for member in _members(clients, region, identity):
            _attach(clients, region, member, identity, member=False)
        delete(clients, region, identity)
    if refused and not found:
        raise refused[0]


def _name(group: str) -> str:
    return f"{tags.GROUP_PREFIX}{group}"


def _running(identity: str, instance: Described | None) -> Described:
    if instance is None or instance["State"]["Name"] != "running":
        raise ProviderError(Fault.INVALID, f"{identity} is not running.", code="NotRunning")
    return instance


def _require_free(instance: Described, group: str) -> None:
    names = [str(one["GroupName"]) for one in _interface(instance)["Groups"]]
    others = [name for name in names if name.startswith(tags.GROUP_PREFIX) and name != _name(group)]
    if others:
        raise ProviderError(
            Fault.CONFLICT, f"{instance['InstanceId']} is in {others[0]} already.", code="InAnotherGroup"
        )


def described(clients: Clients, region: str, filters: Sequence[Described]) -> list[dict[str, Any]]:
    with asking(clients, region):
        answer = clients.ec2(region).describe_security_groups(Filters=list(filters))
    return list(answer["SecurityGroups"])


def _made(clients: Clients, region: str, group: str, vpc: str, ports: range) -> str:
    """Return the id of the security group, created if it is missing, with the rule for `ports` only."""
    named = [{"Name": "group-name", "Values": [_name(group)]}, {"Name": "vpc-id", "Values": [vpc]}]
    found = described(clients, region, named)
    if not found:
        _create(clients, region, group, vpc)
        found = described(clients, region, named)
    if not found:
        raise ProviderError(
            Fault.TRANSIENT, f"EC2 does not list {_name(group)} yet, which exists.", code=_UNKNOWN[0]
        )
    identity = str(found[0]["GroupId"])
    ec2 = clients.ec2(region)
    _set_rules(
        clients,
        region,
        (identity, found[0].get("IpPermissions", ()), ports),
        (ec2.authorize_security_group_ingress, ec2.revoke_security_group_ingress),
    )
    _set_rules(
        clients,
        region,
        (identity, found[0].get("IpPermissionsEgress", ()), ports),
        (ec2.authorize_security_group_egress, ec2.revoke_security_group_egress),
    )
    return identity


def _create(clients: Clients, region: str, group: str, vpc: str) -> None:
    """Create the security group, unless another call, or an earlier one without an answer, has created it."""
    ours = {"Name": _name(group), tags.MACHINE: _name(group), LABEL_LEASE: group}
    tagged = {
        "ResourceType": "security-group",
        "Tags": [{"Key": key, "Value": value} for key, value in ours.items()],
    }
    try:
        with asking(clients, region):
            clients.ec2(region).create_security_group(
                GroupName=_name(group),
                Description="machines of orch that train one model",
                VpcId=vpc,
                TagSpecifications=[tagged],
            )
    except ProviderError as error:
        if error.code != "InvalidGroup.Duplicate":
            raise


def _set_rules(
    clients: Clients, region: str, wanted: tuple[str, Sequence[Described], range], calls: tuple[Any, Any]
) -> None:
    """Leave a security group with one rule in a direction: for TCP ports, from or to itself.

    `wanted`: the group's id, its present rules, and the ports. `calls`: add and remove rules.
    """
    identity, present, ports = wanted
    authorize, revoke = calls
    others = [rule for rule in present if not _admits(rule, identity, ports)]
    if others:
        _changed(
            clients, region, lambda: revoke(GroupId=identity, IpPermissions=[_bare(one) for one in others])
        )
    if len(others) == len(present):
        rule = {"IpProtocol": "tcp", "FromPort": ports[0], "ToPort": ports[-1]}
        pairs = {"UserIdGroupPairs": [{"GroupId": identity}]}
        _changed(clients, region, lambda: authorize(GroupId=identity, IpPermissions=[{**rule, **pairs}]))


def _changed(clients: Clients, region: str, call: Any) -> None:
    """Make a call that changes the new group; repeated while EC2 does not find the group."""
    try:
        with asking(clients, region):
            call()
    except ProviderError as error:
        if error.code in _UNKNOWN:
            raise ProviderError(Fault.TRANSIENT, error.message, code=error.code) from error
        if error.code not in _DONE:
            raise


def _admits(rule: Described, identity: str, ports: range) -> bool:
    sources = [pair.get("GroupId") for pair in rule.get("UserIdGroupPairs", ())]
    others = any(rule.get(key) for key in ("IpRanges", "Ipv6Ranges", "PrefixListIds"))
    said = (rule.get("IpProtocol"), rule.get("FromPort"), rule.get("ToPort"))
    return said == ("tcp", ports[0], ports[-1]) and sources == [identity] and not others


def _bare(rule: Described) -> dict[str, Any]:
    """Return a described rule in the form of a request: EC2 refuses the empty lists that it describes."""
    kept = {key: value for key, value in rule.items() if value not in ([], None)}
    if "UserIdGroupPairs" in kept:
        kept["UserIdGroupPairs"] = [{"GroupId": pair["GroupId"]} for pair in kept["UserIdGroupPairs"]]
    return kept


def _members(clients: Clients, region: str, identity: str) -> list[dict[str, Any]]:
    """Return the instances in the security group that are not ending."""
    filters = [
        {"Name": "instance.group-id", "Values": [identity]},
        {"Name": "instance-state-name", "Values": list(_LIVING)},
    ]
    with asking(clients, region):
        answer = clients.ec2(region).describe_instances(Filters=filters)
    return [one for found in answer["Reservations"] for one in found["Instances"]]


def _attach(clients: Clients, region: str, instance: Described, identity: str, *, member: bool) -> None:
    """Add the primary interface to the security group, or remove it."""
    interface = _interface(instance)
    now = [str(one["GroupId"]) for one in interface["Groups"]]
    if (identity in now) == member:
        return
    wanted = [*now, identity] if member else [one for one in now if one != identity]

    def modify() -> None:
        clients.ec2(region).modify_network_interface_attribute(
            NetworkInterfaceId=interface["NetworkInterfaceId"], Groups=wanted
        )

    try:
        _changed(clients, region, modify)
    except ProviderError as error:
        if member or error.code != "InvalidNetworkInterfaceID.NotFound":  # it may have ended meanwhile
            raise


def _interface(instance: Described) -> Described:
    found = [one for one in instance["NetworkInterfaces"] if one["Attachment"]["DeviceIndex"] == 0]
    interface: Described = found[0]
    return interface


def delete(clients: Clients, region: str, identity: str) -> None:
    try:
        with asking(clients, region):
            clients.ec2(region).delete_security_group(GroupId=identity)
    except ProviderError as error:
        if error.code == "DependencyViolation":
            raise still_in_use("EC2", f"security group {identity}", region, error) from error
        if error.code not in _UNKNOWN:
            raise
