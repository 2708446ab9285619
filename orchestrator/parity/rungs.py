"""Two recordings as a table: for each stage of each step, how many tensors differ and by how much."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from orchestrator.model.outcomes import Stage
from orchestrator.parity.ladder import ROUGH, ROUNDING
from orchestrator.parity.numbers import gap
from orchestrator.parity.recording import STAGES, LightStep, Recording, Step, Tensor

MOST_STEPS = 500


@dataclass(frozen=True)
class Rung:
    """One stage of one step. `compared`: tensors that both sides have, `differing` those that are not equal.

    `tensor` is the first that differs, `relative` its relative L2 difference, None if unknown; `rounding`:
    the difference has the size of rounding. `light`: only fingerprints were compared.
    """

    step: int
    stage: Stage
    compared: int
    differing: int = 0
    tensor: str = ""
    relative: float | None = None
    rounding: bool = False
    light: bool = False


def rungs(a: Recording, b: Recording) -> tuple[Rung, ...]:
    """Return every stage of every common step, in the order in which a difference would spread."""
    full = [rung for pair in zip(a.steps, b.steps, strict=False) for rung in _full(*pair)]
    light = [
        rung
        for pair in zip(a.light, b.light, strict=False)
        if len(a.steps) == len(b.steps)
        for rung in _light(*pair)
    ]
    most = MOST_STEPS * len(STAGES)
    return tuple([*full, *light][:most])


def _full(a: Step, b: Step) -> Iterator[Rung]:
    for stage in STAGES:
        left, right = a.stage(stage), b.stage(stage)
        names = [name for name in left if name in right]
        names = names[::-1] if stage == Stage.GRADIENT else names
        differing = [
            name for name in names if not left[name].equals(right[name]) and _made(left[name], right[name])
        ]
        if not names:
            continue
        if not differing:
            yield Rung(a.number, stage, len(names))
            continue
        first = left[differing[0]], right[differing[0]]
        found = gap(*first, ROUGH)
        relative = found.relative if found else None
        limit = ROUNDING.get(first[0].dtype, 0.0)
        tiny = relative is not None and relative <= limit and stage not in (Stage.BATCH, Stage.INITIAL)
        yield Rung(a.number, stage, len(names), len(differing), differing[0], relative, tiny)


def _made(one: Tensor, other: Tensor) -> bool:
    """Return whether both had values: an optimizer's variables may be created within the first step."""
    return one.stage != Stage.INITIAL or (0 not in one.shape and 0 not in other.shape)


def _light(a: LightStep, b: LightStep) -> Iterator[Rung]:
    for stage in STAGES:
        names = [key for key in a.sums if key[0] == stage and key in b.sums]
        differing = [name for key in names for name in (key[1],) if a.sums[key] != b.sums[key]]
        if names:
            first = differing[0] if differing else ""
            yield Rung(a.number, stage, len(names), len(differing), first, light=True)
