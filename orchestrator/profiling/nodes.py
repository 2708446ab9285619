"""Which of several machines that train in step made the others wait."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import median

from orchestrator.model import NodeFacts

_LEAST = 0.1
"""The share of its time by which a machine must exceed the others."""


class WaitsFor(StrEnum):
    INPUT = "input"
    COMPUTE = "compute"


@dataclass(frozen=True)
class Straggler:
    """The machine of `rank`, whose steps took longest. `more`: the share of its time, beyond that of the
    others, that went into what it waited for.
    """

    rank: int
    waits_for: WaitsFor
    more: float


def straggler(nodes: Sequence[NodeFacts]) -> Straggler | None:
    """Return the machine for which the others waited; None if none stands out, or too little is known.

    In training that is synchronised after each step, all machines take equally long. The one that waited most
    for its input set the pace; else the one that computed most, while the others waited for its result.
    """
    waits = {
        node["rank"]: node["waited"] / node["trained"]
        for node in nodes
        if node["waited"] is not None and node["trained"]
    }
    busy = {node["rank"]: node["busy"] for node in nodes if node["busy"] is not None}
    for what, shares in ((WaitsFor.INPUT, waits), (WaitsFor.COMPUTE, busy)):
        if len(shares) < len(nodes) or len(shares) < 2:
            continue
        slowest = max(shares, key=lambda rank: shares[rank])
        more = shares[slowest] - median(share for rank, share in shares.items() if rank != slowest)
        if more >= _LEAST:
            return Straggler(slowest, what, round(more, 3))
    return None
