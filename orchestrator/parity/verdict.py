"""Compare two recorded runs: one verdict with its evidence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from orchestrator.model import Divergence, Verdict
from orchestrator.model.counted import counted
from orchestrator.model.outcomes import Conclusion, Stage
from orchestrator.parity.cause import Cause, suspect
from orchestrator.parity.changes import SAME_JOB, Change, changes, versions
from orchestrator.parity.ladder import Comparison, Finding, compare_stages, same_records_overall
from orchestrator.parity.naming import LETTERS, SideNames
from orchestrator.parity.opened import files_gap
from orchestrator.parity.recording import STAGES, Recording, read
from orchestrator.parity.wording import difference, files_words, located


def compare(a: Path, b: Path) -> Verdict:
    """Return the verdict on two run folders that each contain observe/. A is `a`, B is `b`. Reads files only.

    Never UNSTABLE and never confirmed, because both need further runs.
    """
    return judge(read(a), read(b))


def divergence_of(finding: Finding, names: SideNames = LETTERS) -> Divergence:
    """Return the finding for readers, with the sides called by `names`."""
    relative = finding.gap.relative if finding.gap else None
    shows = divergence_of(finding.shows, names) if finding.shows else None
    return Divergence(
        finding.step,
        finding.stage,
        finding.tensor,
        relative,
        difference(finding, names),
        shows,
        finding.others,
    )


def judge(a: Recording, b: Recording, names: SideNames = LETTERS) -> Verdict:
    """Return the verdict on two recordings, with the sides called by `names`."""
    for whose, side in ((names.of_a, a), (names.of_b, b)):
        if not side.steps:
            detail = f"Nothing was observed {whose}: {side.why}."
            fix = _OBSERVABLE if side.not_compared and not side.failure else _OBSERVED
            return Verdict(Conclusion.NOT_COMPARED, detail=detail, fix=fix)
    outcome = compare_stages(a, b)
    if outcome.finding:
        return _differing(a, b, outcome, outcome.finding, names)
    if Stage.UPDATE not in outcome.stages and Stage.GRADIENT not in outcome.stages:
        why = "The two recordings have neither gradients nor updated weights in common."
        return _summed_up(Conclusion.NOT_COMPARED, a, b, outcome, why)
    if len(a.steps) != len(b.steps) and a.requested == b.requested:
        return _uneven(a, b, outcome, names)
    found = (
        f"All {outcome.compared} tensors of the first {_steps(outcome.steps)} are bitwise identical: "
        f"{_stages(outcome)}."
    )
    if outcome.light:
        found += f" So are the fingerprints of the {_steps(outcome.light)} after them."
    return _summed_up(Conclusion.IDENTICAL, a, b, outcome, found + _other_files(a, b, names))


def _summed_up(grade: Conclusion, a: Recording, b: Recording, outcome: Comparison, found: str) -> Verdict:
    """Return the verdict on recordings without any difference."""
    return Verdict(
        grade,
        compared=outcome.compared,
        steps=outcome.steps,
        summary=found + _too_short(a, b),
        not_compared=_unseen(a, b),
    ).with_detail()


def _other_files(a: Recording, b: Recording, names: SideNames) -> str:
    """Return differing files whose content has no effect on a compared step: data of later steps, or
    unused files.
    """
    gap = files_gap(a.environment, b.environment)
    if gap is None or gap.kind != "content":
        return ""
    more = f" (and {gap.others} more)" if gap.others else ""
    said = f"{files_words(gap, names)}{more}"
    return f" Yet the two runs read other data: {said}; no compared step shows it, a later one may."


_OBSERVED = (
    "Record it again, until its first training steps are complete: orch record -- python train.py …; what "
    "it printed is in output.log of its run."
)
_OBSERVABLE = (
    "Only what is observed can be compared: fit and loops of TensorFlow with Keras 2 or 3, and fit of a "
    "current Keras on JAX or torch; docs/parity.md says what of each."
)


def _differing(
    a: Recording, b: Recording, outcome: Comparison, finding: Finding, names: SideNames
) -> Verdict:
    found = changes(a.environment, b.environment, names)
    if absorbed(a, b, finding):
        return _absorbed(a, b, outcome, finding.shows or finding, names)
    cause = suspect(
        finding,
        found,
        initial_differs=_initial_differs(a, b, finding.step),
        overall=same_records_overall(a.steps, b.steps, finding.tensor.split("/")[0].split("#")[0]),
        names=names,
    )
    same_job = not any(change.topic in SAME_JOB for change in found)
    verdict = Conclusion.EQUIVALENT if finding.rounding and same_job else Conclusion.DIVERGENT
    return Verdict(
        verdict,
        divergence=divergence_of(finding, names),
        cause=f"Suspected: {cause.sentence}.",
        fix=cause.fix,
        compared=outcome.compared,
        steps=finding.step,
        summary=_first_difference(finding, names),
        because=cause.sentence,
        more=f"{_others(cause, found)}{_versions(a, b, names)}{_too_short(a, b)}".strip(),
        not_compared=_unseen(a, b, finding.stage),
        about=cause.subjects,
    ).with_detail()


def _initial_differs(a: Recording, b: Recording, step: int) -> bool:
    if step > min(len(a.steps), len(b.steps)):
        return False
    initial, other = a.steps[step - 1].stage(Stage.INITIAL), b.steps[step - 1].stage(Stage.INITIAL)
    return any(name in other and not tensor.equals(other[name]) for name, tensor in initial.items())


def absorbed(a: Recording, b: Recording, finding: Finding) -> bool:
    """Return whether batches differ only in their dtype, and nothing computed from them differs."""
    seen = finding.shows or finding
    if (seen.stage, seen.kind) != (Stage.BATCH, "dtype"):
        return False
    return all(
        tensor.equals(other[tensor.name])
        for left, right in zip(a.steps, b.steps, strict=False)
        for stage in STAGES[STAGES.index(Stage.INITIAL) :]
        for other in (right.stage(stage),)
        for tensor in left.stage(stage).values()
        if tensor.name in other
    )


def _absorbed(a: Recording, b: Recording, outcome: Comparison, finding: Finding, names: SideNames) -> Verdict:
    steps = min(len(a.steps), len(b.steps))
    dtypes = difference(finding, names)
    found = (
        f"The batches have another dtype ({finding.tensor}: {dtypes}), and that changes nothing: "
        f"what is computed from them in the first {_steps(steps)} is bitwise identical."
    )
    unseen = _unseen(a, b)
    more = f"{_other_files(a, b, names)}{_versions(a, b, names)}{_too_short(a, b)}"
    without_cause = Verdict(
        Conclusion.EQUIVALENT, summary=found, more=more.strip(), not_compared=unseen
    ).with_detail()
    harmless = f"the loader yields another dtype ({dtypes}), which is cast where the model begins"
    return replace(
        without_cause,
        divergence=divergence_of(finding, names),
        cause=f"Harmless: {harmless}.",
        because=harmless,
        compared=outcome.compared,
        steps=steps,
    )


def _first_difference(finding: Finding, names: SideNames) -> str:
    kind = " That is the size of rounding." if finding.rounding else ""
    before = "" if finding.stage == Stage.FILES else " Everything before it is bitwise identical."
    shows = f" It shows in {located(finding.shows, names)}." if finding.shows else ""
    return f"{differ_first(finding.step, located(finding, names))}{kind}{before}{shows}"


def differ_first(step: int, where: str) -> str:
    """Return the sentence about the first difference of two runs."""
    return f"The runs first differ in step {step}, in {where}."


def _others(cause: Cause, found: tuple[Change, ...]) -> str:
    """Return recorded differences that the cause is not about."""
    others = [change.words for change in found if change.subject not in cause.subjects][:4]
    return f" Also different: {'; '.join(others)}." if others else ""


def _uneven(a: Recording, b: Recording, outcome: Comparison, names: SideNames) -> Verdict:
    counts = f"{len(a.steps)} {names.in_a} and {len(b.steps)} {names.in_b}, of {a.requested} asked for"
    for name, side in ((names.a, a), (names.b, b)):
        if side.failure and len(side.steps) < side.requested:
            detail = (
                f"{name[:1].upper()}{name[1:]} ended after {_steps(len(side.steps))}: {side.failure}. "
                f"The first {_steps(outcome.steps)}, which both have, are bitwise identical."
            )
            return Verdict(
                Conclusion.NOT_COMPARED, compared=outcome.compared, steps=outcome.steps, detail=detail
            )
    divergence = Divergence(outcome.steps + 1, Stage.STEPS, "", None, counts)
    because = "the data or the arguments differ, so that one side makes fewer steps"
    found = f"The runs make different numbers of steps: {counts}. Those that both have are bitwise identical."
    return Verdict(
        Conclusion.DIVERGENT,
        divergence,
        cause=f"Suspected: {because}.",
        compared=outcome.compared,
        steps=outcome.steps,
        summary=found,
        because=because,
    ).with_detail()


def _stages(outcome: Comparison) -> str:
    words = {
        Stage.BATCH: "batches",
        Stage.INITIAL: "initial weights",
        Stage.ACTIVATION: "layer outputs",
        Stage.LOSS: "losses",
        Stage.GRADIENT: "gradients",
        Stage.UPDATE: "updated weights and optimizer state",
        Stage.METRICS: "metrics",
    }
    return ", ".join(text for stage, text in words.items() if stage in outcome.stages)


def _versions(a: Recording, b: Recording, names: SideNames) -> str:
    known = a.environment and b.environment
    differing = versions(a.environment, b.environment, names) if known else ""
    return f" Versions differ ({differing}), which alone explains no difference." if differing else ""


def _unseen(a: Recording, b: Recording, until: str = STAGES[-1]) -> tuple[str, ...]:
    """Return notes about what was not compared; for single tensors only those up to the stage `until`."""
    merged = _merged(a, b, STAGES[: STAGES.index(until) + 1])
    return (*sorted({*a.not_compared, *b.not_compared}), *([merged] if merged else []))


def _too_short(a: Recording, b: Recording) -> str:
    if len(a.steps) != len(b.steps) or all(len(side.steps) >= side.requested for side in (a, b)):
        return ""
    return f" The program made fewer steps than the {a.requested} asked for."


def _merged(a: Recording, b: Recording, stages: Sequence[str]) -> str:
    """Return the tensors of `stages` that could not be read on one or both sides, for people; "" if all
    were read.
    """
    mine, theirs = ({f"{t.stage}/{t.name}" for step in s.steps for t in step.tensors} for s in (a, b))
    unread = {name for side in (a, b) for step in side.steps for name in step.unread} - (mine & theirs)
    said = []
    for stage, what in ((Stage.ACTIVATION, "the output of"), (Stage.GRADIENT, "the gradient of")):
        names = sorted(name.partition("/")[2] for name in unread if name.startswith(f"{stage}/"))
        names = names if stage in stages else []
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        said += [f"{what} {', '.join(names[:3])}{more}"] if names else []
    return f"{'; '.join(said)} (TensorFlow computes it in one with what reads it)" if said else ""


def _steps(count: int) -> str:
    return counted(count, "step")
