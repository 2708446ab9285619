"""Capacity, quotas, access, images, prices, scripted failures and S3, as AWS has them and moto has not."""

from __future__ import annotations

import base64
import itertools
import json
import threading
from typing import Any

import pytest

pytest.importorskip("boto3")
pytest.importorskip("moto")

from tests.clouds.aws import Cloud
from tests.clouds.aws_asking import (
    DLAMI,
    ami,
    launch,
    refused,
    token,
)

botocore_exceptions = pytest.importorskip("botocore.exceptions")
ClientError = botocore_exceptions.ClientError
_NUMBERS = itertools.count()


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
