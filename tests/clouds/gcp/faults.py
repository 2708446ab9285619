"""Scripted faults: what befalls which of the next calls.

A fault is a JSON object:
  method        compute.instances.insert, storage.objects.insert, … ("*" for any)
  zone          only in this zone (or bucket, for storage); absent: anywhere
  kind          see KINDS
  times         how many calls it befalls (1)
  after         how many matching calls pass before it (0)
  after_effect  false: the call is answered so and not carried out; true: carried out, and its answer lost
  message, metric, limit, delay_s  details of some kinds
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.clouds.gcp.errors import ApiError, Json, OperationError


@dataclass
class Fault:
    method: str
    kind: str
    zone: str | None = None
    times: int = 1
    after: int = 0
    after_effect: bool = False
    message: str = ""
    metric: str = "GPUS_ALL_REGIONS"
    limit: float = 0.0
    delay_s: float = 0.0

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ApiError(400, "invalid", f"No such fault: {self.kind!r}. Known: {', '.join(sorted(KINDS))}")

    def matches(self, method: str, zone: str | None) -> bool:
        return self.method in ("*", method) and self.zone in (None, zone)


@dataclass(frozen=True)
class Place:
    """Where a fault strikes, for its texts."""

    project: str
    zone: str
    resource: str

    @property
    def region(self) -> str:
        return self.zone.rpartition("-")[0]


class Faults:
    """The faults to come, in the order in which they were scripted. Safe for threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._coming: list[Fault] = []

    def add(self, *faults: Fault) -> None:
        with self._lock:
            self._coming += faults

    def clear(self) -> None:
        with self._lock:
            self._coming.clear()

    def coming(self) -> list[Fault]:
        with self._lock:
            return list(self._coming)

    def take(self, method: str, zone: str | None) -> Fault | None:
        """The fault that befalls this call, if one does."""
        with self._lock:
            for fault in self._coming:
                if not fault.matches(method, zone):
                    continue
                if fault.after:
                    fault.after -= 1
                    continue
                fault.times -= 1
                if fault.times <= 0:
                    self._coming.remove(fault)
                return fault
        return None


def _stockout(fault: Fault, place: Place) -> OperationError:
    message = fault.message or (
        f"The zone '{_zone_path(place)}' does not have enough resources available to fulfill the request."
        "  Try a different zone, or try again later."
    )
    return OperationError("ZONE_RESOURCE_POOL_EXHAUSTED", message, (503, "SERVICE UNAVAILABLE"))


def _stockout_with_details(fault: Fault, place: Place) -> OperationError:
    message = fault.message or (
        f"The zone '{_zone_path(place)}' does not have enough resources available to fulfill the request,"
        " '(resource type:compute)'."
    )
    info = {
        "reason": "resource_availability",
        "domain": "compute.googleapis.com",
        "metadatas": {"zone": place.zone, "vmType": "g2-standard-4", "attachment": "nvidia-l4=1"},
    }
    help_ = {"links": [{"description": "Troubleshooting documentation", "url": _HELP}]}
    local = {
        "locale": "en-US",
        "message": f"A VM instance is currently unavailable in the {place.zone} zone.",
    }
    details: list[Json] = [{"help": help_}, {"localizedMessage": local}, {"errorInfo": info}]
    code = "ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS"
    return OperationError(code, message, (503, "SERVICE UNAVAILABLE"), details)


def quota_exceeded(metric: str, limit: float, place: Place) -> OperationError:
    """The operation error of a quota; those of the project as a whole are of no region."""
    everywhere = metric.endswith("_ALL_REGIONS") or not place.region
    where = "globally" if everywhere else f"in region {place.region}"
    name = f"{metric.replace('_', '-')}-per-project" + ("" if everywhere else "-region")
    quota = {
        "metricName": f"compute.googleapis.com/{metric.lower()}",
        "limitName": name,
        "dimensions": {"region": "global" if everywhere else place.region},
        "limit": limit,
    }
    return OperationError(
        "QUOTA_EXCEEDED",
        f"Quota '{metric}' exceeded.  Limit: {limit} {where}.",
        (403, "FORBIDDEN"),
        [{"quotaInfo": quota}, {"help": {"links": [{"description": "Quotas", "url": _QUOTAS}]}}],
    )


def _internal(fault: Fault, place: Place) -> OperationError:
    message = (
        fault.message or f"Internal error. Please try again or contact Google Support. (Code: '{place.zone}')"
    )
    return OperationError("INTERNAL_ERROR", message, (500, "INTERNAL SERVER ERROR"))


def _not_ready(fault: Fault, place: Place) -> OperationError:
    message = fault.message or f"The resource '{place.resource}' is not ready"
    return OperationError("RESOURCE_NOT_READY", message, (400, "BAD REQUEST"))


def _preempted_in_creation(fault: Fault, place: Place) -> OperationError:
    message = fault.message or f"Instance '{place.resource}' creation failed: The instance was preempted."
    return OperationError("UNSUPPORTED_OPERATION", message, (400, "BAD REQUEST"))


def _http(status: int, reason: str, text: str) -> Callable[[Fault, Place], ApiError]:
    def made(fault: Fault, place: Place) -> ApiError:
        names: dict[str, Any] = {
            "resource": place.resource,
            "zone": place.zone,
            "region": place.region,
            "metric": fault.metric,
            "limit": fault.limit,
        }
        return ApiError(status, reason, fault.message or text.format(**names))

    return made


OPERATION_KINDS: dict[str, Callable[[Fault, Place], OperationError]] = {
    "stockout": _stockout,
    "stockout_details": _stockout_with_details,
    "quota": lambda fault, place: quota_exceeded(fault.metric, fault.limit, place),
    "internal": _internal,
    "not_ready": _not_ready,
    "preempted": _preempted_in_creation,
}
"""HTTP 200 and an operation that fails."""

HTTP_KINDS: dict[str, Callable[[Fault, Place], ApiError]] = {
    "quota_http": _http(
        403, "quotaExceeded", "Quota '{metric}' exceeded. Limit: {limit} in region {region}."
    ),
    "forbidden": _http(403, "forbidden", "Required 'compute.instances.create' permission for '{resource}'"),
    "api_disabled": _http(
        403,
        "accessNotConfigured",
        "Compute Engine API has not been used in project 1 before or it is disabled.",
    ),
    "rate_limit": _http(403, "rateLimitExceeded", "Rate Limit Exceeded"),
    "too_many": _http(
        429, "rateLimitExceeded", "Quota exceeded for quota metric 'Queries' of service 'compute'."
    ),
    "unauthorized": _http(401, "authError", "Request had invalid authentication credentials."),
    "not_found": _http(404, "notFound", "The resource '{resource}' was not found"),
    "conflict": _http(409, "alreadyExists", "The resource '{resource}' already exists"),
    "precondition": _http(
        412, "conditionNotMet", "Supplied fingerprint does not match current metadata fingerprint."
    ),
    "stockout_http": _http(
        503,
        "backendError",
        "The zone '{zone}' does not have enough resources available to fulfill the request.",
    ),
    "unavailable": _http(503, "backendError", "Backend Error"),
    "backend": _http(500, "backendError", "Internal error"),
}
"""The HTTP answer itself is the error."""

WIRE_KINDS = frozenset({"reset", "slow", "html", "empty", "blank", "truncated", "partial", "cut", "corrupt"})
"""reset: the connection breaks without an answer; slow: it comes `delay_s` later; html: a page in its place,
with status 200; empty: an object without fields, as of a list that lags behind; blank: no body; truncated:
JSON without its end; partial: the connection breaks in the middle of the answer. Of storage alone: cut: the
connection breaks in the middle of the data, whichever way they go; corrupt: a byte downloaded is wrong."""

KINDS = frozenset({*OPERATION_KINDS, *HTTP_KINDS, *WIRE_KINDS})

_HELP = "https://cloud.google.com/compute/docs/resource-error"
_QUOTAS = "https://cloud.google.com/compute/quotas"


def _zone_path(place: Place) -> str:
    return f"projects/{place.project}/zones/{place.zone}"
