"""What AWS says no with, as it says it: the fault, and what a person is told."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path

import botocore.exceptions as boto
import pytest
from botocore.exceptions import ClientError
from botocore.model import ServiceModel
from botocore.parsers import EC2QueryParser, JSONParser, ResponseParserError
from botocore.retries.standard import ThrottledRetryableChecker, TransientRetryableChecker
from botocore.session import Session

from orchestrator.errors import EXIT_AUTH, EXIT_CAPACITY, EXIT_PROVISION, Fault
from orchestrator.providers.aws.faults import FAULTS, Asked, classify, code_of, provider_error
from orchestrator.providers.aws.quotas import quota

ASKED = Asked("us-east-1", "g4dn.xlarge", "us-east-1b", False, "arn:aws:iam::123456789012:user/ann")
ENCODED = "8xJ0f3kV3n" * 40


@cache
def service(name: str) -> ServiceModel:
    return Session().get_service_model(name)


def ec2(code: str, message: str, status: int, operation: str = "RunInstances") -> ClientError:
    """The exception that boto3 makes of these bytes."""
    body = (
        '<?xml version="1.0" encoding="UTF-8"?>\n<Response><Errors><Error>'
        f"<Code>{code}</Code><Message>{message}</Message></Error></Errors>"
        "<RequestID>ea966190-f9aa-478e-9ede-example</RequestID></Response>"
    )
    model = service("ec2").operation_model(operation)
    parsed = EC2QueryParser().parse(
        {"body": body.encode(), "headers": {"content-type": "text/xml"}, "status_code": status},
        model.output_shape,
    )
    return ClientError(parsed, operation)


def ssm(code: str, message: str, status: int) -> ClientError:
    body = json.dumps({"__type": code, "message": message}).encode()
    model = service("ssm").operation_model("GetParameter")
    parsed = JSONParser().parse({"body": body, "headers": {}, "status_code": status}, model.output_shape)
    return ClientError(parsed, "GetParameter")


SAID = [
    # capacity: another zone, another type
    (
        "InsufficientInstanceCapacity",
        500,
        "We currently do not have sufficient g4dn.xlarge capacity in the Availability Zone you requested "
        "(us-east-1b). Our system will be working on provisioning additional capacity. You can currently get "
        "g4dn.xlarge capacity by not specifying an Availability Zone in your request or choosing us-east-1a, "
        "us-east-1c.",
        Fault.CAPACITY,
    ),
    ("InsufficientHostCapacity", 500, "There is not enough host capacity.", Fault.CAPACITY),
    ("InsufficientReservedInstanceCapacity", 500, "Not enough reserved instances.", Fault.CAPACITY),
    ("InsufficientFreeAddressesInSubnet", 400, "Not enough free addresses in subnet.", Fault.CAPACITY),
    (
        "SpotMaxPriceTooLow",
        400,
        "Your Spot request price of 0.1 is lower than the minimum required Spot request fulfillment price of "
        "0.2066.",
        Fault.CAPACITY,
    ),
    (
        "Unsupported",
        400,
        "Your requested instance type (g4dn.xlarge) is not supported in your requested Availability Zone "
        "(us-east-1e). Please retry your request by not specifying an Availability Zone.",
        Fault.CAPACITY,
    ),
    # quota: stop, and say where to ask
    (
        "VcpuLimitExceeded",
        400,
        "You have requested more vCPU capacity than your current vCPU limit of 0 allows for the instance "
        "bucket that the specified instance type belongs to. Please visit "
        "http://aws.amazon.com/contact-us/ec2-request to request an adjustment to this limit.",
        Fault.QUOTA,
    ),
    ("InstanceLimitExceeded", 400, "Your quota allows for 0 more running instance(s).", Fault.QUOTA),
    ("MaxSpotInstanceCountExceeded", 400, "Max spot instance count exceeded", Fault.QUOTA),
    ("VolumeLimitExceeded", 400, "You have exceeded your maximum gp3 storage limit of 50 TiB.", Fault.QUOTA),
    # who may not
    (
        "UnauthorizedOperation",
        403,
        "You are not authorized to perform this operation. User: arn:aws:iam::123456789012:user/ann is not "
        "authorized to perform: ec2:CreateTags on resource: arn:aws:ec2:us-east-1:123456789012:instance/* "
        "because no identity-based policy allows the ec2:CreateTags action. Encoded authorization failure "
        f"message: {ENCODED}",
        Fault.AUTH,
    ),
    (
        "AuthFailure",
        401,
        "AWS was not able to validate the provided access credentials",
        Fault.AUTH,
    ),
    ("ExpiredToken", 400, "The security token included in the request is expired", Fault.AUTH),
    ("RequestExpired", 400, "Request has expired.", Fault.AUTH),
    ("InvalidClientTokenId", 403, "The security token included in the request is invalid.", Fault.AUTH),
    (
        "SignatureDoesNotMatch",
        403,
        "The request signature we calculated does not match the signature you provided.",
        Fault.AUTH,
    ),
    ("OptInRequired", 403, "You are not subscribed to this service.", Fault.AUTH),
    (
        "PendingVerification",
        400,
        "Your request for accessing resources in this region is being validated, and you will not be able to "
        "launch additional resources in this region until the validation is complete.",
        Fault.AUTH,
    ),
    ("Blocked", 403, "This account is currently blocked and not recognized as a valid account.", Fault.AUTH),
    # what was asked is wrong
    (
        "InvalidParameterValue",
        400,
        "Value (g4dn.xlarg) for parameter InstanceType is invalid. The instance type does not exist.",
        Fault.INVALID,
    ),
    ("InvalidAMIID.NotFound", 400, "The image id '[ami-0abc]' does not exist", Fault.INVALID),
    ("InvalidAMIID.Malformed", 400, 'Invalid id: "ami-x" (expecting "ami-...")', Fault.INVALID),
    ("InvalidGroup.NotFound", 400, "The security group 'sg-1' does not exist", Fault.INVALID),
    ("InvalidSubnetID.NotFound", 400, "The subnet ID 'subnet-1' does not exist", Fault.INVALID),
    (
        "InvalidBlockDeviceMapping",
        400,
        "Volume of size 8GB is smaller than snapshot 'snap-1', expect size &gt;= 65GB",
        Fault.INVALID,
    ),
    (
        "InvalidParameterCombination",
        400,
        "The parameter AvailabilityZone is not recognized together with SubnetId",
        Fault.INVALID,
    ),
    ("MissingParameter", 400, "The request must contain the parameter ImageId", Fault.INVALID),
    ("UnsupportedOperation", 400, "The operation is not supported.", Fault.INVALID),
    ("InvalidInstanceID.NotFound", 400, "The instance ID 'i-0abc' does not exist", Fault.INVALID),
    ("InvalidSomethingNew", 400, "It is invalid in a way that nobody has met.", Fault.INVALID),
    # what will pass
    ("RequestLimitExceeded", 503, "Request limit exceeded.", Fault.TRANSIENT),
    ("Unavailable", 503, "The service is unavailable. Please try again shortly.", Fault.TRANSIENT),
    ("InternalError", 500, "An internal error has occurred", Fault.TRANSIENT),
    ("ServiceUnavailable", 503, "Service Unavailable", Fault.TRANSIENT),
    ("SomethingOfTheServer", 502, "", Fault.TRANSIENT),
    ("SomethingTooOften", 429, "", Fault.TRANSIENT),
    # somebody was quicker
    (
        "IdempotentParameterMismatch",
        400,
        "Arguments on this idempotent request are inconsistent with arguments used in previous request(s).",
        Fault.CONFLICT,
    ),
    ("IdempotentInstanceTerminated", 400, "The instance of this token has been terminated.", Fault.CONFLICT),
    # nobody knows
    ("SomethingElse", 400, "Something else.", Fault.UNKNOWN),
    ("SomethingElse", 403, "Something else.", Fault.AUTH),
]


@pytest.mark.parametrize(("code", "status", "message", "fault"), SAID, ids=lambda value: str(value)[:40])
def test_what_ec2_says_is_that_fault(code: str, status: int, message: str, fault: Fault) -> None:
    error = ec2(code, message, status)
    assert (classify(error), code_of(error)) == (fault, code)
    told = provider_error(error, ASKED)
    assert (told.fault, told.code) == (fault, code)
    assert code in told.message
    assert ENCODED not in told.message
    expected = {Fault.AUTH: EXIT_AUTH, Fault.CAPACITY: EXIT_CAPACITY, Fault.QUOTA: EXIT_CAPACITY}
    assert told.exit_code == expected.get(fault, EXIT_PROVISION)


@pytest.mark.parametrize(
    ("code", "status", "fault"),
    [
        ("ParameterNotFound", 400, Fault.INVALID),
        ("AccessDeniedException", 400, Fault.AUTH),
        ("UnrecognizedClientException", 400, Fault.AUTH),
        ("ExpiredTokenException", 400, Fault.AUTH),
        ("ThrottlingException", 400, Fault.TRANSIENT),
        ("InternalServerError", 500, Fault.TRANSIENT),
    ],
)
def test_what_ssm_says_is_that_fault(code: str, status: int, fault: Fault) -> None:
    assert classify(ssm(code, "said", status)) is fault


@pytest.mark.parametrize(
    ("error", "fault"),
    [
        (boto.NoCredentialsError(), Fault.AUTH),
        (boto.PartialCredentialsError(provider="env", cred_var="AWS_SECRET_ACCESS_KEY"), Fault.AUTH),
        (boto.CredentialRetrievalError(provider="custom-process", error_msg="exit 1"), Fault.AUTH),
        (boto.ProfileNotFound(profile="work"), Fault.AUTH),
        (boto.TokenRetrievalError(provider="sso", error_msg="expired"), Fault.AUTH),
        (boto.UnauthorizedSSOTokenError(), Fault.AUTH),
        (boto.EndpointConnectionError(endpoint_url="https://ec2", error="refused"), Fault.TRANSIENT),
        (boto.ConnectTimeoutError(endpoint_url="https://ec2"), Fault.TRANSIENT),
        (boto.ReadTimeoutError(endpoint_url="https://ec2"), Fault.TRANSIENT),
        (boto.ConnectionClosedError(endpoint_url="https://ec2"), Fault.TRANSIENT),
        (ResponseParserError("Unable to parse response: half of it came"), Fault.TRANSIENT),
        (boto.ParamValidationError(report="Invalid type for parameter ImageId"), Fault.INVALID),
        (boto.NoRegionError(), Fault.INVALID),
        (RuntimeError("a bug"), Fault.UNKNOWN),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_what_never_reached_aws(error: Exception, fault: Fault) -> None:
    assert classify(error) is fault
    words = "does not come from AWS" if isinstance(error, ResponseParserError) else str(error)
    assert words in provider_error(error, ASKED).message or fault is Fault.UNKNOWN


def test_no_code_is_in_two_classes() -> None:
    source = Path(__import__("orchestrator.providers.aws.faults", fromlist=["_"]).__file__).read_text()
    words = [
        word
        for block in re.findall(r'^_[A-Z]+ = """(.*?)"""', source, re.DOTALL | re.MULTILINE)
        for word in block.split()
    ]
    assert len(words) == len(set(words))
    assert set(words) <= FAULTS.keys()


def test_throttling_that_botocore_knows_is_transient() -> None:
    known = set(ThrottledRetryableChecker._THROTTLED_ERROR_CODES) | set(
        TransientRetryableChecker._TRANSIENT_ERROR_CODES
    )
    of_databases = {"ProvisionedThroughputExceededException", "TransactionInProgressException"}
    assert len(known) > 10
    for code in known - of_databases - {"LimitExceededException"}:
        assert FAULTS.get(code) is Fault.TRANSIENT, code


# ---------------------------------------------------------------- what a person is told


def test_a_quota_is_named_with_its_region_and_the_page_that_raises_it() -> None:
    told = provider_error(ec2("VcpuLimitExceeded", "limit of 0", 400), ASKED)
    for words in ("Running On-Demand G and VT instances", "L-DB2E81BA", "us-east-1", "limit of 0"):
        assert words in told.message
    assert "https://us-east-1.console.aws.amazon.com/servicequotas/" in told.message
    assert told.next_command is not None
    assert "L-DB2E81BA" in told.next_command


@pytest.mark.parametrize(
    ("instance_type", "spot", "code"),
    [
        ("g4dn.xlarge", False, "L-DB2E81BA"),
        ("g6e.xlarge", True, "L-3819A6DF"),
        ("gr6.4xlarge", False, "L-DB2E81BA"),
        ("vt1.3xlarge", False, "L-DB2E81BA"),
        ("p4d.24xlarge", False, "L-417A185B"),
        ("p4d.24xlarge", True, "L-7212CCBC"),
        ("p5.48xlarge", True, "L-C4BD4855"),
        ("p5en.48xlarge", True, "L-C4BD4855"),
        ("t3.micro", False, "L-1216C47A"),
        ("m7i-flex.large", False, "L-1216C47A"),
        ("c6gn.large", True, "L-34B43A08"),
        ("im4gn.large", False, "L-1216C47A"),
        ("trn1.2xlarge", False, "L-2C3B7624"),
        ("inf2.xlarge", True, "L-B5D1601B"),
        ("dl1.24xlarge", False, "L-6E869C2A"),
        ("x2gd.medium", False, "L-7295265B"),
        ("u-6tb1.metal", False, ""),
        ("mac2.metal", False, ""),
        ("hpc7g.4xlarge", False, ""),
    ],
)
def test_types_count_against_their_quota(instance_type: str, spot: bool, code: str) -> None:
    found = quota(instance_type, spot=spot)
    assert found.code == code
    assert found.address("eu-west-1").startswith("https://eu-west-1.console.aws.amazon.com/")


def test_who_was_refused_what_is_said() -> None:
    denied = "You are not authorized to perform: ec2:CreateTags on resource: x because no policy allows it."
    told = provider_error(ec2("UnauthorizedOperation", denied, 403), ASKED)
    assert "arn:aws:iam::123456789012:user/ann may not call ec2:CreateTags in us-east-1" in told.message
    silent = provider_error(
        ec2("UnauthorizedOperation", "You are not authorized.", 403, "DescribeImages"), ASKED
    )
    assert "ec2:DescribeImages" in silent.message
    assert "ssm:GetParameter" in provider_error(ssm("AccessDeniedException", "no", 400), ASKED).message


@pytest.mark.parametrize(
    ("code", "message", "field"),
    [
        ("InvalidParameterValue", "Value (x) for parameter InstanceType is invalid.", "InstanceType"),
        ("InvalidAMIID.NotFound", "The image id '[ami-0]' does not exist", "ORCH_AWS_IMAGE"),
        ("InvalidSubnetID.NotFound", "The subnet ID 'subnet-1' does not exist", "ORCH_AWS_SUBNET"),
        ("MissingParameter", "The request must contain the parameter ImageId", "ImageId"),
    ],
)
def test_the_refused_field_is_named(code: str, message: str, field: str) -> None:
    assert field in provider_error(ec2(code, message, 400), ASKED).message


def test_the_words_never_decide() -> None:
    """A message that speaks of capacity, under a code that does not."""
    misleading = "InsufficientInstanceCapacity VcpuLimitExceeded UnauthorizedOperation"
    assert classify(ec2("InvalidParameterValue", misleading, 400)) is Fault.INVALID
    assert classify(ec2("InternalError", misleading, 500)) is Fault.TRANSIENT
