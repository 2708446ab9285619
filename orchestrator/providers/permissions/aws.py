"""The permissions of AWS, in the order in which they are first needed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .kinds import OUR_NAMES, OUR_TAG, Grant, Permission, uses


def _aws(name: str, why: str, needed: str, calls: str = "", **more: Any) -> Permission:
    """Return a permission. `calls`: default: the operation with the same name."""
    service = name.partition(":")[0]
    return Permission("aws", name, why, uses(needed), tuple(calls.split()), service, **more)


_MADE = tuple(
    f"arn:aws:ec2:*:*:{kind}/*"
    for kind in ("instance", "volume", "network-interface", "spot-instances-request")
)
_GIVEN = (
    "arn:aws:ec2:*::image/*",
    "arn:aws:ec2:*:*:subnet/*",
    "arn:aws:ec2:*:*:security-group/*",
    "arn:aws:ec2:*:*:capacity-reservation/*",
    "arn:aws:ec2:*:*:placement-group/*",
)
_NAMED_OURS = (("StringLike", f"aws:RequestTag/{OUR_TAG}", f"{OUR_NAMES}*"),)
_IS_OURS = (("StringLike", f"aws:ResourceTag/{OUR_TAG}", f"{OUR_NAMES}*"),)
_AT_LAUNCH = (("StringEquals", "ec2:CreateAction", "RunInstances"),)
_AT_CREATION = (("StringEquals", "ec2:CreateAction", "CreateSecurityGroup"),)
_INSTANCES = ("arn:aws:ec2:*:*:instance/*",)
_OUR_ALARMS = (Grant((f"arn:aws:cloudwatch:*:*:alarm:{OUR_NAMES}*",)),)
_OUR_INSTANCES = (Grant(_INSTANCES, _IS_OURS),)
_GROUPS = ("arn:aws:ec2:*:*:security-group/*",)
_OUR_GROUPS = (Grant(_GROUPS, _IS_OURS),)
_PLACEMENTS = ("arn:aws:ec2:*:*:placement-group/*",)
_AT_PLACEMENT = (("StringEquals", "ec2:CreateAction", "CreatePlacementGroup"),)
_APART = "the machines of one model are not placed close together"
_SEVERAL: Mapping[str, Any] = {"when": "several machines train one model (resources.nodes)"}
_IMAGES: Mapping[str, Any] = {"when": "orch image bake makes and deletes images"}
_STORED = tuple(f"arn:aws:ec2:*::{kind}/*" for kind in ("image", "snapshot"))
_AT_IMAGE = (("StringEquals", "ec2:CreateAction", "CreateImage"),)
_BY_SESSION: Mapping[str, Any] = {"when": "ORCH_AWS_ADDRESS=ssm", "setting": ("ORCH_AWS_ADDRESS", "ssm")}
_ALARM_ROLE = "arn:aws:iam::*:role/aws-service-role/events.amazonaws.com/AWSServiceRoleForCloudWatchEvents"
_SPOT_ROLE = "arn:aws:iam::*:role/aws-service-role/spot.amazonaws.com/AWSServiceRoleForEC2Spot"

PERMISSIONS = (
    _aws(
        "sts:GetCallerIdentity",
        "show the identity of the credentials",
        "machines doctor",
        "sts.get_caller_identity",
        free=True,
    ),
    _aws(
        "ec2:DescribeRegions",
        "list the regions that the account has enabled",
        "machines",
        "ec2.describe_regions",
    ),
    _aws(
        "ec2:DescribeInstances",
        "find machines, and confirm that they are gone",
        "machines",
        "ec2.describe_instances",
    ),
    _aws(
        "ec2:DescribeInstanceTypeOfferings",
        "list the zones that sell a type",
        "machines catalog",
        "ec2.describe_instance_type_offerings",
    ),
    _aws("ec2:DescribeImages", "find the newest image", "machines", "ec2.describe_images"),
    _aws(
        "ec2:DescribeSecurityGroups",
        "find the security group that admits ssh",
        "machines",
        "ec2.describe_security_groups",
    ),
    _aws(
        "ec2:DescribeCapacityReservations",
        "distinguish a capacity block from a capacity reservation",
        "machines",
        "ec2.describe_capacity_reservations",
        when="the profile names a reservation",
    ),
    _aws("ec2:DescribeSubnets", "find the subnet of a zone", "machines", "ec2.describe_subnets"),
    _aws(
        "ssm:GetParameter",
        "read the newest image's id from AWS's public parameters",
        "machines",
        "ssm.get_parameter",
        grants=(Grant(("arn:aws:ssm:*::parameter/aws/service/*",)),),
        instead="images are found by their names",
    ),
    _aws(
        "ec2:RunInstances",
        "create a machine",
        "machines",
        "ec2.run_instances",
        grants=(Grant(_MADE, _NAMED_OURS), Grant(_GIVEN)),
    ),
    _aws(
        "ec2:CreateTags",
        "label new resources in the create call, and record a machine's verified host key as a tag",
        "machines",
        "ec2.run_instances ec2.create_tags ec2.create_security_group ec2.create_image "
        "ec2.create_placement_group",
        grants=(
            Grant(_MADE, _AT_LAUNCH),
            Grant(_GROUPS, _AT_CREATION),
            Grant(_PLACEMENTS, _AT_PLACEMENT),
            Grant(_STORED, _AT_IMAGE),
            Grant(_INSTANCES, _IS_OURS),
        ),
    ),
    _aws(
        "ec2:TerminateInstances",
        "delete a machine",
        "machines",
        "ec2.terminate_instances",
        grants=_OUR_INSTANCES,
    ),
    _aws(
        "ec2:StopInstances",
        "stop a machine before an image is created from it",
        "machines",
        "ec2.stop_instances",
        grants=_OUR_INSTANCES,
        **_IMAGES,
    ),
    _aws(
        "ec2:CreateImage",
        "create an image of it",
        "machines",
        "ec2.create_image",
        grants=(Grant(_STORED, _NAMED_OURS), Grant(_INSTANCES, _IS_OURS)),
        **_IMAGES,
    ),
    _aws(
        "ec2:DescribeSnapshots",
        "list the snapshots of images",
        "machines",
        "ec2.describe_snapshots",
        instead="orch does not look for images, and installs every package",
    ),
    *(
        _aws(name, why, "machines", call, grants=(Grant(_STORED, _IS_OURS),), **_IMAGES)
        for name, why, call in (
            ("ec2:DeregisterImage", "delete an image", "ec2.deregister_image"),
            ("ec2:DeleteSnapshot", "delete its snapshots", "ec2.delete_snapshot"),
        )
    ),
    _aws(
        "ec2:CreateSecurityGroup",
        "create the security group through which machines that train one model connect to each other",
        "machines",
        "ec2.create_security_group",
        grants=(Grant(_GROUPS, _NAMED_OURS), Grant(("arn:aws:ec2:*:*:vpc/*",))),
        **_SEVERAL,
    ),
    *(
        _aws(
            f"ec2:{verb}SecurityGroup{way}",
            f"{does} what goes {where} by it",
            "machines",
            f"ec2.{verb.lower()}_security_group_{way.lower()}",
            grants=_OUR_GROUPS,
            **_SEVERAL,
        )
        for way, where in (("Ingress", "in"), ("Egress", "out"))
        for verb, does in (("Authorize", "allow"), ("Revoke", "forbid"))
    ),
    _aws(
        "ec2:ModifyNetworkInterfaceAttribute",
        "add a machine to that security group, and remove it",
        "machines",
        "ec2.modify_network_interface_attribute",
        grants=(
            Grant(("arn:aws:ec2:*:*:network-interface/*",), _IS_OURS),
            Grant((*_GROUPS, *_INSTANCES)),
        ),
        **_SEVERAL,
    ),
    _aws(
        "ec2:DeleteSecurityGroup",
        "remove that security group",
        "machines",
        "ec2.delete_security_group",
        grants=_OUR_GROUPS,
        **_SEVERAL,
    ),
    _aws(
        "ec2:DescribePlacementGroups",
        "find the placement group in which the machines of one model are close together",
        "machines",
        "ec2.describe_placement_groups",
        instead=_APART,
        **_SEVERAL,
    ),
    _aws(
        "ec2:CreatePlacementGroup",
        "make that placement group",
        "machines",
        "ec2.create_placement_group",
        grants=(Grant(_PLACEMENTS, _NAMED_OURS),),
        instead=_APART,
        **_SEVERAL,
    ),
    _aws(
        "ec2:DeletePlacementGroup",
        "remove that placement group",
        "machines",
        "ec2.delete_placement_group",
        grants=(Grant(_PLACEMENTS, _IS_OURS),),
        **_SEVERAL,
    ),
    _aws(
        "cloudwatch:PutMetricAlarm",
        "let AWS terminate a machine that does not respond, or that exists after its deadline",
        "machines",
        "cloudwatch.put_metric_alarm",
        grants=_OUR_ALARMS,
    ),
    _aws(
        "cloudwatch:DeleteAlarms",
        "remove these alarms once the machine is gone",
        "machines",
        "cloudwatch.delete_alarms",
        grants=_OUR_ALARMS,
    ),
    _aws(
        "ec2:GetConsoleOutput",
        "read a machine's host key",
        "machines",
        "ec2.get_console_output",
        grants=_OUR_INSTANCES,
        when="ORCH_AWS_HOST_KEY=console",
        setting=("ORCH_AWS_HOST_KEY", "console"),
    ),
    _aws(
        "iam:CreateServiceLinkedRole",
        "let EC2 and CloudWatch create their roles for spot machines and for terminating machines",
        "machines",
        "ec2.run_instances cloudwatch.put_metric_alarm",
        grants=tuple(
            Grant((role,), (("StringEquals", "iam:AWSServiceName", role.split("/")[2]),))
            for role in (_SPOT_ROLE, _ALARM_ROLE)
        ),
        when="the account has never had a spot machine, or an alarm",
    ),
    _aws(
        "iam:PassRole",
        "give a machine the instance profile that the profile names, or Session Manager needs",
        "machines",
        "ec2.run_instances",
        grants=(
            Grant(
                ("arn:aws:iam::*:role/*",), (("StringEquals", "iam:PassedToService", "ec2.amazonaws.com"),)
            ),
        ),
        when="the profile names an identity, or ORCH_AWS_INSTANCE_PROFILE is set",
        setting=("ORCH_AWS_INSTANCE_PROFILE", ".+"),
    ),
    _aws(
        "ssm:StartSession",
        "reach a machine without a public address",
        "machines",
        grants=(
            Grant(_INSTANCES, (("StringLike", f"ssm:resourceTag/{OUR_TAG}", f"{OUR_NAMES}*"),)),
            Grant(("arn:aws:ssm:*::document/AWS-StartSSHSession",)),
        ),
        program="start-session",
        **_BY_SESSION,
    ),
    _aws(
        "ssm:TerminateSession",
        "close that connection",
        "machines",
        grants=(Grant(("arn:aws:ssm:*:*:session/${aws:userid}-*",)),),
        program="start-session",
        **_BY_SESSION,
    ),
    _aws("ec2:DescribeInstanceTypes", "update the catalog's types", "catalog", "ec2.describe_instance_types"),
    _aws(
        "ec2:DescribeSpotPriceHistory",
        "update the catalog's spot prices",
        "catalog",
        "ec2.describe_spot_price_history",
    ),
    _aws("pricing:GetProducts", "update the catalog's prices", "catalog", "pricing.get_products"),
    _aws(
        "servicequotas:GetServiceQuota",
        "compare the account's quotas with what a profile asks",
        "doctor",
        "service-quotas.get_service_quota",
    ),
    _aws(
        "servicequotas:GetAWSDefaultServiceQuota",
        "read the default values of quotas",
        "doctor",
        "service-quotas.get_aws_default_service_quota",
    ),
    _aws(
        "freetier:GetAccountPlanState",
        "read whether the account is on the Free plan, which launches only small types",
        "doctor",
        "freetier.get_account_plan_state",
    ),
    _aws(
        "iam:SimulatePrincipalPolicy",
        "check what a policy allows only for machines with orch's tags",
        "doctor",
        "iam.simulate_principal_policy",
        grants=(Grant(("arn:aws:iam::*:user/${aws:username}", "arn:aws:iam::*:role/*")),),
    ),
)
