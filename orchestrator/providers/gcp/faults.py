"""Classify Google's errors as faults: by structured code, never by the text of a message. Pure.

An HTTP error and a failed operation have their codes in different places and spellings: `quotaExceeded` is
the reason of a 403, `QUOTA_EXCEEDED` the code of an operation. Both are read here from plain JSON. Messages
are only shown.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.errors import Fault

Json = Mapping[str, Any]

_BY_FAULT = {
    Fault.QUOTA: """
        QUOTA_EXCEEDED LIMIT_EXCEEDED QUOTA_LIMIT_EXCEEDED DAILY_LIMIT_EXCEEDED
        CPUS_ALL_REGIONS_QUOTA_EXCEEDED GPUS_ALL_REGIONS_QUOTA_EXCEEDED""",
    Fault.AUTH: """
        IAM_PERMISSION_DENIED PERMISSION_DENIED PERMISSIONS_ERROR FORBIDDEN AUTH_ERROR UNAUTHENTICATED
        UNAUTHORIZED INSUFFICIENT_PERMISSIONS ACCESS_DENIED ACCESS_NOT_CONFIGURED ACCESS_TOKEN_EXPIRED
        ACCESS_TOKEN_SCOPE_INSUFFICIENT ACCESS_TOKEN_TYPE_UNSUPPORTED CREDENTIALS_MISSING
        ACCOUNT_DISABLED ACCOUNT_DELETED ACCOUNT_DELETED_OR_DISABLED API_KEY_INVALID SERVICE_DISABLED
        UREQ_PROJECT_BILLING_NOT_FOUND UREQ_PROJECT_BILLING_NOT_OPEN
        SERVICE_NOT_ACTIVATED BILLING_DISABLED BILLING_NOT_ENABLED CONSUMER_INVALID USER_PROJECT_DENIED
        SERVICE_ACCOUNT_ACCESS_DENIED EXPIRED INVALID_CREDENTIALS""",
    Fault.CAPACITY: """
        ZONE_RESOURCE_POOL_EXHAUSTED ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS
        REGION_RESOURCE_POOL_EXHAUSTED RESOURCE_POOL_EXHAUSTED RESOURCE_POOL_EXHAUSTED_WITH_DETAILS
        VM_MIN_COUNT_NOT_REACHED INSUFFICIENT_CAPACITY INSUFFICIENT_RESOURCE_CAPACITY STOCKOUT
        UNSUPPORTED_OPERATION""",
    Fault.INVALID: """
        INVALID INVALID_PARAMETER INVALID_FIELD_VALUE INVALID_USAGE INVALID_ARGUMENT INVALID_JSON
        INVALID_VALUE INVALID_IMAGE INVALID_DISK_SIZE REQUIRED BAD_REQUEST PARSE_ERROR FIELD_CANNOT_BE_SET
        VPC_NOT_FOUND SUBNET_NOT_FOUND SUBNET_NOT_FOUND_FOR_VPC RESOURCE_NOT_FOUND NOT_FOUND
        CONDITION_NOT_MET CONSTRAINT_VIOLATION ORG_POLICY_VIOLATION DISK_SIZE_TOO_SMALL
        WRONG_SUBNET UNKNOWN_FIELD METHOD_NOT_ALLOWED FAILED_PRECONDITION NOT_IMPLEMENTED""",
    Fault.CONFLICT: """
        ALREADY_EXISTS RESOURCE_ALREADY_EXISTS DUPLICATE CONFLICT RESOURCE_IN_USE
        RESOURCE_IN_USE_BY_ANOTHER_RESOURCE""",
    Fault.TRANSIENT: """
        RATE_LIMIT_EXCEEDED USER_RATE_LIMIT_EXCEEDED CONCURRENT_LIMIT_EXCEEDED CONCURRENT_OPERATIONS_QUOTA
        RESOURCE_OPERATION_RATE_EXCEEDED OPERATION_RATE_EXCEEDED TOO_MANY_REQUESTS BACKEND_ERROR
        INTERNAL_ERROR INTERNAL SERVICE_UNAVAILABLE UNAVAILABLE RESOURCE_NOT_READY TIMEOUT
        DEADLINE_EXCEEDED RESOURCE_TEMPORARILY_UNAVAILABLE BACKEND_NOT_CONNECTED""",
}


def _spelt(code: str) -> str:
    """Normalise a code: quotaExceeded and QUOTA_EXCEEDED are the same."""
    return code.replace("_", "").lower()


_FAULTS = {_spelt(code): fault for fault, codes in _BY_FAULT.items() for code in codes.split()}

_API_DISABLED = frozenset({"servicedisabled", "accessnotconfigured", "servicenotactivated"})
_UNBILLED = frozenset(
    {"billingdisabled", "billingnotenabled", "ureqprojectbillingnotfound", "ureqprojectbillingnotopen"}
)
_VAGUE = frozenset({"forbidden", "permissiondenied"})
"""Codes that are less specific than another code in the same answer."""

# Several codes may come together (VM_MIN_COUNT_NOT_REACHED and QUOTA_EXCEEDED): the first of these counts.
_PRECEDENCE = (
    Fault.AUTH,
    Fault.QUOTA,
    Fault.CAPACITY,
    Fault.CONFLICT,
    Fault.INVALID,
    Fault.TRANSIENT,
    Fault.UNKNOWN,
)

_BY_STATUS = {
    400: Fault.INVALID,
    401: Fault.AUTH,
    403: Fault.AUTH,
    404: Fault.INVALID,
    405: Fault.INVALID,
    408: Fault.TRANSIENT,
    409: Fault.CONFLICT,
    410: Fault.INVALID,
    412: Fault.INVALID,
    413: Fault.INVALID,
    429: Fault.TRANSIENT,
    500: Fault.TRANSIENT,
    501: Fault.INVALID,
    502: Fault.TRANSIENT,
    503: Fault.TRANSIENT,
    504: Fault.TRANSIENT,
}


@dataclass(frozen=True)
class Quota:
    """The exceeded quota. `metric` as the console lists it; `region` is "" for a global quota."""

    metric: str
    region: str = ""
    limit: float | None = None


@dataclass(frozen=True)
class Refusal:
    """A refusal of Google. `code`: the decisive code; `words`: Google's own sentence; `permission`, `field`
    and `resource`: "" if the answer does not name them.
    """

    fault: Fault
    code: str
    words: str
    status: int = 0
    permission: str = ""
    field: str = ""
    resource: str = ""
    help: str = ""
    quota: Quota | None = None

    @property
    def is_disabled_api(self) -> bool:
        """Whether the API is not enabled in the project, or not everywhere yet."""
        return _spelt(self.code) in _API_DISABLED

    @property
    def is_unbilled(self) -> bool:
        """Whether the project has no billing account that pays."""
        return _spelt(self.code) in _UNBILLED


def of_answer(status: int, error: Json) -> Refusal:
    """Return the refusal in an HTTP error. `error`: the object under "error" of its body, {} without one."""
    entries = [entry for entry in error.get("errors", ()) if isinstance(entry, Mapping)]
    details = [detail for detail in error.get("details", ()) if isinstance(detail, Mapping)]
    codes = [str(entry["reason"]) for entry in entries if entry.get("reason")]
    codes += [str(detail["reason"]) for detail in details if detail.get("reason")]
    code, fault = _decide(codes)
    # The status decides if the reason is less specific, such as `required` of a 401.
    if fault is Fault.UNKNOWN or (status in (401, 429) and fault is Fault.INVALID):
        fault = _BY_STATUS.get(status, Fault.UNKNOWN)
    return Refusal(
        fault,
        code or str(error.get("status") or f"HTTP {status}"),
        str(error.get("message") or (entries[0].get("message") if entries else "") or f"HTTP {status}"),
        status,
        **_told(error, entries, details),
    )


def of_operation(operation: Json) -> Refusal | None:
    """Return why an operation failed; None if it did not, or is not finished.

    Its HTTP status is ignored, because it is 503 both for a stockout and for an outage: only codes count.
    """
    entries: Sequence[Json] = operation.get("error", {}).get("errors", ())
    if not entries:
        return None
    code, fault = _decide([str(entry.get("code", "")) for entry in entries])
    decisive = next((entry for entry in entries if entry.get("code") == code), entries[0])
    others = [entry for entry in entries if entry is not decisive]
    details = [detail for entry in (decisive, *others) for detail in _flat(entry.get("errorDetails", ()))]
    return Refusal(
        fault,
        code,
        str(decisive.get("message") or code),
        int(operation.get("httpErrorStatusCode") or 0),
        **_told(decisive, [decisive], details),
    )


def _decide(codes: Sequence[str]) -> tuple[str, Fault]:
    """Return the decisive code and its fault; UNKNOWN if no code is known."""
    known = [(code, _FAULTS.get(_spelt(code), Fault.UNKNOWN)) for code in codes if code]
    known.sort(key=lambda pair: (_PRECEDENCE.index(pair[1]), _spelt(pair[0]) in _VAGUE))
    return known[0] if known else ("", Fault.UNKNOWN)


def _flat(details: Sequence[Json]) -> Iterator[Json]:
    """Flatten an operation's errorDetails, each of which has its content under the name of its kind."""
    for detail in details:
        for kind in ("errorInfo", "quotaInfo", "help", "localizedMessage"):
            if isinstance(detail.get(kind), Mapping):
                yield detail[kind]


def _told(error: Json, entries: Sequence[Json], details: Sequence[Json]) -> dict[str, Any]:
    """Return further values for the message: from the structured details, else from Google's text."""
    words = " ".join(str(entry.get("message", "")) for entry in (error, *entries))
    metadata: dict[str, Any] = {}
    for detail in details:
        metadata.update(detail.get("metadata") or detail.get("metadatas") or {})
    return {
        "permission": str(metadata.get("permission") or _found(r"'([a-z]+(?:\.\w+)+)' permission", words)),
        "resource": str(metadata.get("resource") or ""),
        "field": _field(entries, details) or _found(r"[Ff]ield '([^']+)'", words),
        "help": _help(details),
        "quota": _quota(details, metadata),
    }


def _field(entries: Sequence[Json], details: Sequence[Json]) -> str:
    violations = [v for detail in details for v in detail.get("fieldViolations", ())]
    named = [str(v["field"]) for v in violations if v.get("field")]
    return (named + [str(entry["location"]) for entry in entries if entry.get("location")] + [""])[0]


def _help(details: Sequence[Json]) -> str:
    links = [link for detail in details for link in detail.get("links", ())]
    return next((str(link["url"]) for link in links if link.get("url")), "")


def _quota(details: Sequence[Json], metadata: Json) -> Quota | None:
    """Return the quota's name as in the console, such as NVIDIA_L4_GPUS, whatever name the answer used."""
    told = next((d for d in details if d.get("limitName") or d.get("metricName")), None)
    if told is None:
        if not metadata.get("quota_metric"):
            return None
        limit = metadata.get("quota_limit_value")
        metric = _console_name(str(metadata["quota_metric"]))
        return Quota(metric, str(metadata.get("quota_location", "")), float(limit) if limit else None)
    region = str((told.get("dimensions") or {}).get("region", "")).removeprefix("global")
    name = str(told.get("metricName") or told.get("limitName"))
    limit = told.get("limit")
    return Quota(_console_name(name), region, None if limit is None else float(limit))


def _console_name(name: str) -> str:
    """Convert compute.googleapis.com/nvidia_l4_gpus or NVIDIA-L4-GPUS-per-project-region to
    NVIDIA_L4_GPUS.
    """
    return name.rpartition("/")[2].partition("-per-project")[0].replace("-", "_").upper()


def _found(pattern: str, words: str) -> str:
    match = re.search(pattern, words)
    return match.group(1) if match else ""
