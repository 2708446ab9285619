"""Signed URLs and signed forms, judged as Cloud Storage does, at /bucket/object.

cloud.google.com/storage/docs/authentication/canonical-requests, …/authentication/signatures and
…/xml-api/post-object-forms: V4 signatures with the key of a service account; the policy, in base64, is what
is signed of a form; every field but policy, x-goog-signature, file and x-ignore-* needs a condition.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote, unquote

from werkzeug.wrappers import Request, Response

from tests.clouds.gcp.errors import ApiError
from tests.clouds.gcp.objects import Conditions, Store, Stored
from tests.clouds.gcp.world import Settings

_WEEK_S = 604800
_FREE = {"policy", "x-goog-signature", "file"}


def is_signed(request: Request) -> bool:
    """Whether this is a request to the XML API that is signed in its query, or a form."""
    return "X-Goog-Signature" in request.args or (
        request.method == "POST" and request.mimetype == "multipart/form-data"
    )


def answer(
    request: Request, store: Store, settings: Settings, media: Callable[[Stored], Response]
) -> Response:
    """`media` answers with the bytes of an object that the request asks for."""
    raw = str(request.environ.get("RAW_URI") or request.environ["REQUEST_URI"]).partition("?")[0]
    bucket, _, name = re.sub(r"^https?://[^/]+", "", raw).lstrip("/").partition("/")
    if request.method == "POST":
        return _posted(request, store, settings, unquote(bucket))
    if request.method != "GET":
        raise ApiError(501, "notImplemented", "Only GET and POST are emulated.")
    _judge_query(request, settings, f"/{bucket}/{name}")
    found = store.get(unquote(bucket), unquote(name), request.args.get("generation"), Conditions())
    return media(found)


def _judge_query(request: Request, settings: Settings, path: str) -> None:
    query = request.args.to_dict()
    given = query.pop("X-Goog-Signature")
    lasts = int(query["X-Goog-Expires"])
    if not 1 <= lasts <= _WEEK_S:
        raise ApiError(400, "invalid", "X-Goog-Expires must be less than a week.")
    signed = query["X-Goog-SignedHeaders"].split(";")
    pairs = sorted((quote(name, safe="-_.~"), quote(text, safe="-_.~")) for name, text in query.items())
    canonical = "\n".join(
        [
            request.method,
            path,
            "&".join(f"{name}={text}" for name, text in pairs),
            *[f"{name}:{request.headers.get(name, '').strip()}" for name in signed],
            "",
            ";".join(signed),
            "UNSIGNED-PAYLOAD",
        ]
    )
    email, _, scope = query["X-Goog-Credential"].partition("/")
    digest = hashlib.sha256(canonical.encode()).hexdigest()
    text = "\n".join(["GOOG4-RSA-SHA256", query["X-Goog-Date"], scope, digest])
    _require_signature(settings, email, text.encode(), given)
    begun = datetime.strptime(query["X-Goog-Date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC).timestamp()
    if _now(settings) > begun + lasts:
        raise ApiError(400, "ExpiredToken", "Invalid argument. The provided token has expired.")


def _posted(request: Request, store: Store, settings: Settings, bucket: str) -> Response:
    fields = {name.lower(): text for name, text in request.form.items()}
    file = request.files.get("file")
    if file is None or "policy" not in fields:
        raise ApiError(403, "AccessDenied", "Access denied.")
    data = file.read()
    email = fields.get("x-goog-credential", "").partition("/")[0]
    _require_signature(settings, email, fields["policy"].encode(), fields.get("x-goog-signature", ""))
    policy = json.loads(base64.b64decode(fields["policy"]))
    if _now(settings) > datetime.fromisoformat(policy["expiration"].replace("Z", "+00:00")).timestamp():
        raise ApiError(400, "ExpiredToken", "The provided policy document has expired.")
    fields["bucket"] = bucket
    covered = {"bucket"}
    for condition in policy["conditions"]:
        covered.add(_require_condition(condition, fields, len(data)))
    for name in set(fields) - covered - _FREE:
        if not name.startswith("x-ignore-"):
            raise ApiError(403, "AccessDenied", f"The policy has no condition of the field {name}.")
    store.put(bucket, fields["key"], data, {}, Conditions())
    return Response("", 204)


def _require_condition(condition: Any, fields: Mapping[str, str], size: int) -> str:
    """The field that a condition covers."""
    if isinstance(condition, dict):
        ((name, text),) = condition.items()
        condition = ["eq", f"${name}", text]
    how, name, text = condition
    if how == "content-length-range":
        if not int(name) <= size <= int(text):
            raise ApiError(400, "EntityTooLarge", "The upload is not of a size that the policy allows.")
        return "file"
    field = str(name).removeprefix("$").lower()
    found = fields.get(field, "")
    if found != text if how == "eq" else not found.startswith(text):
        raise ApiError(403, "AccessDenied", f"The policy's condition does not hold: {condition}")
    return field


def _require_signature(settings: Settings, email: str, text: bytes, given: str) -> None:
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import padding, rsa

    if email not in settings.signers:
        raise ApiError(403, "AccessDenied", "Access denied.")
    key = serialization.load_pem_public_key(settings.signers[email].encode())
    assert isinstance(key, rsa.RSAPublicKey)
    try:
        key.verify(bytes.fromhex(given), text, padding.PKCS1v15(), hashes.SHA256())
    except (InvalidSignature, ValueError) as wrong:
        message = "Access denied. The signature does not match."
        raise ApiError(403, "SignatureDoesNotMatch", message) from wrong


def _now(settings: Settings) -> float:
    return time.time() + settings.clock_ahead_s
