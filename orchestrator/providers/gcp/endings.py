"""Find out how a machine ended from the operations that Google lists for it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from orchestrator.errors import Fault
from orchestrator.model import Ending

Json = Mapping[str, Any]

_TAKEN_BACK = "compute.instances.preempted"
_WHY = {
    "compute.instances.hostError": ("its host failed", Fault.TRANSIENT),
    "compute.instances.terminateOnHostMaintenance": ("its host needed maintenance", Fault.TRANSIENT),
    "compute.instances.guestTerminate": (
        "it powered itself off (its deadline, idleness, or somebody on it)",
        None,
    ),
    "delete": ("it was deleted by a call to Google", None),
    "stop": ("it was stopped by a call to Google", None),
}
"""Types of operations that end a machine, the most specific first: a preempted machine is deleted afterwards.
"""


def ending_of(operations: Iterable[Json], name: str, zone: str) -> Ending:
    """Return how a stopped or deleted machine ended, from its operations."""
    done = {str(operation.get("operationType", "")): operation for operation in operations}
    if _TAKEN_BACK in done:
        when = str(done[_TAKEN_BACK].get("insertTime", ""))
        message = f"Google took back the spot machine {name} in {zone} at {when} ({_TAKEN_BACK})."
        return Ending(message, Fault.CAPACITY, "preempted", preempted=True, at=_seconds(when))
    for kind, (why, fault) in _WHY.items():
        if kind in done:
            when = str(done[kind].get("insertTime", ""))
            message = f"Google ended {name} in {zone} at {when}: {why} ({kind})."
            return Ending(message, fault, kind, at=_seconds(when))
    return Ending(
        f"Google no longer has a machine {name} in {zone}: it reached its deadline, or was deleted."
    )


def stopped_at(instance: Json) -> float | None:
    """Return when a TERMINATED instance stopped, in Unix seconds, from lastStopTimestamp; None if
    unknown, or if it was started since.
    """
    stopped = _seconds(str(instance.get("lastStopTimestamp", "")))
    started = _seconds(str(instance.get("lastStartTimestamp", "")))
    return None if stopped is None or (started is not None and started > stopped) else stopped


def _seconds(when: str) -> float | None:
    """Parse a time of Google as Unix seconds; None if it is invalid."""
    try:
        return datetime.fromisoformat(when).timestamp()
    except ValueError:
        return None
