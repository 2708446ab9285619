"""What the tests of the test AWS share: a cloud, and how to ask it."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.clouds.aws import Cloud

UBUNTU = "/aws/service/canonical/ubuntu/server/24.04/stable/current/{}/hvm/ebs-gp3/ami-id"
DLAMI = "/aws/service/deeplearning/ami/{}/base-oss-nvidia-driver-gpu-ubuntu-22.04/latest/ami-id"
_NUMBERS = itertools.count()
DEFAULTS: dict[str, Any] = {
    "visible_after_s": 0,
    "running_after_s": 0,
    "gone_after_s": 0,
    "listed_after_end_s": 3600,
    "token_valid_s": 3600,
    "quotas": {},
    "sold_out": [],
    "crowded": {},
    "policy": None,
    "free_plan": False,
    "clock_ahead_s": 0.0,
}


def as_new(cloud: Cloud) -> Cloud:
    """That cloud, as new but for what earlier tests launched."""
    cloud.set(**DEFAULTS)
    cloud.clear_faults()
    cloud.forget_requests()
    return cloud


def ami(cloud: Cloud, name: str = UBUNTU, arch: str = "amd64", region: str = "us-east-1") -> str:
    found = cloud.client("ssm", region).get_parameter(Name=name.format(arch))
    return str(found["Parameter"]["Value"])


def launch(cloud: Cloud, region: str = "us-east-1", **wishes: Any) -> dict[str, Any]:
    """The instance of a RunInstances with these parameters over the least that is needed."""
    wishes.setdefault("ImageId", ami(cloud, region=region))
    asked = {"InstanceType": "t3.micro", "MinCount": 1, "MaxCount": 1, **wishes}
    made = cloud.client("ec2", region).run_instances(**asked)
    found: dict[str, Any] = made["Instances"][0]
    return found


def described(cloud: Cloud, identity: str) -> dict[str, Any]:
    found = cloud.client("ec2").describe_instances(InstanceIds=[identity])
    instance: dict[str, Any] = found["Reservations"][0]["Instances"][0]
    return instance


def state(cloud: Cloud, identity: str) -> str:
    return str(described(cloud, identity)["State"]["Name"])


def await_that(holds: Callable[[], Any], patience_s: float = 60) -> Any:
    """What `holds` returns once it is true."""
    end = time.monotonic() + patience_s
    while not (found := holds()):
        assert time.monotonic() < end, "it never came to hold"
        time.sleep(0.02)
    return found


def await_state(cloud: Cloud, identity: str, wanted: str) -> dict[str, Any]:
    by_state = [
        {"Name": "instance-id", "Values": [identity]},
        {"Name": "instance-state-name", "Values": [wanted]},
    ]
    await_that(lambda: cloud.client("ec2").describe_instances(Filters=by_state)["Reservations"])
    return described(cloud, identity)


def refused(call: Callable[[], Any]) -> tuple[str, int]:
    """Code and HTTP status with which a call was refused."""
    from botocore.exceptions import ClientError

    with pytest.raises(ClientError) as error:
        call()
    response = error.value.response
    return response["Error"]["Code"], response["ResponseMetadata"]["HTTPStatusCode"]


def token() -> str:
    return f"token-{next(_NUMBERS)}"
