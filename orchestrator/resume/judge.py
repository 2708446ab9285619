"""Compare an uninterrupted and a resumed attempt, and find the first state that was not restored. Pure
functions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from orchestrator.model.counted import counted
from orchestrator.model.outcomes import Stage
from orchestrator.model.resume import Lost, Omission
from orchestrator.parity.recording import STAGES, Recording, Step, Tensor
from orchestrator.resume.seen import Attempt

Tensors = Mapping[str, Tensor]

_ORDER = (
    Lost.WEIGHTS, Lost.STATISTICS, Lost.DROPOUT, Lost.LOSS_SCALE, Lost.SLOTS, Lost.ITERATIONS,
    Lost.LEARNING_RATE, Lost.AVERAGE,
)  # fmt: skip
_BEFORE_UPDATE = frozenset((Lost.WEIGHTS, Lost.STATISTICS, Lost.DROPOUT, Lost.LOSS_SCALE))
_WITHIN = (Stage.BATCH, Stage.ACTIVATION, Stage.LOSS, Stage.GRADIENT, Stage.UPDATE, Stage.METRICS)


@dataclass(frozen=True)
class Difference:
    """The first difference between two aligned steps. `step` counts in the uninterrupted run."""

    step: int
    stage: Stage
    names: tuple[str, ...]


def prefix_difference(whole: Recording, cut: Recording) -> Difference | None:
    """Return where two runs of the same job differ before any resumption: the job is not repeatable."""
    return first_difference(whole.steps, cut.steps, 0, initial=True)


def first_difference(
    whole: tuple[Step, ...], part: tuple[Step, ...], after: int, *, initial: bool = False
) -> Difference | None:
    """Return the first step of `part` that differs from that of `whole`; `part` begins `after` steps in."""
    for left, right in zip(whole[after:], part, strict=False):
        for stage in STAGES if initial else _WITHIN:
            a, b = left.stage(stage), right.stage(stage)
            names = tuple(name for name in a if name in b and not a[name].equals(b[name]))
            if names:
                return Difference(left.number, stage, names)
    return None


def state_after(whole: Recording, step: int) -> dict[str, Tensor]:
    """Return the variables after a step; for 0, before the first step."""
    if step:
        return whole.steps[step - 1].stage(Stage.UPDATE)
    return whole.steps[0].stage(Stage.INITIAL)


def kind_of(name: str, optimizers: frozenset[str]) -> Lost:
    """Return what a variable is, from the name that Keras gives it."""
    last = name.rpartition("/")[2].partition("#")[0].partition(":")[0]
    if "seed_generator" in name or last == "seed_generator_state":
        return Lost.DROPOUT
    if last in ("dynamic_scale", "step_counter") or "loss_scale" in last:
        return Lost.LOSS_SCALE
    if any(name.startswith(f"{each}/") for each in optimizers):
        if last in ("iteration", "iterations", "iter"):
            return Lost.ITERATIONS
        if last == "learning_rate":
            return Lost.LEARNING_RATE
        return Lost.AVERAGE if last.endswith("_average") or last == "average" else Lost.SLOTS
    if last.startswith("moving_") or last in ("mean", "variance", "count"):
        return Lost.STATISTICS
    return Lost.WEIGHTS


def optimizers_of(names: Iterator[str]) -> frozenset[str]:
    """Return the prefixes of the optimizers' variables: each has a step counter."""
    ends = ("/iteration", "/iterations", "/iter")
    return frozenset(name[: -len(end)] for name in names for end in ends if name.split(":")[0].endswith(end))


def resumed_after(whole: Recording, resumed: Recording, checkpoint: int) -> int | None:
    """Return the step after which a resumed run continues, found by its first weights; None if the
    uninterrupted run never had these weights.
    """
    begins = state_after(resumed, 0)
    optimizers = optimizers_of(iter(begins))

    def fits(step: int) -> bool:
        then = state_after(whole, step)
        shared = [n for n in begins if n in then and kind_of(n, optimizers) == Lost.WEIGHTS]
        return bool(shared) and all(then[name].equals(begins[name]) for name in shared)

    steps = [checkpoint, *range(len(whole.steps), -1, -1)]
    return next((step for step in steps if fits(step)), None)


def lost_state(whole: Recording, resumed: Recording, after: int) -> list[Omission]:
    """Return, by kind, the variables whose value at the start of the resumed run differs from that of the
    uninterrupted run.
    """
    then, begins = state_after(whole, after), state_after(resumed, 0)
    optimizers = optimizers_of(iter({**then, **begins}))
    found: dict[Lost, list[str]] = {}
    for name in begins:
        if name in then and not then[name].equals(begins[name]):
            found.setdefault(kind_of(name, optimizers), []).append(name)
    return [Omission(lost, tuple(found[lost]), after) for lost in _ORDER if lost in found]


def explain(
    whole: Attempt, resumed: Attempt, checkpoint: int
) -> tuple[int, list[Omission], Difference | None]:
    """Return the step after which the run continued, what was not restored (the cause of the first difference
    first), and that difference.
    """
    a, b = whole.recording, resumed.recording
    found = resumed_after(a, b, checkpoint)
    after = checkpoint if found is None else found
    state = lost_state(a, b, after)
    if found == 0 and checkpoint:
        return 0, [Omission(Lost.EVERYTHING, step=1)], Difference(1, Stage.INITIAL, ())
    differs = first_difference(a.steps, b.steps, after)
    if differs is None:
        return after, _ends(whole, resumed, after), None
    cause = _cause(whole, resumed, after, differs, state)
    return after, [cause, *(each for each in state if each.lost != cause.lost)], differs


def _cause(
    whole: Attempt, resumed: Attempt, after: int, differs: Difference, state: list[Omission]
) -> Omission:
    if differs.stage == Stage.BATCH:
        return _of_data(whole.recording, resumed.recording, after, differs)
    early = differs.stage in (Stage.ACTIVATION, Stage.LOSS, Stage.GRADIENT)
    fitting = [each for each in state if each.lost in _BEFORE_UPDATE] if early else state
    if fitting:
        best = fitting[0]
        return Omission(best.lost, best.names, differs.step, str(differs.stage))
    if epoch := _epoch(whole, resumed, after):
        return Omission(Lost.EPOCH, step=differs.step, stage=str(differs.stage), detail=epoch)
    if kept := _callbacks(whole, resumed, after):
        return Omission(kept[0], kept[1], differs.step, str(differs.stage))
    lost = Lost.RANDOM_OPERATIONS if early else Lost.UNKNOWN
    return Omission(lost, differs.names[:5], differs.step, str(differs.stage))


def _of_data(whole: Recording, resumed: Recording, after: int, differs: Difference) -> Omission:
    """Return which batch came instead, if the uninterrupted run had it too."""
    batch = resumed.steps[differs.step - after - 1].stage(Stage.BATCH)

    def same(step: Step) -> bool:
        there = step.stage(Stage.BATCH)
        shared = [name for name in batch if name in there]
        return bool(shared) and all(batch[name].equals(there[name]) for name in shared)

    like = next((step.number for step in whole.steps if same(step)), 0)
    lost = Lost.DATA_POSITION if like else Lost.DATA_ORDER
    return Omission(lost, differs.names[:5], differs.step, str(Stage.BATCH), like=like)


def _ends(whole: Attempt, resumed: Attempt, after: int) -> list[Omission]:
    """Compare the ends of two runs whose steps are equal: the number of steps, and the state of callbacks
    that may act later.
    """
    expected, made = len(whole.recording.steps) - after, len(resumed.recording.steps)
    kept = _callbacks(whole, resumed, after)
    if expected != made:
        detail = f"{counted(made, 'step')} instead of {expected}"
        if epoch := _epoch(whole, resumed, after):
            return [Omission(Lost.EPOCH, step=after + min(expected, made), detail=f"{detail}; {epoch}")]
        lost, names = kept or (Lost.LENGTH, ())
        return [Omission(lost, names, after + min(expected, made), detail=detail)]
    differing = [name for name in whole.files if whole.files[name] != resumed.files.get(name)]
    if kept and kept[0] == Lost.BEST and differing:
        return [Omission(Lost.BEST, kept[1], detail=f"{differing[0]} has another content at the end")]
    return []


def _epoch(whole: Attempt, resumed: Attempt, after: int) -> str:
    """Return how the number of the first resumed epoch differs from that of the uninterrupted run."""
    then = [each for step, each in sorted(whole.epochs.items()) if step <= after]
    now = resumed.epochs.get(0)
    if not then or now is None or then[-1].epoch == now.epoch:
        return ""
    return f"epoch {now.epoch} instead of {then[-1].epoch}"


def _callbacks(whole: Attempt, resumed: Attempt, after: int) -> tuple[Lost, tuple[str, ...]] | None:
    """Return the callbacks whose state differs when the first resumed epoch begins."""
    then, now = whole.epochs.get(after), resumed.epochs.get(0)
    if then is None or now is None:
        return None
    for kind, left, right in zip(then.kinds, then.callbacks, now.callbacks, strict=False):
        names = tuple(f"{kind}.{name}" for name in left if name in right and left[name] != right[name])
        if names:
            patience = "wait" in left and "best" in left and kind != "ModelCheckpoint"
            return (Lost.PATIENCE if patience else Lost.BEST), names
    return None
