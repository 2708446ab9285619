"""Why EC2 ended a machine, from the code of its StateReason.

Pure. Codes: "StateReason" in the EC2 API reference. The prefixes `Server.` and `Client.` say who caused it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from orchestrator.errors import Fault
from orchestrator.model import Ending
from orchestrator.providers.aws.faults import FAULTS
from orchestrator.providers.aws.quotas import quota
from orchestrator.providers.aws.tags import is_ending

_WHEN = re.compile(r"\((\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) (?:GMT|UTC)\)\s*\Z", re.ASCII)
_TAKEN_BACK = frozenset({"Server.SpotInstanceTermination", "Server.SpotInstanceShutdown"})
_OTHERWISE = {
    **dict.fromkeys(_TAKEN_BACK, Fault.CAPACITY),
    "Server.InsufficientInstanceCapacity": Fault.CAPACITY,
    "Server.InternalError": Fault.TRANSIENT,
    "Client.InternalError": Fault.INVALID,
    "Client.VolumeLimitExceeded": Fault.QUOTA,
    "Client.InvalidSnapshot.NotFound": Fault.INVALID,
}
_NOBODY_S = {
    "Client.InstanceInitiatedShutdown": "it powered itself off (its deadline, idleness, or somebody on it).",
    "Client.UserInitiatedShutdown": "it was ended by a call to EC2.",
    "Client.UserInitiatedHibernate": "it was hibernated by a call to EC2.",
    "Server.ScheduledStop": "AWS ended it for a scheduled event.",
}


def ending_of(instance: Mapping[str, Any], region: str) -> Ending | None:
    """Return how the instance ended, from its DescribeInstances entry; None while it has not ended."""
    if not is_ending(instance):
        return None
    reason = instance.get("StateReason") or {}
    code = str(reason.get("Code", ""))
    at = stopped_at(instance)
    if code in _NOBODY_S or not code:
        return Ending(_NOBODY_S.get(code, "EC2 ended it without a reason."), code=code, at=at)
    fault = _fault(code)
    told = f"{code}: {_words(reason, code)}"
    if fault is Fault.QUOTA:
        return replace(_over_quota(instance, region, code, told), at=at)
    return Ending(_message(instance, code, told), fault, code, preempted=code in _TAKEN_BACK, at=at)


def stopped_at(instance: Mapping[str, Any]) -> float | None:
    """Return when the instance started to shut down, in Unix seconds, from StateTransitionReason: "User
    initiated (2026-01-02 03:04:05 GMT)". None without a time, as for a machine that a limit ended at launch.
    """
    found = _WHEN.search(str(instance.get("StateTransitionReason") or ""))
    try:
        when = datetime.strptime(found[1], "%Y-%m-%d %H:%M:%S") if found else None
    except ValueError:
        return None
    return when.replace(tzinfo=UTC).timestamp() if when else None


def _fault(code: str) -> Fault:
    plain = code.partition(".")[2]
    return _OTHERWISE.get(code) or FAULTS.get(plain) or FAULTS.get(plain.partition(".")[0], Fault.UNKNOWN)


def _words(reason: Mapping[str, Any], code: str) -> str:
    return str(reason.get("Message", "")).removeprefix(f"{code}:").strip() or "without a further reason"


def _message(instance: Mapping[str, Any], code: str, told: str) -> str:
    zone = instance.get("Placement", {}).get("AvailabilityZone", "")
    what = f"{instance['InstanceType']} in {zone}"
    if code in _TAKEN_BACK:
        return f"AWS took back the spot machine {what} ({told})"
    if code == "Client.InternalError":
        return (
            f"AWS accepted {what} and ended it at launch ({told}). The usual cause is that its disk is "
            "encrypted with a key that these credentials may not use: see EBS encryption in EC2's "
            "settings, and the "
            "policy of that key in KMS."
        )
    return f"AWS accepted {what} and ended it at launch ({told})"


def _over_quota(instance: Mapping[str, Any], region: str, code: str, told: str) -> Ending:
    spot = instance.get("InstanceLifecycle") == "spot"
    limit = quota(str(instance["InstanceType"]), spot=spot, code=code.partition(".")[2])
    message = (
        f"AWS accepted the machine and ended it at launch: the quota {limit.title()} of {region} is used up "
        f"({told})\nRequest an increase at {limit.address(region)}"
    )
    return Ending(message, Fault.QUOTA, code, next_command=limit.request(region))
