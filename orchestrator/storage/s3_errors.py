"""Translate errors of boto3 to StorageError, by code and status, never by text."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from orchestrator.errors import (
    Changed,
    Corrupt,
    Missing,
    StorageDenied,
    StorageError,
    StorageFault,
    StorageUnreachable,
)

from .bucket import Anything

_AUTH = {
    "ExpiredToken",
    "ExpiredTokenException",
    "InvalidAccessKeyId",
    "InvalidToken",
    "RequestTimeTooSkewed",
    "SignatureDoesNotMatch",
    "TokenRefreshRequired",
    "UnrecognizedClientException",
}
_BUSY = {
    "BandwidthLimitExceeded",
    "ConditionalRequestConflict",
    "InternalError",
    "OperationAborted",
    "RequestLimitExceeded",
    "RequestTimeout",
    "ServiceUnavailable",
    "SlowDown",
    "Throttling",
    "ThrottlingException",
}
_REGION = {"AuthorizationHeaderMalformed", "IllegalLocationConstraintException", "PermanentRedirect"}


@contextmanager
def asking(
    url: str, bucket: str, name: str, expected: str | Anything | None, *, absent_is_none: bool = False
) -> Iterator[None]:
    """Translate what boto3 raises in the block to StorageError.

    With `absent_is_none`, an absent object ends the block without an error.
    """
    from botocore.exceptions import BotoCoreError, ClientError
    from botocore.parsers import ResponseParserError

    try:
        yield
    except ClientError as error:
        refused = _refused(error.response, url, bucket, name, expected)
        if not (absent_is_none and isinstance(refused, Missing)):
            raise refused from error
    except (BotoCoreError, ResponseParserError, LookupError, ValueError) as error:
        raise _failed(error, url, name) from error


def _refused(
    response: Any, url: str, bucket: str, name: str, expected: str | Anything | None
) -> StorageError:
    code = str(response.get("Error", {}).get("Code", ""))
    status = int(response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    if code == "NoSuchBucket" or (status == 404 and not name):
        message = f"The bucket {bucket} of {url} does not exist."
        return StorageError(StorageFault.BUCKET, message, code=code, next_command=f"aws s3 mb s3://{bucket}")
    if code == "PreconditionFailed" or status == 412:
        return Changed(url, name, expected=None if isinstance(expected, Anything) else expected)
    if code == "NoSuchUpload":
        return StorageError(
            StorageFault.UNKNOWN, f"The upload of {name} to {url} no longer exists.", code=code
        )
    if code in _AUTH or status == 401:
        return _not_proven(url, code)
    if code in _BUSY or status in (429, 500, 502, 503, 504):
        message = f"{url} is throttling requests, or is temporarily unavailable ({code or status})."
        return StorageUnreachable(StorageFault.THROTTLED, message, code=code)
    if code in _REGION or status == 301:
        message = (
            f"The bucket {bucket} is in another region ({code or status}), which could not be determined."
        )
        return StorageError(
            StorageFault.REGION,
            message,
            code=code,
            next_command=f"aws s3api get-bucket-location --bucket {bucket}",
        )
    if status == 403:
        return _not_allowed(url, name, code)
    if status == 404:
        return Missing(url, name)
    if code in ("BadDigest", "XAmzContentSHA256Mismatch", "IncompleteBody"):
        return Corrupt(url, name, f"it was changed during transfer ({code}); nothing was written.")
    return StorageError(StorageFault.UNKNOWN, f"{url} refused {name}: {code or status}.", code=code)


def _not_proven(url: str, code: str) -> StorageDenied:
    return StorageDenied(
        StorageFault.AUTH,
        f"The credentials for {url} are missing, wrong or expired ({code}).",
        code=code,
        next_command="aws sts get-caller-identity",
    )


def _not_allowed(url: str, name: str, code: str) -> StorageDenied:
    return StorageDenied(
        StorageFault.DENIED,
        f"The credentials may not do this with {name or 'the bucket'} in {url} ({code}): they need "
        "s3:ListBucket on the bucket, and s3:GetObject, s3:PutObject, s3:DeleteObject and "
        "s3:AbortMultipartUpload on its objects. A bucket with requester pays gives the same error unless "
        "its data entry has requester_pays: true.",
        code=code,
        next_command="aws sts get-caller-identity",
    )


def _failed(error: Exception, url: str, name: str) -> StorageError:
    from botocore import exceptions

    kind = type(error).__name__
    unproven = (
        exceptions.NoCredentialsError,
        exceptions.PartialCredentialsError,
        exceptions.CredentialRetrievalError,
        exceptions.ProfileNotFound,
        exceptions.TokenRetrievalError,
        exceptions.SSOError,
    )
    if isinstance(error, unproven):
        return _not_proven(url, kind)
    if isinstance(error, exceptions.FlexibleChecksumError):
        return Corrupt(url, name, "it does not match the checksum that was sent with it.")
    if isinstance(
        error,
        (exceptions.HTTPClientError, exceptions.IncompleteReadError, exceptions.EndpointConnectionError),
    ):
        return StorageUnreachable(
            StorageFault.UNREACHABLE, f"{url} did not answer, or broke the connection ({kind}).", code=kind
        )
    return StorageError(StorageFault.UNKNOWN, f"{url} refused {name}: {kind}.", code=kind)
