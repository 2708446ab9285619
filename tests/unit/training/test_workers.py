"""What is said of workers that do not train what one process trains."""

from __future__ import annotations

from orchestrator.model.outcomes import Stage
from orchestrator.model.workers import (
    NotCompared,
    WorkerCause,
    WorkerFact,
    WorkerFinding,
    WorkersConclusion,
    WorkersVerdict,
)
from orchestrator.training.workers import as_part, described


def test_the_rank_the_stage_and_the_cause_are_named() -> None:
    shard = WorkerFinding(WorkerCause.SAME_EXAMPLES, (1,), 1, Stage.BATCH, like=0)
    fact = WorkerFact(2, WorkerCause.PACKAGES, "package", "numpy", "2.0", "2.1")
    package = WorkerFinding(WorkerCause.PACKAGES, (2,), 1, Stage.UPDATE, facts=(fact,))
    found = WorkersVerdict(WorkersConclusion.DIFFERS, 3, findings=(shard, package))
    assert described(found) == (
        "step 1, batch, rank 1: same examples; step 1, update, rank 2: packages (numpy)"
    )
    silent = WorkersVerdict(WorkersConclusion.NOT_COMPARED, 2, unseen=(NotCompared.NO_STEPS,))
    assert described(silent) == "no steps"


def test_the_verdict_is_a_part_of_that_on_one_process() -> None:
    equal = WorkersVerdict(WorkersConclusion.EQUAL, 2, steps=3)
    part = as_part({"verdict": "IDENTICAL"}, equal)
    assert (part["verdict"], part["workers"]["verdict"], part["workers"]["steps"]) == (
        "IDENTICAL",
        "EQUAL",
        3,
    )
