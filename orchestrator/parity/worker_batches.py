"""Compare the examples that workers read with those of one process at the same global batch. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from orchestrator.model.workers import WorkerCause
from orchestrator.parity.recording import Records, Step

_GROUPS = ("share", "data", "element", "input")
"""Tensor groups in which a batch is recorded, from everything that the step receives to only what the model
receives.
"""

_MODULUS = 1 << 256


@dataclass(frozen=True)
class Reading:
    """What is wrong with the examples that the worker `rank` read in a step; see WorkerFinding."""

    rank: int
    cause: WorkerCause
    like: int | None = None
    examples: int = 0
    count: int = 0


def compared_batches(single: Step, workers: Sequence[Step]) -> tuple[Records, tuple[Records, ...]] | None:
    """Return the batch of the single process and those of the workers, by rank: in the first group in which
    they are equal, else the most complete one. None if no group was recorded by all.
    """
    pairs = [
        (single.records[a], tuple(step.records[b] for step in workers))
        for a in _GROUPS
        for b in _GROUPS
        if a in single.records and all(b in step.records for step in workers)
        if (a == "input") == (b == "input")
    ]
    return next((pair for pair in pairs if divides(*pair)), pairs[0] if pairs else None)


def divides(whole: Records, parts: Sequence[Records]) -> bool:
    """Return whether the parts together are the examples of the whole, each as often, in any order."""
    same = sum(part.multiset for part in parts) % _MODULUS == whole.multiset
    return same and sum(part.count for part in parts) == whole.count


def wrong_readings(
    step: int, whole: Records, parts: Sequence[Records], steps: Mapping[int, Records]
) -> tuple[Reading, ...]:
    """Return the workers that do not read their share of `step`, by rank, where `divides` is false.

    `steps`: all that the single process read.
    """
    found = [_wrong(rank, step, whole, parts, steps) for rank in range(len(parts))]
    wrong = tuple(reading for reading in found if reading)
    if wrong:
        return wrong
    least = min(part.count for part in parts)
    few = [rank for rank, part in enumerate(parts) if part.count == least]
    cause = WorkerCause.FEWER_EXAMPLES
    return tuple(Reading(rank, cause, None, least, whole.count) for rank in few)


def _wrong(
    rank: int, step: int, whole: Records, parts: Sequence[Records], steps: Mapping[int, Records]
) -> Reading | None:
    mine = parts[rank]
    if (mine.count, mine.multiset) == (whole.count, whole.multiset):
        return Reading(rank, WorkerCause.ALL_EXAMPLES, None, mine.count, mine.count)
    rows = Counter(mine.rows)
    alien = rows - Counter(whole.rows)
    if alien:
        return _alien(rank, step, alien, mine, steps)
    for other in range(rank):
        shared = (rows & Counter(parts[other].rows)).total()
        if shared and not _is_whole(parts[other], whole):
            return Reading(rank, WorkerCause.SAME_EXAMPLES, other, shared, mine.count)
    return None


def _is_whole(part: Records, whole: Records) -> bool:
    return (part.count, part.multiset) == (whole.count, whole.multiset)


def _alien(rank: int, step: int, alien: Counter[str], mine: Records, steps: Mapping[int, Records]) -> Reading:
    elsewhere = {
        number: (alien & Counter(records.rows)).total() for number, records in steps.items() if number != step
    }
    like = max(elsewhere, key=lambda number: elsewhere[number], default=step)
    if elsewhere.get(like):
        return Reading(rank, WorkerCause.OTHER_STEP, like, alien.total(), mine.count)
    return Reading(rank, WorkerCause.OTHER_EXAMPLES, None, alien.total(), mine.count)
