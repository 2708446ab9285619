"""Translate errors of Google's libraries to StorageError, by status and reason, never by text."""

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

_LOGIN = "gcloud auth application-default login"
_BUSY = (408, 429, 500, 502, 503, 504)
_BUSY_REASONS = {"rateLimitExceeded", "userRateLimitExceeded", "backendError"}


@contextmanager
def asking(url: str, bucket: str, name: str, expected: str | Anything | None) -> Iterator[None]:
    """Translate what Google's libraries raise in the block to StorageError."""
    import requests
    from google.api_core.exceptions import GoogleAPICallError, RetryError
    from google.auth.exceptions import GoogleAuthError, TransportError
    from google.cloud.storage.exceptions import DataCorruption, InvalidResponse

    try:
        yield
    except GoogleAPICallError as error:
        raise _refused(int(error.code or 0), _reason(error), url, bucket, name, expected) from error
    except InvalidResponse as error:
        raise _refused(
            int(error.response.status_code), _reason(error), url, bucket, name, expected
        ) from error
    except DataCorruption as error:
        raise Corrupt(url, name, "its checksum differs on the server.") from error
    except (requests.exceptions.RequestException, ConnectionError, TransportError, RetryError) as error:
        kind = type(error).__name__
        message = f"{url} did not answer, or broke the connection ({kind})."
        raise StorageUnreachable(StorageFault.UNREACHABLE, message, code=kind) from error
    except GoogleAuthError as error:
        raise _not_proven(url, type(error).__name__) from error
    except (ValueError, TypeError, LookupError) as error:  # the answer does not come from Cloud Storage
        kind = type(error).__name__
        raise StorageError(
            StorageFault.UNKNOWN, f"{url} gave an invalid answer ({kind}).", code=kind
        ) from error


def _reason(error: Any) -> str:
    """Return the reason in a JSON answer; for uploads and downloads only the answer contains it."""
    try:
        errors = getattr(error, "errors", None) or error.response.json()["error"]["errors"]
        return str(errors[0]["reason"])
    except (AttributeError, ValueError, LookupError, TypeError):
        return ""


def _refused(
    status: int, reason: str, url: str, bucket: str, name: str, expected: str | Anything | None
) -> StorageError:
    code = reason or str(status)
    if status == 404 and not name:
        message = f"The bucket {bucket} of {url} does not exist."
        return StorageError(
            StorageFault.BUCKET,
            message,
            code=code,
            next_command=f"gcloud storage buckets create gs://{bucket}",
        )
    if status == 404:
        return Missing(url, name)
    if status == 412:
        return Changed(url, name, expected=None if isinstance(expected, Anything) else expected)
    if status == 401:
        return _not_proven(url, code)
    if status in _BUSY or reason in _BUSY_REASONS:
        message = f"{url} is throttling requests, or is temporarily unavailable ({code})."
        return StorageUnreachable(StorageFault.THROTTLED, message, code=code)
    if status == 400 and reason in ("required", "userProjectMissing"):
        return StorageError(
            StorageFault.REQUESTER_PAYS,
            f"{url} bills its readers (requester pays), and the profile does not accept that cost.",
            code=code,
            next_command="add `requester_pays: true` to this entry of data, to pay for it",
        )
    if status == 403:
        return StorageDenied(
            StorageFault.DENIED,
            f"The credentials may not do this with {name or 'the bucket'} in {url} ({code}): they need "
            "the role roles/storage.objectUser on it, and for requester pays also serviceusage.services.use "
            "on the project that pays.",
            code=code,
            next_command=f"gcloud storage buckets get-iam-policy gs://{bucket}",
        )
    return StorageError(StorageFault.UNKNOWN, f"{url} refused {name}: {code}.", code=code)


def no_payer(url: str) -> StorageError:
    """Return the error for a bucket with requester pays, if no project that pays is configured."""
    return StorageError(
        StorageFault.REQUESTER_PAYS,
        f"{url} bills its readers (requester pays), and no project that pays is configured.",
        next_command="export GOOGLE_CLOUD_PROJECT=PROJECT    # PROJECT: the one that pays",
    )


def _not_proven(url: str, code: str) -> StorageDenied:
    return StorageDenied(
        StorageFault.AUTH,
        f"The credentials for {url} are missing, wrong or expired ({code}).",
        code=code,
        next_command=_LOGIN,
    )
