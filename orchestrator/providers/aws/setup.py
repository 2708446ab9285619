"""Create a security group in the default network that admits ssh from the caller's address, as `up` needs it.

An administrator of the network runs this. Its calls are therefore not in the table of permissions that orch
needs for machines.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from orchestrator.errors import Fault, ProviderError
from orchestrator.model.setup import SetupStep, admits
from orchestrator.providers.aws.clients import Clients, asking
from orchestrator.providers.aws.network import GROUP
from orchestrator.providers.aws.settings import read

_MARK = "orch-setup"
"""The tag of everything that setup creates; `--undo` removes only things with this tag."""
_PRESENT = frozenset({"InvalidGroup.Duplicate", "InvalidPermission.Duplicate"})
_ABSENT = "InvalidGroup.NotFound"
_IN_USE = "DependencyViolation"


def lacking(source: str, region: str | None, environ: Mapping[str, str]) -> tuple[str, Sequence[SetupStep]]:
    clients, where = _clients(region, environ)
    found = _group(clients, where)
    vpc = str(found["VpcId"]) if found else _default_network(clients, where)
    steps: list[SetupStep] = []
    if found is None:
        detail = f"in {vpc}, the default network of {where}; it costs nothing"
        steps.append(SetupStep(f"security group {GROUP}", detail, lambda: _make_group(clients, where, vpc)))
    if found is None or not admits(_sources(found), source):
        rule = SetupStep(
            f"rule of {GROUP}", f"ssh (tcp:22) from {source} only", lambda: _admit(clients, where, source)
        )
        steps.append(rule)
    return _place(clients, where), steps


def made(region: str | None, environ: Mapping[str, str]) -> tuple[str, Sequence[SetupStep]]:
    clients, where = _clients(region, environ)
    found = _group(clients, where)
    if found is None or not any(tag["Key"] == _MARK for tag in found.get("Tags", ())):
        return _place(clients, where), ()
    identity, sources = str(found["GroupId"]), ", ".join(sorted(_sources(found))) or "nowhere"
    step = SetupStep(
        f"security group {GROUP}",
        f"{identity}; ssh from {sources}",
        lambda: _remove(clients, where, identity),
    )
    return _place(clients, where), (step,)


def _clients(region: str | None, environ: Mapping[str, str]) -> tuple[Clients, str]:
    clients = Clients(read(environ), lambda: ())
    return clients, region or clients.home


def _place(clients: Clients, region: str) -> str:
    with asking(clients, region):
        account = clients.client("sts", region).get_caller_identity()["Account"]
    return f"the AWS account {account}, region {region}"


def _group(clients: Clients, region: str) -> dict[str, Any] | None:
    with asking(clients, region):
        named = [{"Name": "group-name", "Values": [GROUP]}]
        found = clients.ec2(region).describe_security_groups(Filters=named)["SecurityGroups"]
    return min(found, key=lambda group: str(group["GroupId"]), default=None)


def _sources(group: Mapping[str, Any]) -> set[str]:
    """Return the address ranges from which ssh is admitted."""
    rules = (
        rule for rule in group.get("IpPermissions", ()) if rule.get("FromPort") == rule.get("ToPort") == 22
    )
    return {
        str(each.get("CidrIp") or each.get("CidrIpv6"))
        for rule in rules
        for each in (*rule.get("IpRanges", ()), *rule.get("Ipv6Ranges", ()))
    }


def _default_network(clients: Clients, region: str) -> str:
    with asking(clients, region):
        default = [{"Name": "is-default", "Values": ["true"]}]
        found = clients.ec2(region).describe_vpcs(Filters=default)["Vpcs"]
    if found:
        return str(found[0]["VpcId"])
    raise ProviderError(
        Fault.INVALID,
        f"The account has no default network in {region} for the security group.",
        code="DefaultVpcDoesNotExist",
        next_command=f"aws ec2 create-default-vpc --region {region}    # or terraform/aws",
    )


def _make_group(clients: Clients, region: str, vpc: str) -> None:
    tags = [{"Key": "Name", "Value": GROUP}, {"Key": _MARK, "Value": "1"}]
    wanted = {"ResourceType": "security-group", "Tags": tags}
    _unless_done(
        clients,
        region,
        lambda ec2: ec2.create_security_group(
            GroupName=GROUP,
            Description="ssh to machines of orch",
            VpcId=vpc,
            TagSpecifications=[wanted],
        ),
    )


def _admit(clients: Clients, region: str, source: str) -> None:
    """Add the address range. The group is looked up again, because this call, or an interrupted one, may have
    created it.
    """
    group = _group(clients, region)
    identity = str(group["GroupId"]) if group else ""
    ranges: dict[str, Any] = (
        {"Ipv6Ranges": [{"CidrIpv6": source, "Description": "orch setup"}]}
        if ":" in source
        else {"IpRanges": [{"CidrIp": source, "Description": "orch setup"}]}
    )
    rule = {"IpProtocol": "tcp", "FromPort": 22, "ToPort": 22, **ranges}
    _unless_done(
        clients,
        region,
        lambda ec2: ec2.authorize_security_group_ingress(GroupId=identity, IpPermissions=[rule]),
    )


def _unless_done(clients: Clients, region: str, call: Any) -> None:
    try:
        with asking(clients, region):
            call(clients.ec2(region))
    except ProviderError as error:
        if error.code not in _PRESENT:
            raise


def _remove(clients: Clients, region: str, identity: str) -> None:
    try:
        with asking(clients, region):
            clients.ec2(region).delete_security_group(GroupId=identity)
    except ProviderError as error:
        if error.code == _IN_USE:
            raise ProviderError(
                Fault.INVALID,
                f"The security group {identity} is in use by machines in {region}.",
                code=error.code,
                next_command="orch down --all --cloud aws    # then the same command again",
            ) from error
        if error.code != _ABSENT:
            raise
