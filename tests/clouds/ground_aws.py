"""What terraform/aws makes before orch is used: here, a security group that lets ssh in."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.clouds.aws import Cloud, running

REGION = "us-east-1"
SSH = {"IpProtocol": "tcp", "FromPort": 22, "ToPort": 22, "IpRanges": [{"CidrIp": "0.0.0.0/0"}]}


@contextmanager
def grounded(**settings: Any) -> Iterator[Cloud]:
    """A test cloud that orch can be used with, in us-east-1."""
    with running(**settings) as cloud:
        ec2 = cloud.client("ec2", REGION)
        vpc = ec2.describe_vpcs()["Vpcs"][0]["VpcId"]
        group = ec2.create_security_group(GroupName="orch-ssh", Description="ssh for orch", VpcId=vpc)
        ec2.authorize_security_group_ingress(GroupId=group["GroupId"], IpPermissions=[SSH])
        yield cloud
