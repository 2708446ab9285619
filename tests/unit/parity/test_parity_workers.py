"""Workers of one training against one process: who reads what, who began with what, who computes what."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.model.outcomes import Stage
from orchestrator.model.workers import NotCompared, WorkerCause, WorkersConclusion, WorkersVerdict
from orchestrator.parity.recording import Recording, Records, Step, Tensor, read
from orchestrator.parity.rounding_tolerance import RoundingTolerance
from orchestrator.parity.workers import compare_workers
from orchestrator.report.workers import letter
from tests.unit.parity_runs import ENVIRONMENT, Run, Value
from tests.unit.parity_runs import records as recorded

WEIGHTS = {"a/kernel": "1", "b/kernel": "2"}


def records(rows: Sequence[object]) -> Records:
    digests = [hashlib.sha256(repr(row).encode()).digest() for row in rows]
    total = sum(int.from_bytes(each, "big") for each in digests) % (1 << 256)
    ordered = hashlib.sha256(b"".join(digests)).hexdigest()
    return Records(len(digests), ordered, total, tuple(each.hex()[:16] for each in digests))


def tensors(stage: Stage, values: dict[str, str]) -> tuple[Tensor, ...]:
    return tuple(Tensor(stage, name, "float32", (3,), value, 1.0) for name, value in values.items())


def process(
    batches: Sequence[Sequence[object]], rank: int | None = None, world: int = 0, **facts: Any
) -> Recording:
    """A recording with batches of these examples and the same weights as every other."""
    group = "element" if rank is None else "share"
    steps = [
        Step(number, tensors(Stage.INITIAL, WEIGHTS) + tensors(Stage.UPDATE, WEIGHTS), {group: records(rows)})
        for number, rows in enumerate(batches, 1)
    ]
    place = {} if rank is None else {"worker": {"rank": rank, "world": world}}
    return Recording(tuple(steps), len(steps), {**ENVIRONMENT, **place, **facts})


def shares(batches: Sequence[Sequence[object]], world: int) -> list[list[Sequence[object]]]:
    return [[batch[rank::world] for batch in batches] for rank in range(world)]


def workers(parts: Sequence[Sequence[Sequence[object]]]) -> list[Recording]:
    return [process(batches, rank, len(parts)) for rank, batches in enumerate(parts)]


def edited(recording: Recording, stage: Stage, name: str, sha256: str) -> Recording:
    def other(tensor: Tensor) -> Tensor:
        return replace(tensor, sha256=sha256) if (tensor.stage, tensor.name) == (stage, name) else tensor

    steps = (replace(step, tensors=tuple(map(other, step.tensors))) for step in recording.steps)
    return replace(recording, steps=tuple(steps))


def known(verdict: WorkersVerdict) -> None:
    """Whatever was found, it can be printed and written."""
    json.dumps(verdict.as_json())
    assert letter(verdict).startswith(f"{verdict.verdict}: ")


sizes = st.integers(2, 5)
all_examples = st.permutations(range(60))


@given(all_examples, sizes, st.randoms())
def test_any_division_of_a_batch_is_equal(examples: list[int], world: int, random: Any) -> None:
    batches = [examples[start : start + 15] for start in (0, 15, 30)]
    parts = shares([random.sample(batch, len(batch)) for batch in batches], world)
    given_workers = workers(parts)
    random.shuffle(given_workers)
    found = compare_workers(process(batches), given_workers)
    assert (found.verdict, found.world, found.steps) == (WorkersConclusion.EQUAL, world, 3)
    assert found.findings == () and found.unseen == (NotCompared.GRADIENTS,)
    known(found)


@given(all_examples, sizes, st.data())
def test_a_worker_that_reads_the_share_of_another_is_named(
    examples: list[int], world: int, data: st.DataObject
) -> None:
    batches = [examples[start : start + 15] for start in (0, 15, 30)]
    parts = shares(batches, world)
    step = data.draw(st.integers(1, 3))
    like, wrong = sorted(data.draw(st.permutations(range(world)))[:2])
    parts[wrong][step - 1] = parts[like][step - 1]
    found = compare_workers(process(batches), workers(parts))
    (finding,) = found.findings
    assert (finding.cause, finding.ranks, finding.like) == (WorkerCause.SAME_EXAMPLES, (wrong,), like)
    assert (found.verdict, finding.step, found.steps) == (WorkersConclusion.DIFFERS, step, step - 1)
    known(found)


@given(all_examples, sizes, st.data())
def test_a_worker_that_reads_other_examples_is_named(
    examples: list[int], world: int, data: st.DataObject
) -> None:
    batches = [examples[start : start + 15] for start in (0, 15, 30)]
    parts = shares(batches, world)
    wrong = data.draw(st.integers(0, world - 1))
    parts[wrong][0] = data.draw(st.sampled_from([parts[wrong][1], [f"none {i}" for i in range(3)]]))
    found = compare_workers(process(batches), workers(parts))
    (finding,) = found.findings
    later = parts[wrong][0] == parts[wrong][1]
    cause = WorkerCause.OTHER_STEP if later else WorkerCause.OTHER_EXAMPLES
    assert (finding.cause, finding.ranks, finding.step) == (cause, (wrong,), 1)
    assert finding.like == (2 if later else None)
    known(found)


@given(all_examples, sizes)
def test_workers_that_read_the_whole_batch_are_all_named(examples: list[int], world: int) -> None:
    batches = [examples[:15]]
    found = compare_workers(process(batches), workers([batches] * world))
    assert {finding.cause for finding in found.findings} == {WorkerCause.ALL_EXAMPLES}
    assert [rank for finding in found.findings for rank in finding.ranks] == list(range(world))
    known(found)


@given(sizes, st.data())
def test_a_worker_with_other_weights_is_named_with_the_cause(world: int, data: st.DataObject) -> None:
    wrong = data.draw(st.integers(0, world - 1))
    fact, cause = data.draw(
        st.sampled_from(
            [
                ({"rng": {"keras_seed": 2}}, WorkerCause.SEED),
                ({"versions": {"tensorflow": "2.20.0", "keras": "3.15.1"}}, WorkerCause.PACKAGES),
                ({"modules": {"train.py": "b" * 64}}, WorkerCause.CODE),
                ({"argv": ["--epochs", "3"]}, WorkerCause.SETTINGS),
                ({}, WorkerCause.UNKNOWN),
            ]
        )
    )
    batches = [list(range(10))]
    sides = [process(part, rank, world) for rank, part in enumerate(shares(batches, world))]
    sides = [replace(side, environment={**side.environment, "rng": {"keras_seed": 1}}) for side in sides]
    side = edited(sides[wrong], Stage.INITIAL, "a/kernel", "9")
    sides[wrong] = replace(side, environment={**side.environment, **fact})
    found = compare_workers(process(batches, rng={"keras_seed": 1}), sides)
    (finding,) = found.findings
    assert (finding.cause, finding.ranks, finding.stage) == (cause, (wrong,), Stage.INITIAL)
    assert finding.tensor == "a/kernel" and {f.rank for f in finding.facts} <= {wrong}
    known(found)


@pytest.mark.parametrize(
    ("fact", "cause", "name", "single", "worker"),
    [
        ({"versions": {"tensorflow": "2.21.0", "keras": "3.15.2"}}, "packages", "keras", "3.15.1", "3.15.2"),
        ({"python": "3.11.8"}, "packages", "python", "3.11.7", "3.11.8"),
        ({"cpu": {"count": 2, "flags": ["avx2"]}}, "processor", "flags", "avx2 avx512f", "avx2"),
    ],
)
def test_a_fact_without_effect_is_told_with_its_rank(
    fact: dict[str, Any], cause: str, name: str, single: str, worker: str
) -> None:
    batches = [list(range(10))]
    first, second = workers(shares(batches, 2))
    second = replace(second, environment={**second.environment, **fact})
    found = compare_workers(process(batches), [second, first])
    assert found.verdict == WorkersConclusion.EQUAL
    (told,) = found.facts
    assert (told.rank, told.cause, told.name, told.single, told.worker) == (1, cause, name, single, worker)
    assert "Worker 1: " in letter(found)


def test_what_makes_a_worker_is_no_difference() -> None:
    batches = [list(range(10))]
    config = {"environment": {"LANG": "C.UTF-8", "TF_CONFIG": "{}"}, "strategy": {"replicas": 2}}
    sides = [process(part, rank, 2, **config) for rank, part in enumerate(shares(batches, 2))]
    assert compare_workers(process(batches, strategy={"replicas": 1}), sides).facts == ()


@pytest.mark.parametrize(
    ("chosen", "reason", "missing"),
    [((0, 1), NotCompared.RANKS, (2,)), ((0, 1, 1), NotCompared.RANKS, (2,)), ((), NotCompared.NO_STEPS, ())],
)
def test_not_all_workers(chosen: tuple[int, ...], reason: NotCompared, missing: tuple[int, ...]) -> None:
    batches = [list(range(12))]
    sides = workers(shares(batches, 3))
    found = compare_workers(process(batches), [sides[rank] for rank in chosen])
    assert (found.verdict, found.unseen, found.missing) == (
        WorkersConclusion.NOT_COMPARED,
        (reason,),
        missing,
    )
    known(found)


def test_a_process_without_steps_or_rank_is_told() -> None:
    batches = [list(range(12))]
    first, second = workers(shares(batches, 2))
    silent = replace(second, steps=(), why="it fell")
    found = compare_workers(process(batches), [first, silent])
    assert (found.unseen, found.missing, found.why) == ((NotCompared.NO_STEPS,), (1,), ("it fell",))
    single = compare_workers(replace(process(batches), steps=()), [first, second])
    assert (single.unseen, single.missing) == ((NotCompared.NO_STEPS,), (-1,))
    assert "the single process" in letter(single)
    nobody = compare_workers(process(batches), [first, process(batches)])
    assert (nobody.unseen, nobody.missing) == ((NotCompared.NO_RANK,), (1,))


def test_without_examples_nothing_is_equal() -> None:
    batches = [list(range(12))]
    first, second = workers(shares(batches, 2))
    second = replace(second, steps=tuple(replace(step, records={}) for step in second.steps))
    found = compare_workers(process(batches), [first, second])
    assert (found.verdict, found.unseen[0]) == (WorkersConclusion.NOT_COMPARED, NotCompared.BATCHES)
    known(found)


# ---------------------------------------------------------------- numbers


def numbers(
    tmp_path: Path,
    gradients: Sequence[float],
    weights: Sequence[float],
    rank: int | None = None,
    **facts: Any,
) -> Recording:
    """A recording of one step with these gradients and new weights, of two workers or of one process."""
    rows = [1.0, 2.0, 3.0, 4.0] if rank is None else [1.0, 2.0] if rank == 0 else [3.0, 4.0]
    values = [
        Value("batch", "data/0", rows),
        Value("initial", "a", [1.0, 1.0]),
        Value("gradient", "a", gradients),
        Value("update", "a", weights),
    ]
    place = {} if rank is None else {"worker": {"rank": rank, "world": 2}}
    run = Run([values], requested=1, environment={**ENVIRONMENT, **place, **facts})
    return read(run.write(tmp_path / str(rank)))


def test_gradients_are_summed_over_the_workers(tmp_path: Path) -> None:
    assert recorded([1.0])["count"] == 1
    single = numbers(tmp_path, [3.0, 5.0], [0.5, 0.5])
    sides = [numbers(tmp_path, [1.0, 2.0], [0.5, 0.5], 0), numbers(tmp_path, [2.0, 3.0], [0.5, 0.5000001], 1)]
    found = compare_workers(single, sides)
    assert (found.verdict, found.unseen) == (WorkersConclusion.EQUAL, ()), letter(found)
    assert 0 < dict(found.drift)[Stage.UPDATE] < 1e-6 and dict(found.drift)[Stage.GRADIENT] == 0


def test_gradients_that_are_too_large_by_the_number_of_workers(tmp_path: Path) -> None:
    single = numbers(tmp_path, [3.0, 5.0], [0.5, 0.5])
    sides = [numbers(tmp_path, [3.0, 5.0], [0.0, 0.0], rank) for rank in (0, 1)]
    (finding,) = compare_workers(single, sides).findings
    assert (finding.cause, finding.ranks, finding.stage) == (
        WorkerCause.LOSS_SCALE,
        (0, 1),
        Stage.GRADIENT,
    )
    sides = [numbers(tmp_path, [3.0, 5.0], [0.5, 0.5], rank) for rank in (0, 1)]
    assert compare_workers(single, sides).verdict == WorkersConclusion.EQUAL, "it divides after the sum"


def test_a_gradient_that_differs_is_put_down_to_the_worker_whose_facts_do(tmp_path: Path) -> None:
    single = numbers(tmp_path, [3.0, 5.0], [0.5, 0.5])
    facts = {"cpu": {"count": 2, "flags": ["avx2"]}}
    sides = [
        numbers(tmp_path, [1.0, 2.0], [0.4, 0.5], 0),
        numbers(tmp_path, [2.0, 3.1], [0.4, 0.5], 1, **facts),
    ]
    (finding,) = compare_workers(single, sides).findings
    assert (finding.cause, finding.ranks, finding.stage) == (WorkerCause.PROCESSOR, (1,), Stage.GRADIENT)
    assert finding.relative is not None and finding.relative > 0.01


def test_a_worker_whose_weights_leave_the_others(tmp_path: Path) -> None:
    single = numbers(tmp_path, [3.0, 5.0], [0.5, 0.5])
    sides = [numbers(tmp_path, [1.0, 2.0], [0.5, 0.5], 0), numbers(tmp_path, [2.0, 3.0], [0.5, 0.6], 1)]
    (finding,) = compare_workers(single, sides).findings
    assert (finding.cause, finding.ranks, finding.stage) == (WorkerCause.UNKNOWN, (1,), Stage.UPDATE)
    measured = RoundingTolerance({Stage.UPDATE: [0.1]}, ("one thread",))
    assert compare_workers(single, sides, measured).verdict == WorkersConclusion.EQUAL
