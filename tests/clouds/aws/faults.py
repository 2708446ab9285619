"""Failures to come, by script: which request, which error, and whether it is carried out all the same."""

from __future__ import annotations

import fnmatch
import threading
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any

STATUS = {
    "AuthFailure": 401,
    "AuthFailure.ServiceLinkedRoleCreationNotPermitted": 403,
    "OptInRequired": 403,
    "Blocked": 403,
    "UnauthorizedOperation": 403,
    "AccessDenied": 403,
    "AccessDeniedException": 400,
    "DryRunOperation": 412,
    "InsufficientInstanceCapacity": 500,
    "InsufficientHostCapacity": 500,
    "InsufficientReservedInstanceCapacity": 500,
    "InsufficientCapacity": 500,
    "InternalError": 500,
    "InternalFailure": 500,
    "ServerInternal": 500,
    "Unavailable": 503,
    "ServiceUnavailable": 503,
    "RequestLimitExceeded": 503,
    "SlowDown": 503,
    "InternalServerError": 500,
    "PreconditionFailed": 412,
    "ConditionalRequestConflict": 409,
    "OperationAborted": 409,
    "RequestTimeout": 400,
}
"""The HTTP status with which AWS sends a code; 400 for those not named."""

MESSAGES = {
    "InsufficientInstanceCapacity": "We currently do not have sufficient {type} capacity in the Availability "
    "Zone you requested ({zone}). Our system will be working on provisioning additional capacity. You "
    "can currently get {type} capacity by not specifying an Availability Zone in your request"
    " or choosing another one.",
    "RequestLimitExceeded": "Request limit exceeded.",
    "VcpuLimitExceeded": "You have requested more vCPU capacity than your current vCPU limit of {limit} "
    "allows for the instance bucket that the specified instance type belongs to. Please visit "
    "http://aws.amazon.com/contact-us/ec2-request to request an adjustment to this limit.",
    "MaxSpotInstanceCountExceeded": "Max spot instance count exceeded",
    "InternalError": "An internal error has occurred",
    "SlowDown": "Please reduce your request rate.",
    "AuthFailure": "AWS was not able to validate the provided access credentials",
    "PendingVerification": "Your request for accessing resources in this region is being validated, and you "
    "will not be able to launch additional resources in this region until the validation is complete.",
    "OptInRequired": "You are not subscribed to this service. Please "
    "go to http://aws.amazon.com to subscribe.",
    "Blocked": "This account is currently blocked and not recognized as a valid account.",
    "AuthFailure.ServiceLinkedRoleCreationNotPermitted": "The provided credentials do not have permission to "
    "create the service-linked role for EC2 Spot Instances.",
}


@dataclass
class Fault:
    """One scripted failure.

    `action` ("RunInstances", "PutObject", "Boot", ...), `service`, `region`, `zone`, `instance_type` and
    the values of `match` (request parameter → text) are wildcards; empty ones match anything. `times` < 0
    means for ever. `after`: carried out all the same, and the caller learns only the error. `skip` lets so
    many matching requests pass first. `drop`: the connection ends without an answer. `delay_s` comes before
    the answer; with `code` empty, no `drop` and no `body` it is all that happens. `body`: the whole answer,
    with `status` (200), of `content_type`. `blank`: an answer without a body. `partial`: the connection
    ends in the middle of the answer.
    """

    action: str
    code: str = ""
    status: int = 0
    message: str = ""
    times: int = 1
    skip: int = 0
    after: bool = False
    drop: bool = False
    blank: bool = False
    partial: bool = False
    delay_s: float = 0.0
    body: str = ""
    content_type: str = "text/html"
    service: str = ""
    region: str = ""
    zone: str = ""
    instance_type: str = ""
    match: dict[str, str] = field(default_factory=dict)

    @classmethod
    def parse(cls, value: Mapping[str, Any]) -> Fault:
        unknown = set(value) - {item.name for item in fields(cls)}
        if unknown or "action" not in value:
            raise ValueError(f"not a fault: {dict(value)} (unknown: {sorted(unknown)})")
        return cls(**value)

    @property
    def replaces(self) -> bool:
        """Whether the answer is not that of the cloud."""
        return bool(self.code or self.drop or self.body or self.blank or self.partial)

    @property
    def http_status(self) -> int:
        return self.status or STATUS.get(self.code, 400)

    def hits(self, facts: Mapping[str, str], parameters: Mapping[str, str]) -> bool:
        named = {
            name: getattr(self, name) for name in ("action", "service", "region", "zone", "instance_type")
        }
        return all(
            not pattern or fnmatch.fnmatchcase(facts.get(name, ""), pattern)
            for name, pattern in named.items()
        ) and all(fnmatch.fnmatchcase(parameters.get(name, ""), text) for name, text in self.match.items())


class Script:
    """The faults that are still to come, in order; safe between threads."""

    def __init__(self) -> None:
        self._faults: list[Fault] = []
        self._lock = threading.Lock()

    def add(self, faults: Sequence[Fault]) -> None:
        with self._lock:
            self._faults.extend(faults)

    def clear(self) -> None:
        with self._lock:
            self._faults.clear()

    def take(self, facts: Mapping[str, str], parameters: Mapping[str, str] | None = None) -> Fault | None:
        """The fault of this request, used up by one."""
        with self._lock:
            for fault in self._faults:
                if not fault.hits(facts, parameters or {}):
                    continue
                if fault.skip:
                    fault.skip -= 1
                    continue
                if fault.times > 0:
                    fault.times -= 1
                if fault.times == 0:
                    self._faults.remove(fault)
                return fault
        return None

    def as_json(self) -> list[dict[str, Any]]:
        with self._lock:
            return [asdict(fault) for fault in self._faults]


SCRIPT = Script()
"""That of this server."""
