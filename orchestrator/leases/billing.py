"""The cost of a run: the time of its machine, divided at every moment among the runs that
were active then.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import pairwise

from orchestrator.ledger import Lease, LeasedRun, Ran
from orchestrator.model import CostFacts

_DIGITS = 6


@dataclass(frozen=True)
class Span:
    """The time of a job, from `begun` to `ended`, in seconds of one clock."""

    begun: float
    ended: float


def share(run: Span, others: Iterable[Span]) -> float:
    """The seconds of the machine that a run is charged: each moment is divided by the number of active jobs.

    Summed over all jobs, these are the seconds in which at least one job was active.
    """
    beside = [other for other in others if other.begun < run.ended and other.ended > run.begun]
    edges = {run.begun, run.ended}
    edges |= {edge for other in beside for edge in (other.begun, other.ended) if run.begun < edge < run.ended}
    cuts = sorted(edges)
    seconds = 0.0
    for begun, ended in pairwise(cuts):
        count = sum(other.begun <= begun and other.ended >= ended for other in beside)
        seconds += (ended - begun) / (1 + count)
    return seconds


def cost_of(lease: Lease, ran: Ran | None, beside: Iterable[Span], now: float) -> CostFacts:
    """The cost of a run and, separately, of its lease until `now`, which includes install, sync, waiting and
    other runs.

    `ran`: when its job was active, None if it never was. `beside`: active jobs that the ledger does not know.
    The runs of a lease together never cost more than the lease. US dollars, seconds.
    """
    own = ran.ended - ran.begun if ran else 0.0
    seconds = share(Span(ran.begun, ran.ended), [*_others(lease, ran), *beside]) if ran else 0.0
    usd = min(seconds / 3600 * lease.price, _left(lease, ran, now))
    return {
        "usd": _down(usd),
        "seconds": round(own, 3),
        "price_usd_hour": lease.price,
        "run_usd": _down(usd),
        "run_seconds": round(own, 3),
        "charged_seconds": round(seconds, 3),
        "lease_usd": round(lease.cost(now), _DIGITS),
        "lease_seconds": round(lease.seconds(now), 3),
    }


def spans_of_ledger(lease: Lease, run: LeasedRun, now: float, ended: float | None = None) -> Ran:
    """When a run's job was active, as far as this folder knows: from its start until `now`, or until its
    machine's deadline or end if that was earlier. `ended`: when its cloud says that the machine stopped.
    """
    held = lease.holding
    ends = [held.here(at) for at in (held.ended_at, ended) if at is not None] if held else []
    limits = [limit for limit in (now, lease.deadline, *ends) if limit is not None]
    machine = str((lease.machine or {}).get("id", ""))
    return Ran(run.run_id, run.attempt, machine, run.started_at, max(run.started_at, min(limits)))


def spans_of_others(lease: Lease, run_id: str, now: float) -> list[Span]:
    """Return when the lease's other jobs ran whose times the ledger does not know yet."""
    others = [spans_of_ledger(lease, run, now) for run in lease.uncollected if run.run_id != run_id]
    return [Span(each.begun, each.ended) for each in others]


def charge(ran: Ran, cost: CostFacts | None) -> Ran:
    """A run's charge as the ledger stores it, together with the cost that its record states."""
    return replace(ran, usd=(cost or {}).get("usd", 0.0))


def _others(lease: Lease, ran: Ran) -> list[Span]:
    """Jobs on the same machine whose times the ledger knows."""
    known = [each for each in lease.ran if each.machine == ran.machine and not _same(each, ran)]
    return [Span(each.begun, each.ended) for each in known]


def _left(lease: Lease, ran: Ran | None, now: float) -> float:
    """The part of the lease's cost that no other run was charged. Clocks of two computers may disagree."""
    spent = sum(each.usd for each in lease.ran if ran is None or not _same(each, ran))
    return max(0.0, lease.cost(now) - spent)


def _same(one: Ran, other: Ran) -> bool:
    return one.is_of(other.run_id, other.attempt)


def _down(usd: float) -> float:
    """Round down, so that a sum of costs does not exceed the total."""
    scale = 10**_DIGITS
    return float(int(usd * scale) / scale)
