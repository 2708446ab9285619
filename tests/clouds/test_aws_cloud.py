"""The test AWS, met through boto3: each thing that moto gets wrong, and that AWS does, is done here."""

from __future__ import annotations

import base64
import itertools
import json
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

botocore_exceptions = pytest.importorskip("botocore.exceptions")
pytest.importorskip("moto")

from tests.clouds.aws import Cloud, running  # noqa: E402

ClientError = botocore_exceptions.ClientError
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
    "policy": None,
}


@pytest.fixture(scope="module")
def shared_cloud() -> Iterator[Cloud]:
    with running(machines=False) as cloud:
        yield cloud


@pytest.fixture
def cloud(shared_cloud: Cloud) -> Cloud:
    """A cloud without machines, as new but for what earlier tests launched."""
    shared_cloud.set(**DEFAULTS)
    shared_cloud.clear_faults()
    shared_cloud.forget_requests()
    return shared_cloud


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
    with pytest.raises(ClientError) as error:
        call()
    response = error.value.response
    return response["Error"]["Code"], response["ResponseMetadata"]["HTTPStatusCode"]


def token() -> str:
    return f"token-{next(_NUMBERS)}"


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


# ---------------------------------------------------------------- capacity, quota, access


def test_capacity_is_of_type_and_zone_and_sent_as_500(cloud: Cloud) -> None:
    cloud.set(sold_out=["g4dn.*@us-east-1a", "g4dn.*@us-east-1b"])
    image = ami(cloud, DLAMI, "x86_64")

    def try_in(zone: str) -> Any:
        return launch(
            cloud,
            ImageId=image,
            InstanceType="g4dn.xlarge",
            Placement={"AvailabilityZone": f"us-east-1{zone}"},
        )

    assert refused(lambda: try_in("a")) == ("InsufficientInstanceCapacity", 500)
    assert refused(lambda: try_in("b")) == ("InsufficientInstanceCapacity", 500)
    assert try_in("c")["Placement"]["AvailabilityZone"] == "us-east-1c"
    anywhere = launch(cloud, ImageId=image, InstanceType="g4dn.xlarge")
    assert anywhere["Placement"]["AvailabilityZone"] not in ("us-east-1a", "us-east-1b")


def test_the_zone_of_a_subnet_counts_too(cloud: Cloud) -> None:
    subnets = cloud.client("ec2").describe_subnets()["Subnets"]
    subnet = next(one["SubnetId"] for one in subnets if one["AvailabilityZone"] == "us-east-1b")
    cloud.faults({"action": "RunInstances", "code": "InsufficientInstanceCapacity", "zone": "us-east-1b"})
    assert launch(cloud, Placement={"AvailabilityZone": "us-east-1a"})
    assert refused(lambda: launch(cloud, SubnetId=subnet)) == ("InsufficientInstanceCapacity", 500)
    assert launch(cloud, SubnetId=subnet)["Placement"]["AvailabilityZone"] == "us-east-1b"


def test_quota_counts_vcpus_by_family_and_market(cloud: Cloud) -> None:
    image, quotas = ami(cloud, DLAMI, "x86_64"), cloud.client("service-quotas")
    cloud.set(quotas={"L-DB2E81BA": 0, "L-3819A6DF": 0})
    gpu = {"ImageId": image, "InstanceType": "g5.xlarge"}
    assert refused(lambda: launch(cloud, **gpu)) == ("VcpuLimitExceeded", 400)
    spot: dict[str, Any] = {"InstanceMarketOptions": {"MarketType": "spot"}}
    assert refused(lambda: launch(cloud, **gpu, **spot)) == ("MaxSpotInstanceCountExceeded", 400)
    assert launch(cloud)["InstanceId"]
    found = quotas.get_service_quota(ServiceCode="ec2", QuotaCode="L-DB2E81BA")["Quota"]
    assert (found["Value"], found["QuotaName"]) == (0.0, "Running On-Demand G and VT instances")
    default = quotas.get_aws_default_service_quota(ServiceCode="ec2", QuotaCode="L-DB2E81BA")["Quota"]
    assert default["Value"] > 0
    pages = quotas.get_paginator("list_service_quotas").paginate(
        ServiceCode="ec2", PaginationConfig={"PageSize": 5}
    )
    codes = [quota["QuotaCode"] for page in pages for quota in page["Quotas"]]
    assert "L-1216C47A" in codes
    assert len(codes) == len(set(codes)) > 5
    absent = refused(lambda: quotas.get_service_quota(ServiceCode="ec2", QuotaCode="L-00000000"))
    assert absent == ("NoSuchResourceException", 400)


def test_a_policy_decides_and_can_be_simulated(cloud: Cloud) -> None:
    arn = cloud.client("sts").get_caller_identity()["Arn"]
    allowed = ["ec2:Describe*", "iam:SimulatePrincipalPolicy", "sts:DecodeAuthorizationMessage", "ssm:*"]
    cloud.set(policy={"Statement": [{"Effect": "Allow", "Action": allowed, "Resource": "*"}]})
    assert refused(lambda: launch(cloud)) == ("UnauthorizedOperation", 403)
    cloud.client("ec2").describe_instances()
    assert cloud.client("sts").get_caller_identity()["Arn"] == arn
    simulated = cloud.client("iam").simulate_principal_policy(
        PolicySourceArn=arn, ActionNames=["ec2:RunInstances", "ec2:DescribeInstances"]
    )
    decisions = {one["EvalActionName"]: one["EvalDecision"] for one in simulated["EvaluationResults"]}
    assert decisions == {"ec2:RunInstances": "implicitDeny", "ec2:DescribeInstances": "allowed"}
    assert refused(
        lambda: cloud.client("iam").simulate_principal_policy(PolicySourceArn=arn + "x", ActionNames=["a:b"])
    ) == ("NoSuchEntity", 404)


def test_what_was_denied_can_be_decoded(cloud: Cloud) -> None:
    cloud.set(policy={"Statement": [{"Effect": "Allow", "NotAction": "ec2:RunInstances"}]})
    with pytest.raises(ClientError) as error:
        launch(cloud)
    message = error.value.response["Error"]["Message"]
    secret = message.rpartition("Encoded authorization failure message: ")[2]
    text = cloud.client("sts").decode_authorization_message(EncodedMessage=secret)["DecodedMessage"]
    assert json.loads(text)["context"]["action"] == "ec2:RunInstances"


def test_tagging_at_launch_needs_its_own_permission(cloud: Cloud) -> None:
    cloud.set(policy={"Statement": [{"Effect": "Allow", "Action": ["ec2:RunInstances", "ssm:GetParameter"]}]})
    assert launch(cloud)["InstanceId"]
    tags = [{"ResourceType": "instance", "Tags": [{"Key": "a", "Value": "b"}]}]
    assert refused(lambda: launch(cloud, TagSpecifications=tags)) == ("UnauthorizedOperation", 403)


@pytest.mark.parametrize(
    ("service", "call", "expected"),
    [
        ("ec2", lambda c: c.describe_instances(), ("AuthFailure", 401)),
        ("sts", lambda c: c.get_caller_identity(), ("InvalidClientTokenId", 403)),
        ("ssm", lambda c: c.get_parameter(Name="x"), ("UnrecognizedClientException", 400)),
        ("s3", lambda c: c.list_buckets(), ("InvalidAccessKeyId", 403)),
    ],
)
def test_an_unknown_key_is_refused(cloud: Cloud, service: str, call: Any, expected: tuple[str, int]) -> None:
    stranger = Cloud({**cloud.env, "AWS_ACCESS_KEY_ID": "AKIASTRANGER"}, cloud.url)
    assert refused(lambda: call(stranger.client(service))) == expected


# ---------------------------------------------------------------- images and prices


def test_images_by_parameter_and_by_name(cloud: Cloud) -> None:
    ec2 = cloud.client("ec2")
    for arch in ("x86_64", "arm64"):
        image = ec2.describe_images(ImageIds=[ami(cloud, DLAMI, arch)])["Images"][0]
        assert image["Architecture"] == arch
        assert image["RootDeviceName"] == "/dev/sda1"
        assert image["BlockDeviceMappings"][0]["Ebs"]["VolumeSize"] >= 45
    named = [
        {"Name": "name", "Values": ["Deep Learning Base OSS Nvidia Driver GPU AMI (Ubuntu 22.04) ????????"]}
    ]
    ours = ec2.describe_images(Owners=["amazon"], Filters=named)["Images"]
    newest = max(ours, key=lambda image: image["CreationDate"])
    assert newest["ImageId"] == ami(cloud, DLAMI, "x86_64")
    everybodys = ec2.describe_images(Filters=named)["Images"]
    assert max(everybodys, key=lambda image: image["CreationDate"])["ImageId"] != newest["ImageId"]
    assert ami(cloud, DLAMI, "x86_64", "us-west-2") != newest["ImageId"]
    missing = refused(lambda: ami(cloud, "/aws/service/deeplearning/ami/x86_64/nothing/latest/ami-id"))
    assert missing == ("ParameterNotFound", 400)


def test_prices_are_paged_and_several_a_type(cloud: Cloud) -> None:
    pricing = cloud.client("pricing")
    fields = {"instanceType": "g4dn.xlarge", "regionCode": "us-east-1"}
    filters = [{"Type": "TERM_MATCH", "Field": name, "Value": value} for name, value in fields.items()]
    pages = pricing.get_paginator("get_products").paginate(
        ServiceCode="AmazonEC2", Filters=filters, PaginationConfig={"PageSize": 2}
    )
    products = [json.loads(text) for page in pages for text in page["PriceList"]]
    assert len(products) > 2
    right = [
        product
        for product in products
        if {"operatingSystem": "Linux", "tenancy": "Shared", "capacitystatus": "Used"}.items()
        <= product["product"]["attributes"].items()
    ]
    assert len(right) == 1
    (term,) = right[0]["terms"]["OnDemand"].values()
    (dimension,) = term["priceDimensions"].values()
    assert float(dimension["pricePerUnit"]["USD"]) == 0.526
    elsewhere = cloud.client("pricing", "us-west-2")
    assert refused(lambda: elsewhere.get_products(ServiceCode="AmazonEC2"))[0] == "UnknownEndpoint"


# ---------------------------------------------------------------- faults and the record of requests


def test_an_error_after_the_effect_leaves_the_effect(cloud: Cloud) -> None:
    name = token()
    cloud.faults({"action": "RunInstances", "code": "InternalError", "after": True})
    assert refused(lambda: launch(cloud, ClientToken=name)) == ("InternalError", 500)
    made = [instance["id"] for instance in cloud.instances() if instance["client_token"] == name]
    assert len(made) == 1
    assert launch(cloud, ClientToken=name)["InstanceId"] == made[0]


def test_an_answer_that_never_comes_leaves_the_effect(cloud: Cloud) -> None:
    name = token()
    cloud.faults({"action": "RunInstances", "drop": True, "after": True})
    with pytest.raises(botocore_exceptions.ConnectionClosedError):
        launch(cloud, ClientToken=name)
    assert [instance["client_token"] for instance in cloud.instances()].count(name) == 1


def test_throttling_is_503_and_the_client_retries(cloud: Cloud) -> None:
    throttled = {"action": "DescribeInstances", "code": "RequestLimitExceeded"}
    cloud.faults(throttled)
    assert refused(lambda: cloud.client("ec2").describe_instances()) == ("RequestLimitExceeded", 503)
    cloud.faults(throttled, throttled)
    cloud.forget_requests()
    cloud.client("ec2", retries={"mode": "standard", "total_max_attempts": 3}).describe_instances()
    assert [request["status"] for request in cloud.requests("DescribeInstances")] == [503, 503, 200]


def test_faults_match_skip_and_last(cloud: Cloud) -> None:
    ec2 = cloud.client("ec2")
    cloud.faults(
        {"action": "Describe*", "code": "Unavailable", "region": "eu-*", "times": -1},
        {
            "action": "DescribeRegions",
            "code": "InternalError",
            "skip": 1,
            "status": 599,
            "message": "so it is",
        },
    )
    ec2.describe_regions()
    assert refused(ec2.describe_regions) == ("InternalError", 599)
    ec2.describe_regions()
    for _ in range(3):
        assert refused(cloud.client("ec2", "eu-west-1").describe_regions) == ("Unavailable", 503)
    cloud.clear_faults()
    cloud.client("ec2", "eu-west-1").describe_regions()


def test_requests_are_recorded_as_they_came(cloud: Cloud) -> None:
    name = token()
    tags = [{"ResourceType": "volume", "Tags": [{"Key": "k", "Value": "v w"}]}]
    launch(cloud, ClientToken=name, TagSpecifications=tags)
    (request,) = cloud.requests("RunInstances")
    assert request["parameters"]["ClientToken"] == name
    assert request["parameters"]["TagSpecification.1.Tag.1.Value"] == "v w"
    assert (request["service"], request["region"], request["status"]) == ("ec2", "us-east-1", 200)


# ---------------------------------------------------------------- S3


@pytest.fixture
def bucket(cloud: Cloud) -> str:
    name = f"bucket-{next(_NUMBERS)}"
    cloud.client("s3").create_bucket(Bucket=name)
    return name


@pytest.mark.parametrize("checksum", ["CRC32", "SHA1", "SHA256"])
def test_a_wrong_checksum_is_refused_and_a_right_one_is_not(cloud: Cloud, bucket: str, checksum: str) -> None:
    s3 = cloud.client("s3")
    s3.put_object(Bucket=bucket, Key="right", Body=b"data", ChecksumAlgorithm=checksum)
    size = {"CRC32": 4, "SHA1": 20, "SHA256": 32}[checksum]
    wrong = {f"Checksum{checksum}": base64.b64encode(b"\1" * size).decode()}
    assert refused(lambda: s3.put_object(Bucket=bucket, Key="wrong", Body=b"data", **wrong)) == (
        "BadDigest",
        400,
    )
    assert [item["Key"] for item in s3.list_objects_v2(Bucket=bucket)["Contents"]] == ["right"]


def test_preconditions_decide_between_writers(cloud: Cloud, bucket: str) -> None:
    s3, won = cloud.client("s3"), []

    def write(number: int) -> None:
        try:
            s3.put_object(Bucket=bucket, Key="lock", Body=str(number).encode(), IfNoneMatch="*")
            won.append(number)
        except ClientError as error:
            assert error.response["Error"]["Code"] == "PreconditionFailed"

    threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1
    tag = s3.head_object(Bucket=bucket, Key="lock")["ETag"]
    s3.put_object(Bucket=bucket, Key="lock", Body=b"next", IfMatch=tag)
    stale = refused(lambda: s3.put_object(Bucket=bucket, Key="lock", Body=b"late", IfMatch=tag))
    assert stale == ("PreconditionFailed", 412)


def test_s3_fails_by_script_too_also_after_the_effect(cloud: Cloud, bucket: str) -> None:
    s3 = cloud.client("s3")
    cloud.faults({"action": "PutObject", "code": "SlowDown", "match": {"key": "a/*"}})
    s3.put_object(Bucket=bucket, Key="b/x", Body=b"1")
    assert refused(lambda: s3.put_object(Bucket=bucket, Key="a/x", Body=b"1")) == ("SlowDown", 503)
    cloud.faults({"action": "PutObject", "code": "InternalError", "after": True})
    lost = refused(lambda: s3.put_object(Bucket=bucket, Key="lock", Body=b"me", IfNoneMatch="*"))
    assert lost == ("InternalError", 500)
    again = refused(lambda: s3.put_object(Bucket=bucket, Key="lock", Body=b"me", IfNoneMatch="*"))
    assert again == ("PreconditionFailed", 412)
    assert s3.get_object(Bucket=bucket, Key="lock")["Body"].read() == b"me"


def test_a_multipart_upload_arrives_whole(cloud: Cloud, bucket: str) -> None:
    import io

    s3, data = cloud.client("s3"), bytes(range(256)) * 40_000
    from boto3.s3.transfer import TransferConfig

    s3.upload_fileobj(
        io.BytesIO(data),
        bucket,
        "large",
        Config=TransferConfig(multipart_threshold=1 << 20, max_concurrency=2),
    )
    assert s3.get_object(Bucket=bucket, Key="large")["Body"].read() == data
    assert cloud.requests("UploadPart")
