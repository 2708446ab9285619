"""Every permission that orch's calls to AWS and Google Cloud take: the one table.

The doctor asks for each, refusals name them, terraform/ grants them, and a test holds the table equal to the
calls in the code. Plain data: no cloud's library is loaded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

Cloud = Literal["aws", "gcp"]
Use = Literal["machines", "catalog", "doctor"]
"""machines: plan, up, status, train, down; catalog: orch catalog refresh; doctor: orch doctor CLOUD alone."""

OUR_TAG = "orch-machine"
"""Of AWS: the tag that everything of ours carries from the call that makes it."""
OUR_NAMES = "orch-"
"""How the value of that tag begins, and on Google the name of every machine and disk of ours."""


@dataclass(frozen=True)
class Grant:
    """On what a permission is needed, as narrow as a policy can say it.

    `resources`: AWS: ARN patterns; Google: resource names, {project} standing for the project, as IAM
    conditions have them (`*`: the project as a whole; it cannot be narrowed). `conditions`: AWS only:
    operator, key, value.
    """

    resources: tuple[str, ...] = ("*",)
    conditions: tuple[tuple[str, str, str], ...] = ()


@dataclass(frozen=True)
class Permission:
    """`needed`: for which of orch's uses. `calls`: the operations of the API that take it, as
    `ec2.run_instances` (boto3) or `compute.instances.insert` (Google's id of the method).

    `when`: only then is it needed; "" for always. `free`: nobody can be refused it.
    `api`: what must be enabled: Google's service; of AWS the endpoint's name.
    """

    cloud: Cloud
    name: str
    why: str
    needed: frozenset[Use]
    calls: tuple[str, ...]
    api: str
    grants: tuple[Grant, ...] = (Grant(),)
    when: str = ""
    free: bool = False


@dataclass(frozen=True)
class Api:
    """A service of Google that must be enabled in the project."""

    name: str
    why: str
    needed: frozenset[Use]
    calls: tuple[str, ...] = ()
    """Calls that take the API to be enabled, and no permission."""


# ---------------------------------------------------------------- AWS


def _aws(name: str, why: str, needed: str, calls: str = "", **more: Any) -> Permission:
    """`calls`: the operation of the same name where nothing is said."""
    service = name.partition(":")[0]
    return Permission("aws", name, why, _uses(needed), tuple(calls.split()), service, **more)


def _uses(words: str) -> frozenset[Use]:
    return frozenset(use for use in get_args(Use) if use in words.split())


_MADE = tuple(
    f"arn:aws:ec2:*:*:{kind}/*"
    for kind in ("instance", "volume", "network-interface", "spot-instances-request")
)
_GIVEN = ("arn:aws:ec2:*::image/*", "arn:aws:ec2:*:*:subnet/*", "arn:aws:ec2:*:*:security-group/*")
_NAMED_OURS = (("StringLike", f"aws:RequestTag/{OUR_TAG}", f"{OUR_NAMES}*"),)
_IS_OURS = (("StringLike", f"aws:ResourceTag/{OUR_TAG}", f"{OUR_NAMES}*"),)
_AT_LAUNCH = (("StringEquals", "ec2:CreateAction", "RunInstances"),)
_INSTANCES = ("arn:aws:ec2:*:*:instance/*",)
_OUR_INSTANCES = (Grant(_INSTANCES, _IS_OURS),)
_SPOT_ROLE = "arn:aws:iam::*:role/aws-service-role/spot.amazonaws.com/AWSServiceRoleForEC2Spot"

_AWS = (
    _aws(
        "sts:GetCallerIdentity",
        "say as whom AWS is asked",
        "machines doctor",
        "sts.get_caller_identity",
        free=True,
    ),
    _aws(
        "ec2:DescribeRegions",
        "learn which regions the account has enabled",
        "machines",
        "ec2.describe_regions",
    ),
    _aws(
        "ec2:DescribeInstances",
        "find machines, and see that they are gone",
        "machines",
        "ec2.describe_instances",
    ),
    _aws(
        "ec2:DescribeInstanceTypeOfferings",
        "learn which zones sell a type",
        "machines catalog",
        "ec2.describe_instance_type_offerings",
    ),
    _aws("ec2:DescribeImages", "find the newest image", "machines", "ec2.describe_images"),
    _aws(
        "ec2:DescribeSecurityGroups",
        "find the group that lets ssh in",
        "machines",
        "ec2.describe_security_groups",
    ),
    _aws("ec2:DescribeSubnets", "find the subnet of a zone", "machines", "ec2.describe_subnets"),
    _aws(
        "ssm:GetParameter",
        "learn the newest image's id from AWS's public parameters",
        "machines",
        "ssm.get_parameter",
        grants=(Grant(("arn:aws:ssm:*::parameter/aws/service/*",)),),
    ),
    _aws(
        "ec2:RunInstances",
        "make a machine",
        "machines",
        "ec2.run_instances",
        grants=(Grant(_MADE, _NAMED_OURS), Grant(_GIVEN)),
    ),
    _aws(
        "ec2:CreateTags",
        "label a machine as it is made, and keep its proven host key on it",
        "machines",
        "ec2.run_instances ec2.create_tags",
        grants=(Grant(_MADE, _AT_LAUNCH), Grant(_INSTANCES, _IS_OURS)),
    ),
    _aws(
        "ec2:TerminateInstances",
        "end a machine",
        "machines",
        "ec2.terminate_instances",
        grants=_OUR_INSTANCES,
    ),
    _aws(
        "ec2:GetConsoleOutput",
        "read a machine's host key",
        "machines",
        "ec2.get_console_output",
        grants=_OUR_INSTANCES,
        when="ORCH_AWS_HOST_KEY=console",
    ),
    _aws(
        "iam:CreateServiceLinkedRole",
        "let EC2 make the role under which it buys spot machines",
        "machines",
        "ec2.run_instances",
        grants=(Grant((_SPOT_ROLE,), (("StringEquals", "iam:AWSServiceName", "spot.amazonaws.com"),)),),
        when="the account has never had a spot machine",
    ),
    _aws("ec2:DescribeInstanceTypes", "renew the catalog's types", "catalog", "ec2.describe_instance_types"),
    _aws(
        "ec2:DescribeSpotPriceHistory",
        "renew the catalog's spot prices",
        "catalog",
        "ec2.describe_spot_price_history",
    ),
    _aws("pricing:GetProducts", "renew the catalog's prices", "catalog", "pricing.get_products"),
    _aws(
        "servicequotas:GetServiceQuota",
        "compare the account's quotas with what a profile asks",
        "doctor",
        "service-quotas.get_service_quota",
    ),
    _aws(
        "servicequotas:GetAWSDefaultServiceQuota",
        "learn the quotas that nobody has changed",
        "doctor",
        "service-quotas.get_aws_default_service_quota",
    ),
    _aws(
        "iam:SimulatePrincipalPolicy",
        "see what a policy allows only for machines that carry orch's tags",
        "doctor",
        "iam.simulate_principal_policy",
        grants=(Grant(("arn:aws:iam::*:user/${aws:username}", "arn:aws:iam::*:role/*")),),
    ),
)

# ---------------------------------------------------------------- Google Cloud

COMPUTE = "compute.googleapis.com"
RESOURCE_MANAGER = "cloudresourcemanager.googleapis.com"
BILLING = "cloudbilling.googleapis.com"


def _gcp(name: str, why: str, needed: str, calls: str, **more: Any) -> Permission:
    """`calls` without their first word, compute, where it is that."""
    whole = (
        call if call.startswith("cloudresourcemanager.") else f"compute.{call}" for call in calls.split()
    )
    return Permission("gcp", name, why, _uses(needed), tuple(whole), more.pop("api", COMPUTE), **more)


_OUR_MACHINES = (Grant((f"projects/{{project}}/zones/*/instances/{OUR_NAMES}*",)),)
_OUR_DISKS = (Grant((f"projects/{{project}}/zones/*/disks/{OUR_NAMES}*",)),)
_SUBNETWORKS = (Grant(("projects/{project}/regions/*/subnetworks/*",)),)
_OWN_IMAGE = "the profile names an image of a project that is not public"
_OWN_IMAGES = (Grant(("projects/{project}/global/images/*",)),)

_GCP = (
    _gcp(
        "compute.instances.list",
        "find machines, and see that they are gone",
        "machines",
        "instances.aggregatedList",
    ),
    _gcp("compute.instances.get", "look at a machine", "machines", "instances.get", grants=_OUR_MACHINES),
    _gcp("compute.instances.create", "make a machine", "machines", "instances.insert", grants=_OUR_MACHINES),
    _gcp(
        "compute.instances.setMetadata",
        "give a machine its key, its deadline and its first-boot script",
        "machines",
        "instances.insert",
        grants=_OUR_MACHINES,
    ),
    _gcp(
        "compute.instances.setLabels",
        "label it as it is made",
        "machines",
        "instances.insert",
        grants=_OUR_MACHINES,
    ),
    _gcp(
        "compute.instances.setTags",
        "tag it for the firewall as it is made",
        "machines",
        "instances.insert",
        grants=_OUR_MACHINES,
    ),
    _gcp("compute.disks.create", "make its disk", "machines", "instances.insert", grants=_OUR_DISKS),
    _gcp(
        "compute.disks.setLabels",
        "label its disk as it is made",
        "machines",
        "instances.insert",
        grants=_OUR_DISKS,
    ),
    _gcp("compute.subnetworks.use", "plug it in", "machines", "instances.insert", grants=_SUBNETWORKS),
    _gcp(
        "compute.subnetworks.useExternalIp",
        "give it a public address",
        "machines",
        "instances.insert",
        grants=_SUBNETWORKS,
        when="ORCH_GCP_INTERNAL is not 1",
    ),
    _gcp("compute.instances.delete", "end a machine", "machines", "instances.delete", grants=_OUR_MACHINES),
    _gcp(
        "compute.instances.getGuestAttributes",
        "read a machine's host keys",
        "machines",
        "instances.getGuestAttributes",
        grants=_OUR_MACHINES,
    ),
    _gcp("compute.zoneOperations.get", "follow what was begun", "machines", "zoneOperations.get"),
    _gcp("compute.zones.list", "learn the zones", "machines", "zones.list"),
    _gcp("compute.machineTypes.get", "learn whether a zone has a type", "machines", "machineTypes.get"),
    _gcp("compute.regions.get", "tell limit and usage of a quota", "machines doctor", "regions.get"),
    _gcp(
        "compute.images.getFromFamily",
        "find a family's newest image",
        "machines",
        "images.getFromFamily",
        grants=_OWN_IMAGES,
        when=_OWN_IMAGE,
    ),
    _gcp(
        "compute.images.get", "find an image", "machines", "images.get", grants=_OWN_IMAGES, when=_OWN_IMAGE
    ),
    _gcp(
        "compute.images.useReadOnly",
        "make a disk of an image",
        "machines",
        "instances.insert",
        grants=_OWN_IMAGES,
        when=_OWN_IMAGE,
    ),
    _gcp("compute.machineTypes.list", "renew the catalog's types", "catalog", "machineTypes.aggregatedList"),
    _gcp(
        "compute.acceleratorTypes.list",
        "renew the catalog's GPUs",
        "catalog",
        "acceleratorTypes.aggregatedList",
    ),
    _gcp("compute.projects.get", "read the project's own quotas", "doctor", "projects.get"),
    _gcp("compute.subnetworks.get", "see that the named subnetwork is there", "doctor", "subnetworks.get"),
    _gcp("compute.networks.get", "see that the network is there", "doctor", "networks.get"),
    _gcp("compute.firewalls.list", "see that a rule lets ssh in", "doctor", "firewalls.list"),
    _gcp(
        "orgpolicy.policy.get",
        "see whether an organisation forbids public addresses or guest attributes",
        "doctor",
        "cloudresourcemanager.projects.getEffectiveOrgPolicy",
        api=RESOURCE_MANAGER,
    ),
)

APIS = (
    Api(COMPUTE, "machines", _uses("machines catalog doctor")),
    Api(
        RESOURCE_MANAGER,
        "which of these permissions one has",
        _uses("doctor"),
        ("cloudresourcemanager.projects.testIamPermissions",),
    ),
    Api(BILLING, "prices", _uses("catalog"), ("cloudbilling.services.skus.list",)),
)

TABLE: tuple[Permission, ...] = (*_AWS, *_GCP)


def of(cloud: str, *, needed: Use | None = None) -> tuple[Permission, ...]:
    """The permissions of one cloud, for one use or for all, in the order in which they are first needed."""
    return tuple(one for one in TABLE if one.cloud == cloud and (needed is None or needed in one.needed))


def named(name: str) -> Permission:
    """The permission of that name. KeyError: the table does not know it."""
    return _BY_NAME[name]


def taken_by(call: str) -> tuple[Permission, ...]:
    """What a call takes, for instance `ec2.run_instances`; () for one that takes none, or is not ours."""
    return tuple(one for one in TABLE if call in one.calls)


def policy(permissions: Sequence[Permission]) -> dict[str, Any]:
    """A policy document of AWS that allows these and no more; equal grants share a statement."""
    actions: dict[Grant, list[str]] = {}
    for one in permissions:
        for grant in one.grants:
            actions.setdefault(grant, []).append(one.name)
    return {
        "Version": "2012-10-17",
        "Statement": [_statement(names, grant) for grant, names in actions.items()],
    }


def _statement(names: Sequence[str], grant: Grant) -> dict[str, Any]:
    said: dict[str, Any] = {"Effect": "Allow", "Action": list(names), "Resource": list(grant.resources)}
    conditions: dict[str, dict[str, str]] = {}
    for operator, key, value in grant.conditions:
        conditions.setdefault(operator, {})[key] = value
    return {**said, "Condition": conditions} if conditions else said


_BY_NAME: Mapping[str, Permission] = {one.name: one for one in TABLE}
