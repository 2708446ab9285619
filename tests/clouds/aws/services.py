"""Price List and Service Quotas, which moto has not, and the checksums that its S3 does not check."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import zlib
from collections.abc import Callable, Mapping
from typing import Any

from moto.ec2.models.instance_types import INSTANCE_TYPES

from tests.clouds.aws import market, reserved
from tests.clouds.aws.requests import Request, Response, as_json, error
from tests.clouds.aws.settings import ACCOUNT, SETTINGS

PRICING_REGIONS = ("us-east-1", "eu-central-1", "ap-south-1")


def answer(request: Request) -> Response | None:
    """The answer of a service of ours; None for moto's."""
    if request.service == "pricing":
        return _pricing(request)
    if request.service == "servicequotas":
        return _quotas(request)
    if request.service == "freetier":
        return _plan(request)
    if request.action == "DescribeCapacityReservations":
        return reserved.told(request)
    return None


def _plan(request: Request) -> Response:
    if request.action != "GetAccountPlanState":
        return error(request, 400, "ValidationException", f"{request.action} is not known here.")
    plan = "FREE" if SETTINGS.free_plan else "PAID"
    return as_json({"accountId": ACCOUNT, "accountPlanType": plan, "accountPlanStatus": "ACTIVE"})


def _pricing(request: Request) -> Response:
    asked: dict[str, Any] = json.loads(request.body or b"{}")
    if request.region not in PRICING_REGIONS:
        return error(request, 404, "UnknownEndpoint", f"There is no price list endpoint in {request.region}.")
    if asked.get("ServiceCode") != "AmazonEC2":
        return error(request, 400, "NotFoundException", "The specified resource can't be found.")
    if request.action == "DescribeServices":
        return as_json({"FormatVersion": "aws_v1", "Services": [{"ServiceCode": "AmazonEC2"}]})
    if request.action != "GetProducts":
        return error(request, 400, "InvalidParameterException", f"{request.action} is not known here.")
    filters = asked.get("Filters", [])
    if any(one.get("Type") != "TERM_MATCH" for one in filters):
        return error(request, 400, "InvalidParameterException", "Only TERM_MATCH is known here.")
    wanted = {one["Field"]: one["Value"] for one in filters}
    start, size = int(asked.get("NextToken") or 0), min(int(asked.get("MaxResults") or 100), 100)
    page: list[str] = []
    for number, product in enumerate(market.products(INSTANCE_TYPES, wanted)):
        if number >= start + size:
            return as_json({"FormatVersion": "aws_v1", "PriceList": page, "NextToken": str(start + size)})
        if number >= start:
            page.append(json.dumps(product))
    return as_json({"FormatVersion": "aws_v1", "PriceList": page})


def _quotas(request: Request) -> Response:
    asked: dict[str, Any] = json.loads(request.body or b"{}")
    default = request.action in ("GetAWSDefaultServiceQuota", "ListAWSDefaultServiceQuotas")
    if asked.get("ServiceCode") != "ec2":
        return error(
            request, 400, "NoSuchResourceException", f"There is no service {asked.get('ServiceCode')} here."
        )
    if request.action in ("GetServiceQuota", "GetAWSDefaultServiceQuota"):
        found = market.quota(asked.get("QuotaCode", ""), request.region, default=default)
        if found is None:
            return error(request, 400, "NoSuchResourceException", f"{asked.get('QuotaCode')} does not exist.")
        return as_json({"Quota": found})
    if request.action in ("ListServiceQuotas", "ListAWSDefaultServiceQuotas"):
        codes = market.quota_codes()
        start, size = int(asked.get("NextToken") or 0), min(int(asked.get("MaxResults") or 100), 100)
        found_page = [
            market.quota(code, request.region, default=default) for code in codes[start : start + size]
        ]
        more = {"NextToken": str(start + size)} if start + size < len(codes) else {}
        return as_json({"Quotas": found_page, **more})
    return error(request, 400, "IllegalArgumentException", f"{request.action} is not known here.")


# ---------------------------------------------------------------- S3

_DIGESTS: Mapping[str, Callable[[bytes], bytes]] = {
    "crc32": lambda data: zlib.crc32(data).to_bytes(4, "big"),
    "sha1": lambda data: hashlib.sha1(data).digest(),
    "sha256": lambda data: hashlib.sha256(data).digest(),
    "crc32c": lambda data: _crc32c(data).to_bytes(4, "big"),
}


def bad_digest(request: Request) -> Response | None:
    """The refusal of a body that is not what its checksums say."""
    if request.service != "s3" or request.action not in ("PutObject", "UploadPart"):
        return None
    body = request.body
    trailers: dict[str, str] = {}
    if "aws-chunked" in request.headers.get("content-encoding", ""):
        try:
            body, trailers = unchunked(request.body)
        except (ValueError, IndexError):
            return error(request, 400, "IncompleteBody", "The request body terminated unexpectedly")
    given = {**request.headers, **trailers}
    signed = given.get("x-amz-content-sha256", "")
    if len(signed) == 64 and signed != hashlib.sha256(request.body).hexdigest():
        message = "The provided 'x-amz-content-sha256' header does not match what was computed."
        return error(request, 400, "XAmzContentSHA256Mismatch", message)
    if "content-md5" in given and _decoded(given["content-md5"]) != hashlib.md5(body).digest():
        return error(
            request, 400, "BadDigest", "The Content-MD5 you specified did not match what we received."
        )
    for name, digest in _DIGESTS.items():
        value = given.get(f"x-amz-checksum-{name}")
        if value is None:
            continue
        if _decoded(value) is None:
            return error(
                request, 400, "InvalidRequest", f"Value for x-amz-checksum-{name} header is invalid."
            )
        if _decoded(value) != digest(body):
            message = f"The {name.upper()} you specified did not match the calculated checksum."
            return error(request, 400, "BadDigest", message)
    return None


def _decoded(value: str) -> bytes | None:
    try:
        return base64.b64decode(value, validate=True)
    except binascii.Error:
        return None


def unchunked(body: bytes) -> tuple[bytes, dict[str, str]]:
    """The content and the trailing headers of an aws-chunked body."""
    content, rest = b"", body
    while True:
        head, _, rest = rest.partition(b"\r\n")
        size = int(head.split(b";")[0], 16)
        if size == 0:
            break
        if len(rest) < size + 2:
            raise ValueError("short")
        content, rest = content + rest[:size], rest[size + 2 :]
    lines = [line for line in rest.decode().split("\r\n") if ":" in line]
    pairs = (line.split(":", 1) for line in lines)
    return content, {name.strip().lower(): value.strip() for name, value in pairs}


def _crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _CRC32C[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


def _table() -> list[int]:
    table = []
    for number in range(256):
        for _ in range(8):
            number = (number >> 1) ^ (0x82F63B78 if number & 1 else 0)
        table.append(number)
    return table


_CRC32C = _table()
