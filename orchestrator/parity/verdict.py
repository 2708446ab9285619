"""Two recorded runs → one verdict, with its evidence in words."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from orchestrator.model import Divergence, Verdict
from orchestrator.model.counted import counted
from orchestrator.parity.cause import Cause, suspect
from orchestrator.parity.changes import SAME_JOB, Change, changes, versions
from orchestrator.parity.ladder import Comparison, Finding, compare_stages, same_records_overall
from orchestrator.parity.opened import files_gap
from orchestrator.parity.recording import STAGES, Recording, read

IDENTICAL = "IDENTICAL"
EQUIVALENT = "EQUIVALENT"
DIVERGENT = "DIVERGENT"
UNSTABLE = "UNSTABLE"
NOT_COMPARED = "NOT COMPARED"

STAGE_WORDS = {
    "steps": "the number of steps",
    "files": "the files that are read",
    "batch": "the batch",
    "initial": "the initial weights",
    "activation": "a layer's output",
    "loss": "the loss",
    "gradient": "a gradient",
    "update": "the updated weights",
    "metrics": "a metric",
}


def compare(a: Path, b: Path) -> Verdict:
    """The verdict on two run folders that each hold observe/. A is `a`, B is `b`. Reads files only.

    Never UNSTABLE, and never confirmed: both need further runs.
    """
    return judge(read(a), read(b))


def named(verdict: Verdict, a: str, b: str) -> Verdict:
    """The verdict with its sides called by their places, such as `here` and `there`, instead of A and B."""

    def words(text: str) -> str:
        return sided(text, a, b)

    divergence = verdict.divergence
    return replace(
        verdict,
        divergence=_renamed(divergence, words) if divergence else None,
        cause=words(verdict.cause) if verdict.cause else None,
        detail=words(verdict.detail),
        fix=words(verdict.fix) if verdict.fix else None,
        tried=tuple(replace(each, words=words(each.words), why=words(each.why)) for each in verdict.tried),
        untried=words(verdict.untried) if verdict.untried else None,
    )


def sided(text: str, a: str, b: str) -> str:
    """A sentence about A and B with their places."""
    places = {"A": a, "B": b}
    text = re.sub(r"\b(?:in|of) ([AB])\b", lambda found: places[found[1]], text)
    return re.sub(r"\b([AB]) (alone|ended)\b", lambda f: f"the run {places[f[1]]} {f[2]}", text)


def _renamed(divergence: Divergence, words: Callable[[str], str]) -> Divergence:
    shows = _renamed(divergence.shows, words) if divergence.shows else None
    return replace(divergence, detail=words(divergence.detail), shows=shows)


def divergence_of(finding: Finding) -> Divergence:
    """The finding as readers get it."""
    relative = finding.gap.relative if finding.gap else None
    shows = divergence_of(finding.shows) if finding.shows else None
    return Divergence(
        finding.step, finding.stage, finding.tensor, relative, finding.detail, shows, finding.others
    )


def judge(a: Recording, b: Recording) -> Verdict:
    """The verdict on two recordings."""
    for name, side in (("A", a), ("B", b)):
        if not side.steps:
            detail = f"Nothing was observed of {name}: {side.why}."
            fix = _OBSERVABLE if side.not_compared and not side.failure else _OBSERVED
            return Verdict(NOT_COMPARED, detail=detail, fix=fix)
    outcome = compare_stages(a, b)
    if outcome.finding:
        return _differing(a, b, outcome, outcome.finding)
    if "update" not in outcome.stages and "gradient" not in outcome.stages:
        why = "The two recordings have neither gradients nor updated weights in common."
        return Verdict(
            NOT_COMPARED, compared=outcome.compared, steps=outcome.steps, detail=why + _unseen(a, b)
        )
    if len(a.steps) != len(b.steps) and a.requested == b.requested:
        return _uneven(a, b, outcome)
    detail = (
        f"All {outcome.compared} tensors of the first {_steps(outcome.steps)} are equal to the bit: "
        f"{_stages(outcome)}."
    )
    if outcome.light:
        detail += f" So are the fingerprints of the {_steps(outcome.light)} after them."
    detail += _other_files(a, b)
    return Verdict(IDENTICAL, compared=outcome.compared, steps=outcome.steps, detail=detail + _unseen(a, b))


def _other_files(a: Recording, b: Recording) -> str:
    """Files of other content that no compared step shows: data of later steps, or what is not used."""
    gap = files_gap(a.environment, b.environment)
    if gap is None or gap.kind != "content":
        return ""
    more = f" (and {gap.others} more)" if gap.others else ""
    return (
        f" Yet the two runs read other data: {gap.detail}{more}; no compared step shows it, a later one may."
    )


_OBSERVED = (
    "Record it so that it gets through its first training steps: orch record -- python train.py …; "
    "what it printed is in output.log of its run."
)
_OBSERVABLE = (
    "Only what is observed can be compared: fit and loops of TensorFlow with Keras 2 or 3, and fit of a "
    "current Keras on JAX or torch; docs/parity.md says what of each."
)


def _differing(a: Recording, b: Recording, outcome: Comparison, finding: Finding) -> Verdict:
    found = changes(a.environment, b.environment)
    if absorbed(a, b, finding):
        return _absorbed(a, b, outcome, finding.shows or finding)
    cause = suspect(
        finding,
        found,
        initial_differs=_initial_differs(a, b, finding.step),
        overall=same_records_overall(a.steps, b.steps, finding.tensor.split("/")[0].split("#")[0]),
    )
    same_job = not any(change.topic in SAME_JOB for change in found)
    verdict = EQUIVALENT if finding.rounding and same_job else DIVERGENT
    return Verdict(
        verdict,
        divergence=divergence_of(finding),
        cause=f"Suspected: {cause.sentence}.",
        fix=cause.fix,
        compared=outcome.compared,
        steps=finding.step,
        detail=_paragraph(finding, cause, found) + _versions(a, b) + _unseen(a, b, finding.stage),
    )


def _initial_differs(a: Recording, b: Recording, step: int) -> bool:
    if step > min(len(a.steps), len(b.steps)):
        return False
    initial, other = a.steps[step - 1].stage("initial"), b.steps[step - 1].stage("initial")
    return any(name in other and not tensor.equals(other[name]) for name, tensor in initial.items())


def absorbed(a: Recording, b: Recording, finding: Finding) -> bool:
    """Whether batches differ in their dtype alone, and nothing that is computed from them differs."""
    seen = finding.shows or finding
    if (seen.stage, seen.kind) != ("batch", "dtype"):
        return False
    return all(
        tensor.equals(other[tensor.name])
        for left, right in zip(a.steps, b.steps, strict=False)
        for stage in STAGES[STAGES.index("initial") :]
        for other in (right.stage(stage),)
        for tensor in left.stage(stage).values()
        if tensor.name in other
    )


def _absorbed(a: Recording, b: Recording, outcome: Comparison, finding: Finding) -> Verdict:
    steps = min(len(a.steps), len(b.steps))
    words = f"the loader yields another dtype ({finding.detail}), which is cast where the model begins"
    detail = (
        f"The batches have another dtype ({finding.tensor}: {finding.detail}), and that changes nothing: "
        f"what is computed from them in the first {_steps(steps)} is equal to the bit."
    )
    return Verdict(
        EQUIVALENT,
        divergence=divergence_of(finding),
        cause=f"Innocent: {words}.",
        compared=outcome.compared,
        steps=steps,
        detail=detail + _other_files(a, b) + _versions(a, b) + _unseen(a, b),
    )


def _paragraph(finding: Finding, cause: Cause, found: tuple[Change, ...]) -> str:
    kind = " That is the size of rounding." if finding.rounding else ""
    before = "" if finding.stage == "files" else " Everything before it is equal to the bit."
    shows = f" It shows in {located(finding.shows)}." if finding.shows else ""
    others = [change.words for change in found if change.words != cause.sentence][:4]
    also = f" Also different: {'; '.join(others)}." if others else ""
    return (
        f"The runs first differ in step {finding.step}, in {located(finding)}.{kind}{before}{shows} "
        f"Suspected: {cause.sentence}. {cause.fix}{also}"
    )


def located(finding: Finding) -> str:
    """Where two runs differ and how much, as part of a sentence."""
    relative = finding.gap.relative if finding.gap else None
    size = f" by {relative:.2g} (relative L2)" if relative is not None else ""
    more = f", and {finding.others} more in that stage" if finding.others else ""
    return f"{STAGE_WORDS[finding.stage]}: {finding.tensor}{size}{more} ({finding.detail})"


def _uneven(a: Recording, b: Recording, outcome: Comparison) -> Verdict:
    counts = f"{len(a.steps)} in A and {len(b.steps)} in B, of {a.requested} asked for"
    for name, side in (("A", a), ("B", b)):
        if side.failure and len(side.steps) < side.requested:
            detail = (
                f"{name} ended after {_steps(len(side.steps))}: {side.failure}. "
                f"The first {_steps(outcome.steps)}, which both have, are equal to the bit."
            )
            return Verdict(NOT_COMPARED, compared=outcome.compared, steps=outcome.steps, detail=detail)
    divergence = Divergence(outcome.steps + 1, "steps", "", None, counts)
    cause = "Suspected: the data or the arguments differ, so that one side makes fewer steps."
    detail = (
        f"The runs make different numbers of steps: {counts}. "
        f"Those that both have are equal to the bit. {cause}"
    )
    return Verdict(
        DIVERGENT, divergence, cause=cause, compared=outcome.compared, steps=outcome.steps, detail=detail
    )


def _stages(outcome: Comparison) -> str:
    words = {
        "batch": "batches",
        "initial": "initial weights",
        "activation": "layer outputs",
        "loss": "losses",
        "gradient": "gradients",
        "update": "updated weights and optimizer state",
        "metrics": "metrics",
    }
    return ", ".join(text for stage, text in words.items() if stage in outcome.stages)


def _versions(a: Recording, b: Recording) -> str:
    differing = versions(a.environment, b.environment) if a.environment and b.environment else ""
    return f" Versions differ ({differing}), which alone explains nothing." if differing else ""


def _unseen(a: Recording, b: Recording, until: str = STAGES[-1]) -> str:
    """What was not compared, so that nothing passes in silence; of single tensors those `until` a stage."""
    notes = sorted({*a.not_compared, *b.not_compared})
    merged = _merged(a, b, STAGES[: STAGES.index(until) + 1])
    notes += [merged] if merged else []
    short = [name for name, side in (("A", a), ("B", b)) if len(side.steps) < side.requested]
    text = f" Not compared: {'; '.join(notes)}." if notes else ""
    if short and len(a.steps) == len(b.steps):
        text += f" The program made fewer steps than the {a.requested} asked for."
    return text


def _merged(a: Recording, b: Recording, stages: Sequence[str]) -> str:
    """Tensors of `stages` that one side or both could not read, for people; "" where all were read."""
    mine, theirs = ({f"{t.stage}/{t.name}" for step in s.steps for t in step.tensors} for s in (a, b))
    unread = {name for side in (a, b) for step in side.steps for name in step.unread} - (mine & theirs)
    said = []
    for stage, what in (("activation", "the output of"), ("gradient", "the gradient of")):
        names = sorted(name.partition("/")[2] for name in unread if name.startswith(f"{stage}/"))
        names = names if stage in stages else []
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        said += [f"{what} {', '.join(names[:3])}{more}"] if names else []
    return f"{'; '.join(said)} (TensorFlow computes it in one with what reads it)" if said else ""


def _steps(count: int) -> str:
    return counted(count, "step")
