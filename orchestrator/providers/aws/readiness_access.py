"""Find out which permissions the caller has: by dry runs, harmless reads, and the policy simulator.

A dry run changes nothing. It answers DryRunOperation if the caller may do this, and UnauthorizedOperation if
not. A policy may allow an action only for machines with orch's tags. If no such machine exists, a dry run
shows nothing; then iam:SimulatePrincipalPolicy is called, if that is allowed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.errors import Fault
from orchestrator.model import Check, Offer, Topic
from orchestrator.model.checks import missing, ok, unknown
from orchestrator.providers import permissions
from orchestrator.providers.aws.faults import classify, code_of, refused_action
from orchestrator.providers.aws.quotas import quota
from orchestrator.providers.aws.readiness_simulation import Caller, Simulation, principal
from orchestrator.providers.permissions import Permission

_NOBODYS = "i-0123456789abcdef0"
_PRICED_FROM = "us-east-1"
_PARAMETER = "/aws/service/canonical/ubuntu/server/24.04/stable/current/amd64/hvm/ebs-gp3/ami-id"
_ANSWERED = frozenset({"DryRunOperation", "ParameterNotFound", "NoSuchResourceException"})
"""Codes of refusals that prove that the permission was granted."""


@dataclass(frozen=True)
class Situation:
    """The launch to check. `request`: parameters of RunInstances, {} without an offer. `whole`: image and
    network are known.
    """

    request: Mapping[str, Any]
    whole: bool
    offer: Offer | None
    environ: Mapping[str, str]


@dataclass(frozen=True)
class Heard:
    """The answer to one call. `allowed`: whether the permission is granted, None if the answer does not show
    it. `action`: the refused action. `settled`: the refusal applies to every machine. `code`: the error code
    of AWS.
    """

    allowed: bool | None
    why: str
    action: str = ""
    settled: bool = False
    code: str = ""


def look(caller: Caller, situation: Situation) -> tuple[Check, ...]:
    """Return one check for each permission that this launch needs."""
    simulation = Simulation(caller, situation.offer)
    target = _own_instance(caller)
    heard = {name: _heard(probe) for name, probe in _probes(caller, situation, target or _NOBODYS).items()}
    launch = heard["ec2:RunInstances"]
    if launch.allowed is None and not situation.whole:
        heard["ec2:RunInstances"] = Heard(None, "it could not be tried: image or network is missing")
    _blame(heard, situation.request)
    wanted = [each for each in permissions.of("aws") if not each.free and _applies(each, situation)]
    return tuple(_check(each, heard.get(each.name), simulation, bool(target)) for each in wanted)


def lacking(checks: Sequence[Check]) -> tuple[Permission, ...]:
    lost = (check.name for check in checks if check.topic is Topic.PERMISSION and check.state == "missing")
    return tuple(permissions.named(name) for name in lost)


def grant(lost: Sequence[Permission], arn: str) -> str:
    """Return the policy that adds the permissions, and the commands that attach it as a managed policy,
    because an inline one may be too long.
    """
    kind, name = principal(arn)
    partition, account = arn.split(":")[1], arn.split(":")[4]
    lines = (json.dumps(each) for each in permissions.policy(lost)["Statement"])
    statements = ",\n  ".join(lines)
    return (
        f"cat >orch-more.json <<'END'\n"
        f'{{"Version": "2012-10-17", "Statement": [\n  {statements}\n]}}\n'
        "END\n"
        "aws iam create-policy --policy-name orch-more --policy-document file://orch-more.json\n"
        f"aws iam attach-{kind}-policy --{kind}-name {name} "
        f"--policy-arn arn:{partition}:iam::{account}:policy/orch-more"
    )


def _applies(permission: Permission, situation: Situation) -> bool:
    spot = bool(situation.offer and situation.offer.spot)
    needless = permission.name == "iam:CreateServiceLinkedRole" and not spot
    return permission.applies(situation.environ) and not needless


# ---------------------------------------------------------------- asking


def _probes(caller: Caller, situation: Situation, target: str) -> dict[str, Callable[[], object]]:
    """Return the calls to try, by permission; none of them changes anything."""
    clients, region = caller.clients, caller.region
    ec2 = clients.ec2(region)
    offer = situation.offer
    code = (quota(offer.instance_type, spot=offer.spot).code if offer else "") or "L-1216C47A"
    counted = {"ServiceCode": "ec2", "QuotaCode": code}
    quotas = clients.client("service-quotas", region)
    prices = clients.client("pricing", _PRICED_FROM)
    tag = [{"Key": permissions.OUR_TAG, "Value": f"{permissions.OUR_NAMES}doctor"}]
    return {
        "ec2:DescribeRegions": lambda: ec2.describe_regions(DryRun=True),
        "ec2:DescribeInstances": lambda: ec2.describe_instances(DryRun=True),
        "ec2:DescribeInstanceTypeOfferings": lambda: ec2.describe_instance_type_offerings(DryRun=True),
        "ec2:DescribeInstanceTypes": lambda: ec2.describe_instance_types(DryRun=True),
        "ec2:DescribeSpotPriceHistory": lambda: ec2.describe_spot_price_history(DryRun=True),
        "ec2:DescribeImages": lambda: ec2.describe_images(DryRun=True, Owners=["self"]),
        "ec2:DescribeSecurityGroups": lambda: ec2.describe_security_groups(DryRun=True),
        "ec2:DescribeSubnets": lambda: ec2.describe_subnets(DryRun=True),
        "ec2:RunInstances": lambda: ec2.run_instances(**situation.request, DryRun=True),
        "ec2:CreateTags": lambda: ec2.create_tags(Resources=[target], Tags=tag, DryRun=True),
        "ec2:TerminateInstances": lambda: ec2.terminate_instances(InstanceIds=[target], DryRun=True),
        "ec2:GetConsoleOutput": lambda: ec2.get_console_output(InstanceId=target, DryRun=True),
        "ssm:GetParameter": lambda: clients.client("ssm", region).get_parameter(Name=_PARAMETER),
        "pricing:GetProducts": lambda: prices.get_products(ServiceCode="AmazonEC2", MaxResults=1),
        "servicequotas:GetServiceQuota": lambda: quotas.get_service_quota(**counted),
        "servicequotas:GetAWSDefaultServiceQuota": lambda: quotas.get_aws_default_service_quota(**counted),
    }


def _own_instance(caller: Caller) -> str:
    """Return an instance with orch's tag, for dry runs of permissions that policies limit to that tag; "" if
    there is none.
    """
    from botocore.exceptions import BotoCoreError, ClientError
    from botocore.parsers import ResponseParserError

    ours = [{"Name": "tag-key", "Values": [permissions.OUR_TAG]}]
    try:
        answer = caller.clients.ec2(caller.region).describe_instances(Filters=ours)
    except (BotoCoreError, ClientError, ResponseParserError):
        return ""
    return next((str(one["InstanceId"]) for each in answer["Reservations"] for one in each["Instances"]), "")


def _heard(probe: Callable[[], object]) -> Heard:
    from botocore.exceptions import BotoCoreError, ClientError
    from botocore.parsers import ResponseParserError

    try:
        probe()
    except (BotoCoreError, ClientError, ResponseParserError) as error:
        if code_of(error) in _ANSWERED:
            return Heard(True, "")
        refused = classify(error) is Fault.AUTH
        code = code_of(error)
        return Heard(False if refused else None, code, refused_action(error), code=code)
    return Heard(True, "")


def _blame(heard: dict[str, Heard], request: Mapping[str, Any]) -> None:
    """Attribute the refusal of a launch to the permission that AWS named: a launch needs several."""
    launch = heard["ec2:RunInstances"]
    if launch.allowed is False and launch.action in ("ec2:CreateTags", "iam:PassRole"):
        heard[launch.action] = Heard(False, launch.why, launch.action, settled=True)
        heard["ec2:RunInstances"] = Heard(None, f"it was refused for {launch.action}")
    elif launch.allowed and "IamInstanceProfile" in request:
        heard["iam:PassRole"] = launch


# ---------------------------------------------------------------- judging


def _check(permission: Permission, heard: Heard | None, simulation: Simulation, own: bool) -> Check:
    """Return what is known about one permission: the answer of AWS, or of the simulator if that is
    inconclusive.
    """
    if permission.name == "iam:SimulatePrincipalPolicy":
        simulation.decision(permission)
        heard = Heard(not simulation.refusal, simulation.refusal)
    heard = heard or Heard(None, "")
    if heard.allowed:
        return ok(Topic.PERMISSION, permission.name, permission.why)
    decision = simulation.decision(permission)
    denied = heard.allowed is False and (own or heard.settled or not _is_bound(permission))
    if decision == "allowed" and not denied:
        return ok(Topic.PERMISSION, permission.name, permission.why)
    return _not_granted(permission, heard, decision, denied=denied or decision != "")


def _is_bound(permission: Permission) -> bool:
    """Return whether policies may allow the action for orch's own machines only. A refusal for another
    machine is then inconclusive.
    """
    return any("resourcetag/" in key.lower() for each in permission.grants for _, key, _ in each.conditions)


def _not_granted(permission: Permission, heard: Heard, decision: str, *, denied: bool) -> Check:
    name, said = permission.name, permission.why
    remedy = json.dumps(permissions.policy([permission])["Statement"])
    if permission.needed == {"doctor"}:
        why = heard.why or "no answer"
        return unknown(Topic.PERMISSION, name, f"{why}; only `orch doctor` needs it, to {said}", remedy)
    if permission.instead:
        return unknown(Topic.PERMISSION, name, f"not granted; without it {permission.instead}", remedy)
    if permission.name == "iam:CreateServiceLinkedRole":
        detail = f"not known to be granted; needed to {said}, and only if {permission.when}"
        return unknown(Topic.PERMISSION, name, detail, remedy)
    if not denied:
        return unknown(Topic.PERMISSION, name, f"needed to {said}; {_untold(heard)}", remedy)
    why = (
        "a policy denies it, and an Allow does not override that" if decision == "explicitDeny" else "refused"
    )
    return missing(Topic.PERMISSION, name, f"{why}; needed to {said}", remedy)


def _untold(heard: Heard) -> str:
    if heard.code.startswith("InvalidInstanceID") or heard.allowed is False:
        return (
            "AWS answers only for an existing machine, and orch has none; with iam:SimulatePrincipalPolicy "
            "`orch doctor` can check it"
        )
    return heard.why or "it cannot be checked without iam:SimulatePrincipalPolicy"
