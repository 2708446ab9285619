"""Measure how far rounding alone changes this model's numbers: the tolerance within which a difference
counts as rounding.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from orchestrator.model.outcomes import Stage
from orchestrator.parity.ladder import ROUGH
from orchestrator.parity.numbers import gap
from orchestrator.parity.recording import Recording, Step

STAGES = (Stage.ACTIVATION, Stage.LOSS, Stage.GRADIENT, Stage.UPDATE)
"""Stages that rounding can affect: it changes no record and no initial weight."""

MARGIN = 4.0
"""Safety factor: rounding differences that were not tried may have a larger effect than those that were."""

Drift = Mapping[Stage, Sequence[float]]
"""Stage → relative L2 difference of that whole stage in each compared step."""


@dataclass(frozen=True)
class RoundingTolerance:
    """`drift`: the largest that any of the `flips` (rounding perturbations) caused, by stage and step;
    `margin`: see MARGIN.
    """

    drift: Drift
    flips: tuple[str, ...]
    margin: float = MARGIN

    def holds(self, other: Drift) -> bool:
        """Return whether another drift is within the tolerance at every stage and step."""
        return all(
            value <= self.limit(stage, step)
            for stage, steps in other.items()
            for step, value in enumerate(steps)
        )

    def limit(self, stage: Stage, step: int) -> float:
        """Return the largest difference that rounding explains at a stage of a step (counted from 0)."""
        known = self.drift.get(stage, ())
        return self.margin * (known[step] if step < len(known) else 0.0)


def measure_drift(a: Recording, b: Recording) -> dict[Stage, list[float]]:
    """Return the difference of two runs at each stage of each common step; infinite for values that are
    not numbers.
    """
    found: dict[Stage, list[float]] = {stage: [] for stage in STAGES}
    for left, right in zip(a.steps, b.steps, strict=False):
        for stage in STAGES:
            found[stage].append(_apart(left, right, stage))
    return {stage: values for stage, values in found.items() if values}


def _apart(a: Step, b: Step, stage: Stage) -> float:
    """Return the relative L2 difference of a whole stage, with sampled tensors scaled to all of their
    elements.
    """
    left, right = a.stage(stage), b.stage(stage)
    square = norm = 0.0
    for name in left.keys() & right.keys():
        one, other = left[name], right[name]
        if one.dtype.startswith(("int", "uint", "bool", "string")):
            continue
        if one.equals(other):
            norm += (one.norm or 0.0) ** 2
            continue
        found = gap(one, other, ROUGH)
        if found is None or not math.isfinite(found.square) or not math.isfinite(found.norm_square):
            return math.inf
        scale = found.elements / max(1, found.compared)
        square += found.square * scale
        norm += found.norm_square * scale
    if square == 0.0:
        return 0.0
    return math.sqrt(square / norm) if norm else math.inf


def calibrate(flips: Iterable[tuple[str, Drift]]) -> RoundingTolerance | None:
    """Return the tolerance from several rounding perturbations; None if none of them changed anything."""
    known = [(words, found) for words, found in flips if any(any(steps) for steps in found.values())]
    if not known:
        return None
    largest = {
        stage: [
            max(values)
            for values in zip(*(found[stage] for _, found in known if stage in found), strict=False)
        ]
        for stage in STAGES
        if any(stage in found for _, found in known)
    }
    return RoundingTolerance(largest, tuple(words for words, _ in known))
