"""The records of one run on several machines, summed up in that of the first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from orchestrator.model import CostFacts, NodeFacts, RunRecord

_LONGEST = 95
_DOLLARS: tuple[Literal["usd", "run_usd", "lease_usd", "price_usd_hour"], ...] = (
    "usd",
    "run_usd",
    "lease_usd",
    "price_usd_hour",
)


def node_run(name: str, rank: int) -> str:
    """Return the id of a run on the machine of `rank`: its own on the first, a derived one on the others."""
    return f"{name[:_LONGEST]}.n{rank}" if rank else name


def first_run(run_id: str, rank: int) -> str:
    """Return the id of the run on the first machine, from that on the machine of `rank`."""
    return run_id.removesuffix(f".n{rank}") if rank else run_id


def sum_up(first: RunRecord, records: Sequence[RunRecord | None]) -> RunRecord:
    """Return the first machine's record with `nodes`, and with the costs of all. `records`: by rank. A record
    that has `nodes` already is returned as it is.
    """
    if first.nodes:
        return first
    known = [record for record in records if record is not None]
    nodes = [_facts(rank, record) for rank, record in enumerate(records)]
    attempts = list(first.attempts)
    if attempts:
        attempts[-1] = {**attempts[-1], "usd": _sum([_usd(record) for record in known])}
    return replace(first, nodes=nodes, cost=_cost(first, known), attempts=attempts)


def _facts(rank: int, record: RunRecord | None) -> NodeFacts:
    seen = (record.profile if record else None) or {}
    share, trained = seen.get("input_wait"), seen.get("train_s")
    return {
        "rank": rank,
        "run": record.run_id if record else None,
        "machine": (record.machine or {}).get("id") if record else None,
        "exit": str(record.exit["reason"]) if record else None,
        "steps": seen.get("steps"),
        "trained": trained,
        "waited": round(share * trained, 3) if share is not None and trained is not None else None,
        "busy": seen.get("cpu_utilisation"),
    }


def _cost(first: RunRecord, known: Sequence[RunRecord]) -> CostFacts | None:
    """Return the first machine's cost, with the US dollars summed over all machines."""
    if first.cost is None:
        return None
    costs = [record.cost for record in known if record.cost is not None]
    summed = first.cost.copy()
    for name in _DOLLARS:
        if name in first.cost:
            summed[name] = _sum([cost.get(name) for cost in costs]) or 0.0
    return summed


def _usd(record: RunRecord) -> float | None:
    return (record.cost or {}).get("run_usd")


def _sum(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return round(sum(known), 6) if known else None
