"""One request to the cloud as it came, and answers in the four shapes in which AWS speaks."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, unquote
from xml.sax.saxutils import escape

_JSON = {"ssm", "pricing", "servicequotas", "tagging", "logs", "freetier", "monitoring"}


@dataclass(frozen=True)
class Request:
    """`parameters` are what was asked: form fields, the JSON body's top fields, or bucket, key and query.

    `raw_path` is as it was sent, escapes and all.
    """

    method: str
    path: str
    service: str
    region: str
    action: str
    access_key: str
    parameters: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes
    raw_path: str = ""


@dataclass(frozen=True)
class Response:
    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes


def read(environ: Mapping[str, Any], body: bytes) -> Request:
    headers = {
        name[5:].replace("_", "-").lower(): str(value)
        for name, value in environ.items()
        if name.startswith("HTTP_")
    }
    headers["content-type"] = str(environ.get("CONTENT_TYPE", ""))
    query = dict(parse_qsl(environ.get("QUERY_STRING", ""), keep_blank_values=True))
    scope = _scope(headers.get("authorization", ""), query)
    access_key, region, service = scope
    path = unquote(environ.get("PATH_INFO", "/"))
    method = str(environ["REQUEST_METHOD"])
    if service in _JSON:
        action = headers.get("x-amz-target", "").rpartition(".")[2]
        parameters = _flat(json.loads(body or b"{}"))
    elif service == "s3":
        bucket, _, key = path.lstrip("/").partition("/")
        parameters = {**query, "bucket": bucket, "key": key}
        action = _s3_action(method, bucket, key, query, headers)
    else:
        parameters = {**query, **dict(parse_qsl(body.decode(errors="replace"), keep_blank_values=True))}
        action = parameters.get("Action", "")
    raw = str(environ.get("RAW_URI") or environ.get("REQUEST_URI") or "").partition("?")[0]
    return Request(method, path, service, region, action, access_key, parameters, headers, body, raw)


def _scope(authorization: str, query: Mapping[str, str]) -> tuple[str, str, str]:
    """Access key, region and service of the signature; a request without one is anonymous S3."""
    _, _, rest = authorization.partition("Credential=")
    credential = (rest.split(",")[0] if rest else query.get("X-Amz-Credential", "")).split("/")
    if len(credential) == 5:
        return credential[0], credential[2], credential[3].lower()
    return "", "us-east-1", "s3"


def _flat(value: Any) -> dict[str, str]:
    if not isinstance(value, dict):
        return {}
    return {name: item if isinstance(item, str) else json.dumps(item) for name, item in value.items()}


def _s3_action(
    method: str, bucket: str, key: str, query: Mapping[str, str], headers: Mapping[str, str]
) -> str:
    if not bucket:
        return "ListBuckets"
    if not key:
        return _bucket_action(method, query)
    if method == "POST":
        return "CreateMultipartUpload" if "uploads" in query else "CompleteMultipartUpload"
    if method == "PUT" and "partNumber" in query:
        return "UploadPartCopy" if "x-amz-copy-source" in headers else "UploadPart"
    if method == "PUT" and "x-amz-copy-source" in headers:
        return "CopyObject"
    if "tagging" in query:
        return f"{method.title()}ObjectTagging"
    if method == "DELETE":
        return "AbortMultipartUpload" if "uploadId" in query else "DeleteObject"
    if method == "GET" and "uploadId" in query:
        return "ListParts"
    return {"GET": "GetObject", "HEAD": "HeadObject", "PUT": "PutObject"}.get(method, method)


def _bucket_action(method: str, query: Mapping[str, str]) -> str:
    if method == "POST":
        return "DeleteObjects" if "delete" in query else "PostObject"
    for name in (
        "versioning",
        "encryption",
        "lifecycle",
        "policy",
        "location",
        "tagging",
        "publicAccessBlock",
    ):
        if name in query:
            return f"{method.title()}Bucket{name[0].upper()}{name[1:]}"
    if method == "GET":
        if "versions" in query:
            return "ListObjectVersions"
        if "uploads" in query:
            return "ListMultipartUploads"
        return "ListObjectsV2" if query.get("list-type") == "2" else "ListObjects"
    return {"HEAD": "HeadBucket", "PUT": "CreateBucket", "DELETE": "DeleteBucket"}.get(method, method)


def error(request: Request, status: int, code: str, message: str) -> Response:
    """The error as this service sends it."""
    identity = str(uuid.uuid4())
    if request.service in _JSON:
        body = json.dumps({"__type": code, "message": message}).encode()
        headers = [("Content-Type", "application/x-amz-json-1.1"), ("x-amzn-ErrorType", code)]
    elif request.service == "ec2":
        text = f"<Code>{escape(code)}</Code><Message>{escape(message)}</Message>"
        body = _xml(
            f"<Response><Errors><Error>{text}</Error></Errors><RequestID>{identity}</RequestID></Response>"
        )
        headers = [("Content-Type", "text/xml;charset=UTF-8")]
    elif request.service == "s3":
        resource = f"<Key>{escape(request.parameters.get('key', ''))}</Key>"
        text = f"<Error><Code>{escape(code)}</Code><Message>{escape(message)}</Message>{resource}"
        body = _xml(f"{text}<RequestId>{identity}</RequestId><HostId>h</HostId></Error>")
        headers = [("Content-Type", "application/xml")]
    else:
        kind = "Sender" if status < 500 else "Receiver"
        text = f"<Type>{kind}</Type><Code>{escape(code)}</Code><Message>{escape(message)}</Message>"
        body = _xml(f"<ErrorResponse><Error>{text}</Error><RequestId>{identity}</RequestId></ErrorResponse>")
        headers = [("Content-Type", "text/xml")]
    if request.method == "HEAD":
        body = b""
    return Response(status, (*headers, ("x-amzn-RequestId", identity)), body)


def as_json(value: Any, status: int = 200) -> Response:
    body = json.dumps(value, default=str).encode()
    return Response(status, (("Content-Type", "application/x-amz-json-1.1"),), body)


def as_xml(action: str, namespace: str, result: str) -> Response:
    """A query protocol's answer; `result` is XML text."""
    text = f"<{action}Result>{result}</{action}Result><ResponseMetadata><RequestId>{uuid.uuid4()}</RequestId>"
    body = _xml(f'<{action}Response xmlns="{namespace}">{text}</ResponseMetadata></{action}Response>')
    return Response(200, (("Content-Type", "text/xml"),), body)


def _xml(text: str) -> bytes:
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{text}'.encode()
