"""Two recorded runs → one verdict, with its evidence in words."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from orchestrator.model import Divergence, Verdict
from orchestrator.parity.cause import Cause, suspect
from orchestrator.parity.changes import SAME_JOB, Change, changes, versions
from orchestrator.parity.ladder import Climb, Finding, climb, same_records_overall
from orchestrator.parity.recording import Recording, read

IDENTICAL = "IDENTICAL"
EQUIVALENT = "EQUIVALENT"
DIVERGENT = "DIVERGENT"
UNSTABLE = "UNSTABLE"
NOT_COMPARED = "NOT COMPARED"

STAGE_WORDS = {
    "steps": "the number of steps",
    "files": "the files that were read",
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
    places = {"A": a, "B": b}

    def words(text: str) -> str:
        text = re.sub(r"\b(?:in|of) ([AB])\b", lambda found: places[found[1]], text)
        return re.sub(r"\b([AB]) (alone|ended)\b", lambda f: f"the run {places[f[1]]} {f[2]}", text)

    divergence = verdict.divergence
    return replace(
        verdict,
        divergence=replace(divergence, detail=words(divergence.detail)) if divergence else None,
        cause=words(verdict.cause) if verdict.cause else None,
        detail=words(verdict.detail),
    )


def judge(a: Recording, b: Recording) -> Verdict:
    """The verdict on two recordings."""
    for name, side in (("A", a), ("B", b)):
        if not side.steps:
            return Verdict(NOT_COMPARED, detail=f"Nothing was observed of {name}: {side.why}.")
    outcome = climb(a, b)
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
    return Verdict(IDENTICAL, compared=outcome.compared, steps=outcome.steps, detail=detail + _unseen(a, b))


def _differing(a: Recording, b: Recording, outcome: Climb, finding: Finding) -> Verdict:
    found = changes(a.environment, b.environment)
    first, second = (side.steps[min(finding.step, len(side.steps)) - 1] for side in (a, b))
    initial, other = first.stage("initial"), second.stage("initial")
    cause = suspect(
        finding,
        found,
        initial_differs=any(name in other and not t.equals(other[name]) for name, t in initial.items()),
        overall=same_records_overall(a.steps, b.steps, finding.tensor.split("/")[0].split("#")[0]),
    )
    same_job = not any(change.topic in SAME_JOB for change in found)
    verdict = EQUIVALENT if finding.rounding and same_job else DIVERGENT
    relative = finding.gap.relative if finding.gap else None
    return Verdict(
        verdict,
        divergence=Divergence(finding.step, finding.stage, finding.tensor, relative, finding.detail),
        cause=f"Suspected: {cause.sentence}.",
        fix=cause.fix,
        compared=outcome.compared,
        steps=finding.step,
        detail=_paragraph(finding, cause, found, relative) + _versions(a, b) + _unseen(a, b),
    )


def _paragraph(finding: Finding, cause: Cause, found: tuple[Change, ...], relative: float | None) -> str:
    size = f" by {relative:.2g} (relative L2)" if relative is not None else ""
    more = f", and {finding.others} more in that stage" if finding.others else ""
    kind = " That is the size of rounding." if finding.rounding else ""
    others = [change.words for change in found if change.words != cause.sentence][:4]
    also = f" Also different: {'; '.join(others)}." if others else ""
    return (
        f"The runs first differ in step {finding.step}, in {STAGE_WORDS[finding.stage]}: "
        f"{finding.tensor}{size}"
        f"{more} ({finding.detail}).{kind} Everything before it is equal to the bit. "
        f"Suspected: {cause.sentence}. {cause.fix}{also}"
    )


def _uneven(a: Recording, b: Recording, outcome: Climb) -> Verdict:
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


def _stages(outcome: Climb) -> str:
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


def _unseen(a: Recording, b: Recording) -> str:
    """What was not compared, so that nothing passes in silence."""
    notes = sorted({*a.not_compared, *b.not_compared})
    short = [name for name, side in (("A", a), ("B", b)) if len(side.steps) < side.requested]
    text = f" Not compared: {'; '.join(notes)}." if notes else ""
    if short and len(a.steps) == len(b.steps):
        text += f" The program made fewer steps than the {a.requested} asked for."
    return text


def _steps(count: int) -> str:
    return f"{count} step{'s' if count != 1 else ''}"
