"""Classify the errors of AWS as faults: by code and HTTP status, never by the text.

Codes: the EC2 API reference, botocore's own exceptions, and those of STS and SSM that the calls here meet.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import botocore.exceptions as boto
from botocore.exceptions import ClientError
from botocore.parsers import ResponseParserError

from orchestrator.errors import Fault, ProviderError
from orchestrator.providers import permissions
from orchestrator.providers.aws.quotas import quota

_CAPACITY = """
    InsufficientInstanceCapacity InsufficientHostCapacity InsufficientReservedInstanceCapacity
    InsufficientCapacity InsufficientCapacityOnHost InsufficientAddressCapacity
    InsufficientFreeAddressesInSubnet InsufficientVolumeCapacity SpotMaxPriceTooLow
    InsufficientSpotInstanceCapacity CapacityReservationExpired ReservationCapacityExceeded
    Unsupported UnsupportedHostConfiguration UnfulfillableCapacity
"""
_QUOTA = """
    VcpuLimitExceeded InstanceLimitExceeded MaxSpotInstanceCountExceeded VolumeLimitExceeded
    MaxIOPSLimitExceeded VolumeIOPSLimit MaxSpotFleetRequestCountExceeded NetworkInterfaceLimitExceeded
    AddressLimitExceeded PrivateIpAddressLimitExceeded SecurityGroupLimitExceeded
    SecurityGroupsPerInstanceLimitExceeded SecurityGroupsPerInterfaceLimitExceeded HostLimitExceeded
    PlacementGroupLimitExceeded ResourceLimitExceeded TagLimitExceeded LimitExceeded ResourceCountExceeded
"""
_AUTH = """
    UnauthorizedOperation AccessDenied AccessDeniedException Client.UnauthorizedOperation AuthFailure
    Blocked ExpiredToken ExpiredTokenException RequestExpired InvalidClientTokenId InvalidClientToken
    InvalidAccessKeyId InvalidSecurity InvalidSecurityToken UnrecognizedClientException
    SignatureDoesNotMatch IncompleteSignature InvalidSignatureException MissingAuthenticationToken
    MissingAuthenticationTokenException NotAuthorized OptInRequired PendingVerification
    SubscriptionRequiredException ValidationRequired CustomerKeyHasBeenRevoked InvalidIdentityToken
    InvalidGrantException RegionDisabledException Unauthorized UnauthorizedException
"""
_TRANSIENT = """
    RequestLimitExceeded Throttling ThrottlingException ThrottledException RequestThrottled
    RequestThrottledException TooManyRequestsException BandwidthLimitExceeded SlowDown PriorRequestNotComplete
    EC2ThrottledException RequestTimeout RequestTimeoutException RequestInProgress
    Unavailable ServiceUnavailable ServiceUnavailableException InternalError InternalFailure
    InternalServerError InternalServiceError ServerInternal IncorrectState ResourceNotReady
    InvalidSnapshot.InUse ConcurrentTagAccess Server.Unavailable Server.InternalError
    InvalidPlacementGroup.Unknown InvalidPlacementGroup.InUse
"""
_CONFLICT = "IdempotentParameterMismatch IdempotentInstanceTerminated ClientTokenConflict"
_INVALID = """
    InvalidParameterValue InvalidParameter InvalidParameterCombination InvalidParameterDependency
    MissingParameter MissingInput UnknownParameter InvalidInput InvalidInterface.IpAddressLimitExceeded
    InvalidAMIID InvalidAMIName InvalidGroup InvalidSubnet InvalidSubnetID InvalidVpcID InvalidZone
    InvalidAvailabilityZone InvalidKeyPair InvalidBlockDeviceMapping InvalidUserData InvalidTagKey
    InvalidInstanceID InvalidID InvalidSnapshot InvalidSecurityGroupID InvalidPlacementGroup
    InvalidInstanceType InvalidFilter InvalidRequest InvalidQueryParameter InvalidAction InvalidCharacter
    InvalidPaginationToken InvalidEndpointId InvalidState IncorrectInstanceState IncorrectSpotRequestState
    DefaultVpcDoesNotExist VPCIdNotSpecified VPCResourceNotSpecified NonEBSInstance
    EncryptedVolumesNotSupported
    UnsupportedOperation UnsupportedProtocol UnsupportedInstanceAttribute UnsupportedTenancy
    UnsupportedHibernationConfiguration UnknownVolumeType InstanceTpmEkPubNotFound OperationNotPermitted
    MalformedQueryString UserDataLengthExceeded ParameterNotFound ValidationException ValidationError
    ParameterVersionNotFound BlockDeviceMappingLimitExceeded ImageNotSupported SnapshotSizeMismatch
"""

FAULTS: dict[str, Fault] = {
    code: fault
    for fault, codes in (
        (Fault.CAPACITY, _CAPACITY),
        (Fault.QUOTA, _QUOTA),
        (Fault.AUTH, _AUTH),
        (Fault.TRANSIENT, _TRANSIENT),
        (Fault.CONFLICT, _CONFLICT),
        (Fault.INVALID, _INVALID),
    )
    for code in codes.split()
}
"""Every known code, complete or up to its first dot (`InvalidAMIID.NotFound`)."""

EXPIRED = frozenset(("ExpiredToken", "ExpiredTokenException", "RequestExpired"))
"""Codes of expired credentials. RequestExpired can also mean that this computer's clock is wrong."""


_VALIDATED = "PendingVerification"
_INACTIVE = (
    "AWS has not activated this account for the service in {region}. A new account may take a day, once its "
    "sign-up is complete, with a way to pay: https://portal.aws.amazon.com/billing/signup"
)
_OF_THE_ACCOUNT: dict[str, tuple[str, str | None]] = {
    _VALIDATED: (
        "AWS is validating this account for {region}: this takes minutes, at most 4 hours, and AWS sends an "
        "e-mail when it is done. Until then another region may work.",
        None,
    ),
    "OptInRequired": (_INACTIVE, None),
    "SubscriptionRequiredException": (_INACTIVE, None),
    "Blocked": (
        "AWS has blocked this account in {region}; ask its support for the reason: "
        "https://support.console.aws.amazon.com/support",
        None,
    ),
    "AuthFailure.ServiceLinkedRoleCreationNotPermitted": (
        "EC2 needs a role for spot machines that the account does not have yet, and these credentials may "
        "not create it (iam:CreateServiceLinkedRole). An administrator creates it once; `spot: false` does "
        "not need it.",
        "aws iam create-service-linked-role --aws-service-name spot.amazonaws.com",
    ),
}
"""Refusals because of the account: message and remedy by code."""


class NotAnAnswer(boto.BotoCoreError):  # type: ignore[misc]
    """The answer did not come from AWS, but for example from the sign-in page of a network."""

    fmt = "What answered {operation} is not AWS (content type {kind})"


_NO_CREDENTIALS = (
    boto.NoCredentialsError,
    boto.PartialCredentialsError,
    boto.CredentialRetrievalError,
    boto.ProfileNotFound,
    boto.ConfigNotFound,
    boto.InvalidConfigError,
    boto.ConfigParseError,
    boto.TokenRetrievalError,
    boto.NoAuthTokenError,
    boto.RefreshWithMFAUnsupportedError,
    boto.UnknownCredentialError,
    boto.SSOError,
    getattr(boto, "LoginError", boto.SSOError),  # botocore has it since 1.41
)
_UNREACHED = (
    NotAnAnswer,
    boto.HTTPClientError,
    boto.ConnectionError,
    boto.ResponseStreamingError,
    ResponseParserError,
)
_MALFORMED = (
    boto.ParamValidationError,
    boto.ValidationError,
    boto.NoRegionError,
    boto.InvalidRegionError,
    boto.UnknownEndpointError,
    boto.EndpointProviderError,
    boto.UnknownServiceError,
)

_FIELDS = {
    "InvalidAMIID": "ImageId (the image; ORCH_AWS_IMAGE)",
    "InvalidAMIName": "ImageId (the image; ORCH_AWS_IMAGE)",
    "InvalidGroup": "SecurityGroupIds (ORCH_AWS_SECURITY_GROUP)",
    "InvalidSecurityGroupID": "SecurityGroupIds (ORCH_AWS_SECURITY_GROUP)",
    "InvalidSubnetID": "SubnetId (ORCH_AWS_SUBNET)",
    "InvalidSubnet": "SubnetId (ORCH_AWS_SUBNET)",
    "InvalidZone": "AvailabilityZone (zone)",
    "InvalidAvailabilityZone": "AvailabilityZone (zone)",
    "InvalidInstanceType": "InstanceType",
    "InvalidBlockDeviceMapping": "BlockDeviceMappings (resources.disk)",
    "InvalidUserData": "UserData",
    "InvalidTagKey": "TagSpecifications",
    "ParameterNotFound": "Name of the SSM parameter",
    "DefaultVpcDoesNotExist": "SubnetId (ORCH_AWS_SUBNET: this region has no default VPC)",
}
_FIELD_IN_TEXT = re.compile(
    r"(?:for parameter|parameter:|The parameter|the parameter) [`'\"]?([A-Za-z][\w.]*)"
)
_ACTION_IN_TEXT = re.compile(r"not authorized to perform:? ([a-z0-9-]+:\w+)")


@dataclass(frozen=True)
class Asked:
    """The request that failed. Used for the message only, never for the classification."""

    region: str
    instance_type: str = ""
    zone: str = ""
    spot: bool = False
    identity: str = ""


def code_of(error: BaseException) -> str:
    """Return the structured code: the one of AWS, or the name of botocore's exception."""
    if isinstance(error, ClientError):
        return str(error.response.get("Error", {}).get("Code", ""))
    return type(error).__name__


def classify(error: BaseException) -> Fault:
    """Return the fault of an exception of boto3."""
    if isinstance(error, ClientError):
        return _by_code(code_of(error), _status(error))
    if isinstance(error, _NO_CREDENTIALS):
        return Fault.AUTH
    if isinstance(error, _MALFORMED):
        return Fault.INVALID
    if isinstance(error, _UNREACHED):
        return Fault.TRANSIENT
    return Fault.UNKNOWN


def _by_code(code: str, status: int) -> Fault:
    known = FAULTS.get(code) or FAULTS.get(code.partition(".")[0])
    if known:
        return known
    if status >= 500 or status == 429:
        return Fault.TRANSIENT
    if code.startswith("Invalid"):
        return Fault.INVALID
    return Fault.AUTH if status in (401, 403) else Fault.UNKNOWN


def _status(error: ClientError) -> int:
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def provider_error(error: BaseException, asked: Asked) -> ProviderError:
    """Return the error with a message for users: the quota and where to raise it, the missing permission, or
    the invalid field.
    """
    fault, code = classify(error), code_of(error)
    tell = {
        Fault.CAPACITY: _no_capacity,
        Fault.QUOTA: _over_quota,
        Fault.AUTH: _account if code in _OF_THE_ACCOUNT else _not_allowed,
        Fault.INVALID: _refused,
    }.get(fault, _plain)
    message, next_command = tell(error, asked)
    told = ProviderError(fault, message, code=code, next_command=next_command)
    told.there_alone = code == _VALIDATED
    return told


def text_of(error: BaseException) -> str:
    if isinstance(error, ClientError):
        text = str(error.response.get("Error", {}).get("Message", "")).strip()
        return text.split(" Encoded authorization failure message:")[0] or str(error)
    if isinstance(error, ResponseParserError):  # its text is the whole answer
        return "the answer does not come from AWS, but from something between this computer and AWS"
    return str(error) or type(error).__name__


def _operation(error: BaseException) -> str:
    return error.operation_name if isinstance(error, ClientError) else ""


def _no_capacity(error: BaseException, asked: Asked) -> tuple[str, str | None]:
    what = (asked.instance_type or "machine") + (" (spot)" if asked.spot else "")
    return f"{asked.zone or asked.region} has no {what} now ({code_of(error)}: {text_of(error)})", None


def _over_quota(error: BaseException, asked: Asked) -> tuple[str, str | None]:
    limit = quota(asked.instance_type, spot=asked.spot, code=code_of(error))
    message = (
        f"The quota {limit.title()} of {asked.region} is used up ({code_of(error)}: {text_of(error)})\n"
        f"Request an increase at {limit.address(asked.region)}"
    )
    return message, limit.request(asked.region)


def _not_allowed(error: BaseException, asked: Asked) -> tuple[str, str | None]:
    if not _operation(error):
        return (
            f"There are no usable AWS credentials: {text_of(error)}",
            "aws configure    # or: aws sso login; then: orch doctor aws",
        )
    if code_of(error) in EXPIRED:
        return _expired(error)
    who = asked.identity or "The identity of these credentials"
    message = (
        f"{who} may not call {refused_action(error)} in {asked.region} ({code_of(error)}: {text_of(error)})\n"
        "The necessary permissions are listed in terraform/aws."
    )
    return message, "orch doctor aws"


def _account(error: BaseException, asked: Asked) -> tuple[str, str | None]:
    """Return the message and the remedy of a refusal because of the account: no permission is missing."""
    message, remedy = _OF_THE_ACCOUNT[code_of(error)]
    return f"{message.format(region=asked.region)} ({code_of(error)}: {text_of(error)})", remedy


def _expired(error: BaseException) -> tuple[str, str | None]:
    clock = " A wrong clock of this computer has the same effect." if _is_late(error) else ""
    message = f"The AWS credentials are expired: renew them.{clock} ({code_of(error)}: {text_of(error)})"
    return message, "aws sso login    # or renew them as you did before; then repeat the command"


def _is_late(error: BaseException) -> bool:
    return code_of(error) == "RequestExpired"


def refused_action(error: BaseException) -> str:
    """Return the refused permission as policies spell it: from the message of AWS, else from the
    operation.
    """
    named = _ACTION_IN_TEXT.search(text_of(error))
    operation = _operation(error)
    taken = (one.name for one in permissions.of("aws") if one.name.partition(":")[2] == operation)
    return named.group(1) if named else next(taken, operation)


def _refused(error: BaseException, asked: Asked) -> tuple[str, str | None]:
    code = code_of(error)
    named = _FIELD_IN_TEXT.search(text_of(error))
    field = _FIELDS.get(code.partition(".")[0]) or (named.group(1) if named else "")
    about = f" {field}" if field else ""
    operation = _operation(error) or "A call"
    return (
        f"{operation} in {asked.region} was refused for{about or ' what it asks'} ({code}: {text_of(error)})",
        None,
    )


def _plain(error: BaseException, asked: Asked) -> tuple[str, str | None]:
    what = _operation(error) or "AWS"
    return f"{what} in {asked.region} failed ({code_of(error)}: {text_of(error)})", None
