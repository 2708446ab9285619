"""Presigned requests and posted forms, judged as S3 does; moto looks at neither signature nor policy.

docs.aws.amazon.com: "Authenticating requests: using query parameters" (sigv4-query-string-auth) and
"Creating a POST policy" (sigv4-HTTPPOSTConstructPolicy): every field of the form needs a condition but
policy, x-amz-signature, file and x-ignore-*; the length is that of the file.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from email import message_from_bytes
from typing import Any
from urllib.parse import quote

from tests.clouds.aws.requests import Request, Response, error
from tests.clouds.aws.settings import SECRET_KEY, SETTINGS

_WEEK_S = 604800
_FREE = {"policy", "x-amz-signature", "file"}


def refusal(request: Request) -> Response | None:
    """The refusal of a request that is signed in its query or its form; None for a sound one."""
    if request.service != "s3":
        return None
    try:
        if "X-Amz-Signature" in request.parameters:
            _judge_query(request)
        elif request.action == "PostObject":
            _judge_form(request)
    except _Refused as refused:
        return error(request, refused.status, refused.code, str(refused))
    return None


class _Refused(Exception):
    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status, self.code = status, code


def _judge_query(request: Request) -> None:
    query = {name: text for name, text in request.parameters.items() if name not in ("bucket", "key")}
    lasts = int(query["X-Amz-Expires"])
    if not 1 <= lasts <= _WEEK_S:
        raise _Refused(400, "AuthorizationQueryParametersError", "X-Amz-Expires must be less than a week")
    signed = query["X-Amz-SignedHeaders"].split(";")
    for name in request.headers:
        if name in ("if-match", "range") and name not in signed and name != "range":
            raise _Refused(403, "AccessDenied", "There were headers present which were not signed")
    given = query.pop("X-Amz-Signature")
    canonical = "\n".join(
        [
            request.method,
            request.raw_path,
            "&".join(
                f"{quote(name, safe='-_.~')}={quote(text, safe='-_.~')}"
                for name, text in sorted(query.items())
            ),
            *[f"{name}:{request.headers.get(name, '').strip()}" for name in signed],
            "",
            ";".join(signed),
            "UNSIGNED-PAYLOAD",
        ]
    )
    scope = query["X-Amz-Credential"].partition("/")[2]
    text = "\n".join(
        ["AWS4-HMAC-SHA256", query["X-Amz-Date"], scope, hashlib.sha256(canonical.encode()).hexdigest()]
    )
    _require_signature(scope, text, given)
    begun = datetime.strptime(query["X-Amz-Date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC).timestamp()
    if _now() > begun + lasts:
        raise _Refused(403, "AccessDenied", "Request has expired")


def _judge_form(request: Request) -> None:
    fields, size = _form(request)
    if "policy" not in fields:
        raise _Refused(403, "AccessDenied", "Access Denied")
    scope = fields.get("x-amz-credential", "").partition("/")[2]
    _require_signature(scope, fields["policy"], fields.get("x-amz-signature", ""))
    policy = json.loads(base64.b64decode(fields["policy"]))
    if _now() > datetime.fromisoformat(policy["expiration"].replace("Z", "+00:00")).timestamp():
        raise _Refused(403, "AccessDenied", "Invalid according to Policy: Policy expired.")
    fields["bucket"] = request.parameters["bucket"]
    covered = {"bucket"}
    for condition in policy["conditions"]:
        covered.add(_require_condition(condition, fields, size))
    for name in set(fields) - covered - _FREE:
        if not name.startswith("x-ignore-"):
            raise _Refused(403, "AccessDenied", f"Invalid according to Policy: Extra input fields: {name}")


def _require_condition(condition: Any, fields: Mapping[str, str], size: int) -> str:
    """The field that a condition covers."""
    if isinstance(condition, dict):
        ((name, text),) = condition.items()
        condition = ["eq", f"${name}", text]
    how, name, text = condition
    if how == "content-length-range":
        if size < int(name):
            raise _Refused(400, "EntityTooSmall", "Your proposed upload is smaller than the minimum allowed")
        if size > int(text):
            raise _Refused(400, "EntityTooLarge", "Your proposed upload exceeds the maximum allowed size")
        return "file"
    field = str(name).removeprefix("$").lower()
    found = fields.get(field, "")
    if found != text if how == "eq" else not found.startswith(text):
        raise _Refused(
            403, "AccessDenied", f"Invalid according to Policy: Policy Condition failed: {condition}"
        )
    return field


def _form(request: Request) -> tuple[dict[str, str], int]:
    """The fields of a form by lower-case names, and the size of its file, which must come last."""
    head = b"Content-Type: " + request.headers["content-type"].encode() + b"\r\n\r\n"
    parts = message_from_bytes(head + request.body).get_payload()
    if not isinstance(parts, list):
        raise _Refused(400, "MalformedPOSTRequest", "The body of your POST request is not well-formed")
    boundary = request.headers["content-type"].partition("boundary=")[2].strip('"').encode()
    raw = request.body.split(b"--" + boundary)[1:-1]
    fields: dict[str, str] = {}
    size = -1
    for part, content in zip(parts, raw, strict=True):
        name = str(part.get_param("name", header="content-disposition")).lower()
        body = content.partition(b"\r\n\r\n")[2].removesuffix(b"\r\n")
        if size >= 0:
            raise _Refused(400, "InvalidArgument", "POST requires exactly one file upload, as the last field")
        if name == "file":
            size = len(body)
        else:
            fields[name] = body.decode()
    if size < 0:
        raise _Refused(400, "InvalidArgument", "POST requires exactly one file upload per request.")
    return fields, size


def _require_signature(scope: str, text: str, given: str) -> None:
    key = b"AWS4" + SECRET_KEY.encode()
    for part in scope.split("/"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    if not hmac.compare_digest(hmac.new(key, text.encode(), hashlib.sha256).hexdigest(), given):
        message = "The request signature we calculated does not match the signature you provided."
        raise _Refused(403, "SignatureDoesNotMatch", message)


def _now() -> float:
    return time.time() + SETTINGS.clock_ahead_s
