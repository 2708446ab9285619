"""Compare the workers of one training with one process at the same global batch. Pure apart from reading
recorded tensors.

Of each step in turn: the first weights, the examples, the gradients, the weights after it. Weights and
examples are equal to the bit; gradients, which are summed over the workers, and what follows from them are
equal within the tolerance of rounding.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from orchestrator.model.outcomes import Stage
from orchestrator.model.workers import (
    NotCompared,
    WorkerCause,
    WorkerFact,
    WorkerFinding,
    WorkersConclusion,
    WorkersVerdict,
)
from orchestrator.parity.ladder import ROUGH, is_rounding, overall_relative
from orchestrator.parity.numbers import Gap, gap, gap_of_sum, unmeasured
from orchestrator.parity.recording import Recording, Records, Step, Tensor
from orchestrator.parity.rounding_tolerance import RoundingTolerance
from orchestrator.parity.worker_batches import Reading, compared_batches, divides, wrong_readings
from orchestrator.parity.worker_facts import explain, worker_facts

SINGLE = -1
"""The single process, in lists of ranks."""

_NEEDED = (NotCompared.INITIAL, NotCompared.BATCHES, NotCompared.UPDATES)
"""Without these the workers are not EQUAL."""

_PER_SHARE = ("moving_mean", "moving_variance", "seed_generator_state")
"""Last parts of the names of variables in layers whose result depends on how a batch is divided."""

Pair = tuple[Tensor, Gap | None]


@dataclass(frozen=True)
class _Case:
    """What is compared: recordings with steps, workers by rank, and what differs in their facts."""

    single: Recording
    workers: tuple[Recording, ...]
    facts: tuple[WorkerFact, ...]
    tolerance: RoundingTolerance | None

    def of(self, ranks: Iterable[int]) -> list[WorkerFact]:
        wanted = set(ranks)
        return [fact for fact in self.facts if fact.rank in wanted]


def compare_workers(
    single: Recording, workers: Sequence[Recording], tolerance: RoundingTolerance | None = None
) -> WorkersVerdict:
    """Return the verdict on all workers of one training, given in any order.

    `tolerance`: the differences that rounding alone causes for this model, if measured; the usual sizes of
    rounding apply without it, or if they are larger.
    """
    lacking = _lacking(single, workers)
    if lacking:
        return lacking
    by_rank = tuple(sorted(workers, key=lambda each: int(_place(each)[0] or 0)))
    pairs = enumerate(worker.environment for worker in by_rank)
    facts = tuple(
        fact for rank, environment in pairs for fact in worker_facts(rank, single.environment, environment)
    )
    return _compare(_Case(single, by_rank, facts, tolerance))


# ---------------------------------------------------------------- who is there


def _place(worker: Recording) -> tuple[int | None, int | None]:
    place = worker.environment.get("worker") or {}
    return place.get("rank"), place.get("world")


def _lacking(single: Recording, workers: Sequence[Recording]) -> WorkersVerdict | None:
    """Return the verdict if the recordings are not those of one process and of all workers."""
    silent = [(SINGLE, single.why)] if not single.steps else []
    silent += [
        (_place(each)[0] if _place(each)[0] is not None else rank, each.why)  # type: ignore[misc]
        for rank, each in enumerate(workers)
        if not each.steps
    ]
    if silent or not workers:
        ranks = tuple(rank for rank, _ in silent)
        return _not_compared(len(workers), NotCompared.NO_STEPS, ranks, tuple(why for _, why in silent))
    places = [_place(worker) for worker in workers]
    unknown = tuple(number for number, place in enumerate(places) if None in place)
    if unknown:
        return _not_compared(len(workers), NotCompared.NO_RANK, unknown)
    world = max(int(world or 0) for _, world in places)
    ranks_found = [int(rank or 0) for rank, _ in places]
    missing = tuple(rank for rank in range(min(world, 1 << 16)) if rank not in ranks_found)
    if missing or sorted(ranks_found) != list(range(world)) or any(each != world for _, each in places):
        return _not_compared(world, NotCompared.RANKS, missing)
    return None


def _not_compared(
    world: int, reason: NotCompared, missing: tuple[int, ...] = (), why: tuple[str, ...] = ()
) -> WorkersVerdict:
    conclusion = WorkersConclusion.NOT_COMPARED
    return WorkersVerdict(conclusion, world, unseen=(reason,), missing=missing, why=tuple(filter(None, why)))


# ---------------------------------------------------------------- step by step


class _Progress:
    """What was compared so far."""

    def __init__(self) -> None:
        self.unseen = dict.fromkeys(
            (NotCompared.INITIAL, NotCompared.BATCHES, NotCompared.GRADIENTS, NotCompared.UPDATES)
        )
        self.drift: dict[Stage, float] = {}

    def saw(self, what: NotCompared) -> None:
        self.unseen.pop(what, None)

    def moved(self, stage: Stage, relative: float | None) -> None:
        self.drift[stage] = max(self.drift.get(stage, 0.0), relative or 0.0)


def _compare(case: _Case) -> WorkersVerdict:
    progress = _Progress()
    world, done = len(case.workers), 0
    for steps in zip(case.single.steps, *(worker.steps for worker in case.workers), strict=False):
        findings = _step(case, steps[0], steps[1:], progress)
        if findings:
            conclusion = WorkersConclusion.DIFFERS
            return _verdict(conclusion, world, done, case.facts, progress, tuple(findings))
        done += 1
    needed = any(each in progress.unseen for each in _NEEDED)
    conclusion = WorkersConclusion.NOT_COMPARED if needed else WorkersConclusion.EQUAL
    return _verdict(conclusion, world, done, case.facts, progress, ())


def _verdict(
    conclusion: WorkersConclusion,
    world: int,
    done: int,
    facts: tuple[WorkerFact, ...],
    progress: _Progress,
    findings: tuple[WorkerFinding, ...],
) -> WorkersVerdict:
    drift = tuple(progress.drift.items())
    return WorkersVerdict(conclusion, world, done, findings, facts, drift, tuple(progress.unseen))


def _step(case: _Case, single: Step, workers: Sequence[Step], progress: _Progress) -> list[WorkerFinding]:
    """Return what differs at the first stage of one step at which anything does."""
    for stage in (_initial, _batch, _numbers):
        found = list(stage(case, single, workers, progress))
        if found:
            return found
    return []


def _initial(
    case: _Case, single: Step, workers: Sequence[Step], progress: _Progress
) -> Iterator[WorkerFinding]:
    known = {name: tensor for name, tensor in single.stage(Stage.INITIAL).items() if 0 not in tensor.shape}
    differing: dict[int, str] = {}
    for rank, worker in enumerate(workers):
        mine = worker.stage(Stage.INITIAL)
        for name in known:
            if name in mine and 0 not in mine[name].shape:
                progress.saw(NotCompared.INITIAL)
                if not mine[name].equals(known[name]):
                    differing.setdefault(rank, name)
    yield from _explained(case, single.number, Stage.INITIAL, differing)


def _explained(case: _Case, step: int, stage: Stage, tensors: Mapping[int, str]) -> Iterator[WorkerFinding]:
    """Return one finding for each cause, with all workers of which a tensor differs."""
    causes: dict[WorkerCause, list[int]] = {}
    for rank in tensors:
        causes.setdefault(explain(stage, case.of([rank]))[0], []).append(rank)
    for cause, ranks in causes.items():
        facts = tuple(fact for fact in case.of(ranks) if fact.cause is cause)
        yield WorkerFinding(cause, tuple(ranks), step, stage, tensors[ranks[0]], facts=facts)


# ---------------------------------------------------------------- examples


def _batch(
    case: _Case, single: Step, workers: Sequence[Step], progress: _Progress
) -> Iterator[WorkerFinding]:
    found = compared_batches(single, workers)
    if found is None:
        return
    progress.saw(NotCompared.BATCHES)
    whole, parts = found
    if divides(whole, parts):
        return
    read: dict[int, Records] = {}
    for step in case.single.steps:
        batches = compared_batches(step, workers)
        if batches:
            read[step.number] = batches[0]
    for reading in wrong_readings(single.number, whole, parts, read):
        yield _read_wrongly(case, single.number, reading)


def _read_wrongly(case: _Case, step: int, reading: Reading) -> WorkerFinding:
    cause: WorkerCause = reading.cause
    facts: tuple[WorkerFact, ...] = ()
    if cause in (WorkerCause.OTHER_STEP, WorkerCause.OTHER_EXAMPLES):
        likely, facts = explain(Stage.BATCH, case.of([reading.rank]))
        cause = cause if likely == WorkerCause.UNKNOWN else likely
    return WorkerFinding(
        cause,
        (reading.rank,),
        step,
        Stage.BATCH,
        like=reading.like,
        examples=reading.examples,
        count=reading.count,
        facts=facts,
    )


# ---------------------------------------------------------------- gradients and weights


def _numbers(
    case: _Case, single: Step, workers: Sequence[Step], progress: _Progress
) -> Iterator[WorkerFinding]:
    """Compare the weights after the step, and the gradients before it if all workers' can be summed.

    A script may divide by the number of workers before or after it sums, so the mean of the gradients is
    accepted too if the weights are equal.
    """
    updates = [_updates(single, worker) for worker in workers]
    wrong = {
        rank: pairs
        for rank, pairs in enumerate(updates)
        if not _within(case, single.number, Stage.UPDATE, pairs)
    }
    if all(updates):
        progress.saw(NotCompared.UPDATES)
    progress.moved(Stage.UPDATE, max((_relative(pairs) or 0.0 for pairs in updates), default=0.0))
    summed, averaged = (_gradients(single, workers, scale) for scale in (1.0, 1.0 / len(workers)))
    if summed:
        progress.saw(NotCompared.GRADIENTS)
        fits = {
            scale: _within(case, single.number, Stage.GRADIENT, pairs)
            for scale, pairs in (("sum", summed), ("mean", averaged))
        }
        best = min(_relative(summed) or 0.0, _relative(averaged) or 0.0)
        progress.moved(Stage.GRADIENT, best if any(fits.values()) else _relative(summed))
        if not fits["sum"] and (wrong or not fits["mean"]):
            yield _gradient(case, single, summed, is_scaled=fits["mean"])
            return
    if wrong:
        names = {rank: _worst(pairs) for rank, pairs in wrong.items()}
        yield from _explained(case, single.number, Stage.UPDATE, names)


def _gradient(case: _Case, single: Step, pairs: Sequence[Pair], *, is_scaled: bool) -> WorkerFinding:
    """Return the finding for the summed gradients of all workers; facts may show which workers cause it."""
    everyone = tuple(range(len(case.workers)))
    cause, facts = explain(Stage.GRADIENT, case.facts)
    names = [tensor.name for tensor in single.tensors if tensor.name.endswith(_PER_SHARE)]
    if is_scaled:
        cause, facts = WorkerCause.LOSS_SCALE, ()
    elif names:
        cause, facts = WorkerCause.PER_SHARE, ()
    ranks = tuple(sorted({fact.rank for fact in facts})) or everyone
    tensor = names[0] if cause == WorkerCause.PER_SHARE else _worst(pairs)
    return WorkerFinding(
        cause, ranks, single.number, Stage.GRADIENT, tensor, relative=_relative(pairs), facts=facts
    )


def _updates(single: Step, worker: Step) -> list[Pair]:
    mine = worker.stage(Stage.UPDATE)
    return [
        (tensor, None if tensor.equals(mine[name]) else gap(tensor, mine[name], ROUGH) or unmeasured(tensor))
        for name, tensor in single.stage(Stage.UPDATE).items()
        if name in mine
    ]


def _gradients(single: Step, workers: Sequence[Step], scale: float) -> list[Pair]:
    """Return the single process's gradients, each with its distance from `scale` times the workers' sum."""
    stages = [worker.stage(Stage.GRADIENT) for worker in workers]
    pairs: list[Pair] = []
    for name, tensor in single.stage(Stage.GRADIENT).items():
        parts = [stage[name] for stage in stages if name in stage]
        found = gap_of_sum(tensor, parts, scale, ROUGH) if len(parts) == len(workers) else None
        if found:
            pairs.append((tensor, found))
    return pairs


def _relative(pairs: Sequence[Pair]) -> float | None:
    return overall_relative([found for _, found in pairs if found is not None])


def _worst(pairs: Sequence[Pair]) -> str:
    return max(pairs, key=lambda pair: pair[1].square if pair[1] else 0.0)[0].name if pairs else ""


def _within(case: _Case, step: int, stage: Stage, pairs: Sequence[Pair]) -> bool:
    """Return whether all of a stage differs by rounding, by the measured tolerance or the usual sizes."""
    differing = [(tensor, found) for tensor, found in pairs if found is not None]
    relative = _relative(pairs)
    gaps = [found for _, found in differing]
    if not differing or is_rounding([(tensor, tensor) for tensor, _ in differing], gaps, relative):
        return True
    measured = case.tolerance.limit(stage, step - 1) if case.tolerance else 0.0
    return relative is not None and relative <= measured
