"""Who asks and whether they may: one user, one access key, one policy.

Of a policy, Effect, Action and NotAction are obeyed; Resource is not looked at, and a statement with a
Condition counts where it allows and does not where it denies.
"""

from __future__ import annotations

import base64
import fnmatch
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from xml.sax.saxutils import escape

from tests.clouds.aws.requests import Request, Response, as_xml, error
from tests.clouds.aws.settings import ACCOUNT, SETTINGS, USER

ARN = f"arn:aws:iam::{ACCOUNT}:user/{USER}"
_FREE = {"sts:GetCallerIdentity"}
_S3 = {
    "HeadObject": "GetObject",
    "ListObjectsV2": "ListBucket",
    "ListObjects": "ListBucket",
    "HeadBucket": "ListBucket",
    "UploadPart": "PutObject",
    "CreateMultipartUpload": "PutObject",
    "CompleteMultipartUpload": "PutObject",
    "CopyObject": "PutObject",
    "DeleteObjects": "DeleteObject",
    "ListBuckets": "ListAllMyBuckets",
    "ListObjectVersions": "ListBucketVersions",
}
_TAGGED = ("CreateSecurityGroup", "CreatePlacementGroup", "CreateImage")
_PREFIX = {"monitoring": "cloudwatch"}
"""Where IAM names a service otherwise than its signature does."""
_QUERY = {
    "sts": "https://sts.amazonaws.com/doc/2011-06-15/",
    "iam": "https://iam.amazonaws.com/doc/2010-05-08/",
}


def refusal(request: Request) -> Response | None:
    """The answer to one who may not do this; None to one who may."""
    if request.service == "s3" and not request.access_key:
        return None
    if request.access_key != SETTINGS.access_key:
        return _unknown_key(request)
    denied = [action for action in needed(request) if decision(action) != "allowed"]
    return _denied(request, denied[0]) if denied else None


def needed(request: Request) -> Sequence[str]:
    """The IAM actions that a request needs."""
    action = _S3.get(request.action, request.action) if request.service == "s3" else request.action
    found = [f"{_PREFIX.get(request.service, request.service)}:{action}"]
    if request.action in _TAGGED and _tags(request):
        found.append("ec2:CreateTags")
    if request.action == "RunInstances":
        if _tags(request):
            found.append("ec2:CreateTags")
        if any(name.startswith("IamInstanceProfile.") for name in request.parameters):
            found.append("iam:PassRole")
    return [name for name in found if name not in _FREE]


def _tags(request: Request) -> bool:
    return any(name.startswith("TagSpecification.") for name in request.parameters)


def decision(action: str) -> str:
    """allowed, implicitDeny or explicitDeny."""
    if SETTINGS.policy is None:
        return "allowed"
    statements = _listed(SETTINGS.policy.get("Statement", []))
    hits = [statement for statement in statements if _names(statement, action)]
    if any(one.get("Effect") == "Deny" and not one.get("Condition") for one in hits):
        return "explicitDeny"
    return "allowed" if any(one.get("Effect") == "Allow" for one in hits) else "implicitDeny"


def _names(statement: Mapping[str, Any], action: str) -> bool:
    if "NotAction" in statement:
        return not _any(statement["NotAction"], action)
    return _any(statement.get("Action", []), action)


def _any(patterns: Any, action: str) -> bool:
    return any(fnmatch.fnmatchcase(action.lower(), str(one).lower()) for one in _listed(patterns))


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]


def _unknown_key(request: Request) -> Response:
    invalid = "The security token included in the request is invalid."
    if request.service == "ec2":
        message = "AWS was not able to validate the provided access credentials"
        return error(request, 401, "AuthFailure", message)
    if request.service == "s3":
        message = "The AWS Access Key Id you provided does not exist in our records."
        return error(request, 403, "InvalidAccessKeyId", message)
    if request.service in _QUERY:
        return error(request, 403, "InvalidClientTokenId", invalid)
    return error(request, 400, "UnrecognizedClientException", invalid)


def _denied(request: Request, action: str) -> Response:
    why = "because no identity-based policy allows the"
    if decision(action) == "explicitDeny":
        why = "with an explicit deny in an identity-based policy for the"
    text = f"User: {ARN} is not authorized to perform: {action} {{}}{why} {action} action"
    if request.service == "ec2":
        resource = f"on resource: arn:aws:ec2:{request.region}:{ACCOUNT}:instance/* "
        message = f"You are not authorized to perform this operation. {text.format(resource)}."
        return error(
            request,
            403,
            "UnauthorizedOperation",
            f"{message} Encoded authorization failure message: {encoded(action)}",
        )
    if request.service == "s3":
        return error(request, 403, "AccessDenied", text.format(""))
    if request.service in _QUERY:
        return error(request, 403, "AccessDenied", text.format("on resource: * "))
    return error(request, 400, "AccessDeniedException", text.format("on resource: * "))


def encoded(action: str) -> str:
    """An authorization failure message, as only sts:DecodeAuthorizationMessage can read it."""
    facts = {
        "allowed": False,
        "explicitDeny": decision(action) == "explicitDeny",
        "matchedStatements": {"items": []},
        "failures": {"items": []},
        "context": {"principal": {"id": "AIDATESTCLOUD", "arn": ARN}, "action": action, "resource": "*"},
    }
    return base64.urlsafe_b64encode(json.dumps(facts).encode()).decode()


def answer(request: Request) -> Response | None:
    """What STS and IAM say of all this; None for what moto answers."""
    if request.service == "sts" and request.action == "GetCallerIdentity":
        result = f"<Arn>{ARN}</Arn><UserId>AIDATESTCLOUD</UserId><Account>{ACCOUNT}</Account>"
        return as_xml(request.action, _QUERY["sts"], result)
    if request.service == "sts" and request.action == "DecodeAuthorizationMessage":
        return _decoded(request)
    if request.service == "iam" and request.action == "SimulatePrincipalPolicy":
        return _simulated(request)
    return None


def _decoded(request: Request) -> Response:
    try:
        text = base64.urlsafe_b64decode(request.parameters.get("EncodedMessage", "")).decode()
        json.loads(text)
    except ValueError:
        return error(request, 400, "InvalidAuthorizationMessageException", "The message is not one.")
    return as_xml(request.action, _QUERY["sts"], f"<DecodedMessage>{escape(text)}</DecodedMessage>")


def _simulated(request: Request) -> Response:
    source = request.parameters.get("PolicySourceArn", "")
    if not source.startswith("arn:aws:iam::"):
        return error(
            request, 400, "InvalidInput", f"Invalid Entity Arn: {source} does not clearly define entity type"
        )
    if source != ARN:
        return error(request, 404, "NoSuchEntity", f"The user or role {source} cannot be found.")
    names = [value for name, value in request.parameters.items() if name.startswith("ActionNames.member.")]
    members = "".join(_evaluated(name) for name in names)
    result = f"<IsTruncated>false</IsTruncated><EvaluationResults>{members}</EvaluationResults>"
    return as_xml(request.action, _QUERY["iam"], result)


def _evaluated(action: str) -> str:
    fields: Iterable[tuple[str, str]] = (
        ("EvalActionName", action),
        ("EvalResourceName", "*"),
        ("EvalDecision", decision(action)),
    )
    text = "".join(f"<{name}>{escape(value)}</{name}>" for name, value in fields)
    return f"<member>{text}<MatchedStatements/><MissingContextValues/></member>"
