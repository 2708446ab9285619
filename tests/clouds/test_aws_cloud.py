"""Launching, seeing and ending instances: each thing that moto gets wrong, and that AWS does, is done."""

from __future__ import annotations

import base64
import threading
import time
from typing import Any

import pytest

pytest.importorskip("boto3")
pytest.importorskip("moto")

from tests.clouds.aws import Cloud
from tests.clouds.aws_asking import (
    DLAMI,
    ami,
    await_state,
    described,
    launch,
    refused,
    state,
    token,
)

# ---------------------------------------------------------------- idempotency


def test_a_client_token_makes_one_instance(cloud: Cloud) -> None:
    wishes = {"ClientToken": token(), "UserData": "#!/bin/sh\n"}
    first, second = launch(cloud, **wishes), launch(cloud, **wishes)
    assert first["InstanceId"] == second["InstanceId"]
    assert first["ClientToken"] == wishes["ClientToken"]
    found = cloud.client("ec2").describe_instances(
        Filters=[{"Name": "client-token", "Values": [wishes["ClientToken"]]}]
    )
    assert len(found["Reservations"]) == 1


def test_at_once_from_many_threads_it_is_still_one(cloud: Cloud) -> None:
    image, name, found = ami(cloud), token(), set()
    threads = [
        threading.Thread(
            target=lambda: found.add(launch(cloud, ImageId=image, ClientToken=name)["InstanceId"])
        )
        for _ in range(6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 1


@pytest.mark.parametrize(
    "change",
    [
        {"UserData": "#!/bin/sh\nexit 1\n"},
        {"InstanceType": "t3.small"},
        {"Placement": {"AvailabilityZone": "us-east-1b"}},
        {"TagSpecifications": [{"ResourceType": "instance", "Tags": [{"Key": "a", "Value": "b"}]}]},
    ],
)
def test_a_token_for_something_else_is_refused(cloud: Cloud, change: dict[str, Any]) -> None:
    name = token()
    launch(cloud, ClientToken=name)
    assert refused(lambda: launch(cloud, ClientToken=name, **change)) == ("IdempotentParameterMismatch", 400)


def test_a_token_counts_in_its_region_alone(cloud: Cloud) -> None:
    name = token()
    here, there = launch(cloud, ClientToken=name), launch(cloud, "us-west-2", ClientToken=name)
    assert here["InstanceId"] != there["InstanceId"]


def test_the_token_of_an_ended_instance_is_refused_until_it_expires(cloud: Cloud) -> None:
    name = token()
    first = launch(cloud, ClientToken=name)["InstanceId"]
    cloud.client("ec2").terminate_instances(InstanceIds=[first])
    await_state(cloud, first, "terminated")
    assert refused(lambda: launch(cloud, ClientToken=name)) == ("IdempotentInstanceTerminated", 400)
    cloud.set(token_valid_s=0)
    assert launch(cloud, ClientToken=name)["InstanceId"] != first


def test_a_refused_launch_uses_no_token_up(cloud: Cloud) -> None:
    name = token()
    cloud.set(sold_out=["*"])
    assert refused(lambda: launch(cloud, ClientToken=name)) == ("InsufficientInstanceCapacity", 500)
    cloud.set(sold_out=[])
    assert launch(cloud, ClientToken=name)["InstanceId"]


# ---------------------------------------------------------------- states and visibility


def test_what_was_made_is_not_seen_at_once(cloud: Cloud) -> None:
    cloud.set(visible_after_s=3600)
    tags = [{"ResourceType": "instance", "Tags": [{"Key": "lag", "Value": "yes"}]}]
    identity = launch(cloud, TagSpecifications=tags)["InstanceId"]
    ec2 = cloud.client("ec2")
    missing = ("InvalidInstanceID.NotFound", 400)
    assert refused(lambda: ec2.describe_instances(InstanceIds=[identity])) == missing
    assert refused(lambda: ec2.terminate_instances(InstanceIds=[identity])) == missing
    assert refused(lambda: ec2.get_console_output(InstanceId=identity))[0] == missing[0]
    by_tag = [{"Name": "tag:lag", "Values": ["yes"]}]
    assert ec2.describe_instances(Filters=by_tag)["Reservations"] == []
    assert identity in [instance["id"] for instance in cloud.instances()]
    cloud.set(visible_after_s=0)
    assert ec2.describe_instances(Filters=by_tag)["Reservations"][0]["Instances"][0]["InstanceId"] == identity


def test_it_is_pending_then_running_then_shutting_down_then_terminated(cloud: Cloud) -> None:
    cloud.set(running_after_s=1.5, gone_after_s=1.5)
    identity = launch(cloud)["InstanceId"]
    assert state(cloud, identity) == "pending"
    await_state(cloud, identity, "running")
    answer = cloud.client("ec2").terminate_instances(InstanceIds=[identity])["TerminatingInstances"][0]
    assert (answer["PreviousState"]["Name"], answer["CurrentState"]["Name"]) == ("running", "shutting-down")
    assert state(cloud, identity) == "shutting-down"
    ended = await_state(cloud, identity, "terminated")
    assert ended["StateReason"]["Code"] == "Client.UserInitiatedShutdown"
    assert "PublicIpAddress" not in ended
    again = cloud.client("ec2").terminate_instances(InstanceIds=[identity])["TerminatingInstances"][0]
    assert again["CurrentState"]["Name"] == "terminated"


def test_the_terminated_stay_listed_for_a_while(cloud: Cloud) -> None:
    identity = launch(cloud)["InstanceId"]
    cloud.client("ec2").terminate_instances(InstanceIds=[identity])
    await_state(cloud, identity, "terminated")
    cloud.set(listed_after_end_s=0)
    assert refused(lambda: state(cloud, identity)) == ("InvalidInstanceID.NotFound", 400)


def test_a_launch_may_fail_after_it_was_accepted(cloud: Cloud) -> None:
    cloud.faults({"action": "Boot", "code": "Server.InsufficientInstanceCapacity"})
    identity = launch(cloud)["InstanceId"]
    ended = await_state(cloud, identity, "terminated")
    assert ended["StateReason"]["Code"] == "Server.InsufficientInstanceCapacity"


def test_ids_that_are_none_are_malformed(cloud: Cloud) -> None:
    ec2 = cloud.client("ec2")
    for identity in ("nonsense", "i-XYZ", "i-123", "i-0123456789abcdef0/.."):
        assert refused(lambda one=identity: ec2.describe_instances(InstanceIds=[one])) == (  # type: ignore[misc]
            "InvalidInstanceID.Malformed",
            400,
        )
    unknown = "i-0123456789abcdef0"
    assert refused(lambda: ec2.terminate_instances(InstanceIds=[unknown])) == (
        "InvalidInstanceID.NotFound",
        400,
    )


# ---------------------------------------------------------------- what is asked for is kept, or refused


def test_everything_asked_for_in_one_call_is_kept(cloud: Cloud) -> None:
    tags = [{"Key": "orch-lease", "Value": "one"}]
    made = launch(
        cloud,
        ImageId=ami(cloud, DLAMI, "x86_64"),
        InstanceType="g4dn.xlarge",
        UserData="#!/bin/sh\ntrue\n",
        InstanceInitiatedShutdownBehavior="terminate",
        MetadataOptions={"HttpTokens": "required", "HttpPutResponseHopLimit": 1},
        BlockDeviceMappings=[
            {
                "DeviceName": "/dev/sda1",
                "Ebs": {
                    "VolumeSize": 120,
                    "VolumeType": "gp3",
                    "Iops": 4000,
                    "Throughput": 250,
                    "DeleteOnTermination": True,
                    "Encrypted": True,
                },
            }
        ],
        TagSpecifications=[{"ResourceType": kind, "Tags": tags} for kind in ("instance", "volume")],
    )
    ec2, identity = cloud.client("ec2"), made["InstanceId"]
    found = await_state(cloud, identity, "running")
    assert found["MetadataOptions"]["HttpTokens"] == "required"
    assert found["MetadataOptions"]["HttpPutResponseHopLimit"] == 1
    assert found["Tags"] == tags
    volumes = ec2.describe_volumes(Filters=[{"Name": "tag:orch-lease", "Values": ["one"]}])["Volumes"]
    assert len(volumes) == 1
    kept = {name: volumes[0][name] for name in ("Size", "VolumeType", "Iops", "Throughput", "Encrypted")}
    assert kept == {"Size": 120, "VolumeType": "gp3", "Iops": 4000, "Throughput": 250, "Encrypted": True}
    for name, value in (
        ("instanceInitiatedShutdownBehavior", "terminate"),
        ("userData", "#!/bin/sh\ntrue\n"),
    ):
        attribute = ec2.describe_instance_attribute(InstanceId=identity, Attribute=name)
        text = attribute[name[0].upper() + name[1:]]["Value"]
        assert (base64.b64decode(text).decode() if name == "userData" else text) == value
    ec2.terminate_instances(InstanceIds=[identity])
    await_state(cloud, identity, "terminated")
    assert volumes[0]["VolumeId"] not in [volume["VolumeId"] for volume in ec2.describe_volumes()["Volumes"]]


def test_a_volume_not_to_be_deleted_stays_and_one_for_a_wrong_device_is_a_second(cloud: Cloud) -> None:
    ec2 = cloud.client("ec2")
    mapping = {
        "DeviceName": "/dev/xvda",
        "Ebs": {"VolumeSize": 9, "VolumeType": "gp3"},
    }  # Ubuntu's is /dev/sda1
    identity = launch(cloud, BlockDeviceMappings=[mapping])["InstanceId"]
    found = await_state(cloud, identity, "running")
    devices = {one["DeviceName"]: one["Ebs"] for one in found["BlockDeviceMappings"]}
    assert set(devices) == {"/dev/sda1", "/dev/xvda"}
    assert [devices[name]["DeleteOnTermination"] for name in sorted(devices)] == [True, False]
    ec2.terminate_instances(InstanceIds=[identity])
    await_state(cloud, identity, "terminated")
    left = [volume["VolumeId"] for volume in ec2.describe_volumes()["Volumes"]]
    assert devices["/dev/xvda"]["VolumeId"] in left
    assert devices["/dev/sda1"]["VolumeId"] not in left


def test_no_public_address_where_none_is_wanted(cloud: Cloud) -> None:
    ec2 = cloud.client("ec2")
    subnet = ec2.describe_subnets()["Subnets"][0]["SubnetId"]
    private = launch(
        cloud,
        NetworkInterfaces=[{"DeviceIndex": 0, "SubnetId": subnet, "AssociatePublicIpAddress": False}],
    )
    assert "PublicIpAddress" not in await_state(cloud, private["InstanceId"], "running")
    public = launch(cloud)
    assert await_state(cloud, public["InstanceId"], "running")["PublicIpAddress"]


MAPPING = "BlockDeviceMappings"
REFUSALS: list[tuple[dict[str, Any], str]] = [
    ({"ImageId": "ami-0123456789abcdef0"}, "InvalidAMIID.NotFound"),
    ({"ImageId": "ubuntu"}, "InvalidAMIID.Malformed"),
    ({"InstanceType": "g4dn.tiny"}, "InvalidInstanceType"),
    ({"InstanceType": "t4g.small"}, "InvalidParameterValue"),  # arm, and the image is not
    ({"KeyName": "nobody"}, "InvalidKeyPair.NotFound"),
    ({"SecurityGroupIds": ["sg-0123456789abcdef0"]}, "InvalidGroup.NotFound"),
    ({"SubnetId": "subnet-0123456789abcdef0"}, "InvalidSubnetID.NotFound"),
    ({"UserData": "x" * 16385}, "InvalidParameterValue"),
    ({"ClientToken": "x" * 65}, "InvalidParameterValue"),
    ({"InstanceType": "p4d.24xlarge", "Placement": {"AvailabilityZone": "us-east-1f"}}, "Unsupported"),
    ({"InstanceType": "t3.micro", "Placement": {"AvailabilityZone": "us-west-2a"}}, "Unsupported"),
    ({MAPPING: [{"DeviceName": "/dev/sda1", "Ebs": {"VolumeSize": 4}}]}, "InvalidBlockDeviceMapping"),
    (
        {MAPPING: [{"DeviceName": "/dev/sda1", "Ebs": {"VolumeSize": 20, "Throughput": 250}}]},
        "InvalidParameterCombination",
    ),
    (
        {MAPPING: [{"DeviceName": "/dev/sda1", "Ebs": {"VolumeSize": 20, "VolumeType": "gp3", "Iops": 9}}]},
        "InvalidParameterValue",
    ),
    (
        {"TagSpecifications": [{"ResourceType": "instance", "Tags": [{"Key": "aws:x", "Value": ""}]}]},
        "InvalidParameterValue",
    ),
    ({"IamInstanceProfile": {"Name": "nobody"}}, "InvalidParameterValue"),
    (
        {"InstanceMarketOptions": {"MarketType": "spot", "SpotOptions": {"MaxPrice": "0.0001"}}},
        "SpotMaxPriceTooLow",
    ),
]


@pytest.mark.parametrize(
    ("wishes", "code"), REFUSALS, ids=[f"{code}-{next(iter(w))}" for w, code in REFUSALS]
)
def test_nonsense_is_refused_as_aws_does(cloud: Cloud, wishes: dict[str, Any], code: str) -> None:
    before = len(cloud.instances())
    assert refused(lambda: launch(cloud, **wishes)) == (code, 400)
    assert len(cloud.instances()) == before


def test_dry_run_makes_nothing_and_says_412(cloud: Cloud) -> None:
    before = len(cloud.instances())
    assert refused(lambda: launch(cloud, DryRun=True)) == ("DryRunOperation", 412)
    assert len(cloud.instances()) == before


def test_spot_has_a_request_and_its_price_history_is_of_today(cloud: Cloud) -> None:
    ec2 = cloud.client("ec2")
    made = launch(cloud, InstanceType="c7i.xlarge", InstanceMarketOptions={"MarketType": "spot"})
    found = described(cloud, made["InstanceId"])
    assert found["InstanceLifecycle"] == "spot"
    asked = ec2.describe_spot_instance_requests(SpotInstanceRequestIds=[found["SpotInstanceRequestId"]])
    request = asked["SpotInstanceRequests"][0]
    assert request["InstanceId"] == made["InstanceId"]
    assert (request["State"], request["Type"]) == ("active", "one-time")
    await_state(cloud, made["InstanceId"], "running")
    assert refused(lambda: ec2.stop_instances(InstanceIds=[made["InstanceId"]])) == (
        "UnsupportedOperation",
        400,
    )
    history = ec2.describe_spot_price_history(InstanceTypes=["c7i.xlarge"])["SpotPriceHistory"]
    assert len({line["AvailabilityZone"] for line in history}) > 1
    for line in history:
        assert 0.02 < float(line["SpotPrice"]) < 0.1785
        assert line["Timestamp"].timestamp() > time.time() - 3600


def test_a_group_in_use_cannot_be_deleted(cloud: Cloud) -> None:
    ec2 = cloud.client("ec2")
    group = ec2.create_security_group(GroupName=token(), Description="d")["GroupId"]
    identity = launch(cloud, SecurityGroupIds=[group])["InstanceId"]
    assert refused(lambda: ec2.delete_security_group(GroupId=group)) == ("DependencyViolation", 400)
    ec2.terminate_instances(InstanceIds=[identity])
    await_state(cloud, identity, "terminated")
    ec2.delete_security_group(GroupId=group)


def test_a_group_that_the_account_is_given_late_is_there_at_once(cloud: Cloud) -> None:
    ec2, name = cloud.client("ec2"), token()
    asked = [{"Name": "group-name", "Values": [name]}]
    assert not ec2.describe_security_groups(Filters=asked)["SecurityGroups"]
    cloud.set(groups=[name])
    assert ec2.describe_security_groups(Filters=asked)["SecurityGroups"]
