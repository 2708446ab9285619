"""Decide by the profile's `retry` whether another attempt follows one that ended."""

from __future__ import annotations

from dataclasses import replace

from orchestrator.ledger import Retried
from orchestrator.model import Place, RunRecord
from orchestrator.model.outcomes import ExitReason
from orchestrator.profile import Retry
from orchestrator.session.project import Project

_CLOCKS_S = 1.0
"""Seconds: an end this short before the deadline counts as an end at the deadline."""


def retried_next(project: Project, record: RunRecord, limits: Retry) -> Retried | None:
    """Return the count with one more retry if the profile allows one after `record`; else None."""
    reason, used = ExitReason(record.exit["reason"]), retried_until(record)
    if reason.interrupted and not _at_deadline(project, record):
        more = replace(used, interruption=used.interruption + 1)
        return more if more.interruption <= limits.interruption else None
    if reason.retried_as_error:
        more = replace(used, error=used.error + 1)
        return more if more.error <= limits.error else None
    return None


def retried_until(record: RunRecord) -> Retried:
    """Return how often the run had been retried automatically until its last attempt."""
    told = record.attempts[-1].get("retried") if record.attempts else None
    return Retried(told["interruption"], told["error"]) if told else Retried()


def failed_places(record: RunRecord | None) -> frozenset[Place]:
    """Return the places where attempts at the run were interrupted: offers there are tried last."""
    return frozenset(
        Place(each.get("provider") or "", each.get("instance_type") or "", each.get("zone") or "")
        for each in (record.attempts if record else ())
        if ExitReason(each["reason"]).interrupted
    )


def _at_deadline(project: Project, record: RunRecord) -> bool:
    """Return whether its machine ended at its deadline, as far as is recorded. Then no attempt follows."""
    ended = record.attempts[-1].get("ended_at") if record.attempts else None
    machine = (record.machine or {}).get("id")
    held = (held for lease in project.leases() for held in lease.holdings if held.id == machine)
    deadline = next((each.deadline for each in held), None)
    return ended is not None and deadline is not None and ended >= deadline - _CLOCKS_S
