"""The outcome of trying a candidate, with the reason for people."""

from __future__ import annotations

from orchestrator.model import Outcome, Reason, Tried
from orchestrator.parity.intervention import Candidate

WHY = {
    Reason.LATER: "with it the runs differ later: it explains the first difference, not all",
    Reason.CHANCE: "one run with it was equal, another was not: it was luck",
    Reason.OTHER_CHANGE: "tried: it changes the run, but not into the other one",
    Reason.NO_CHANGE: "tried: it changes nothing",
    Reason.SAME_ELSEWHERE: "repeated in another folder, the run is the same",
    Reason.CONSEQUENCE: "with the cause imposed, it is no difference any more",
    Reason.SYMPTOM: (
        "with it alone the runs are equal, but a program makes it of something that was not tried"
    ),
    Reason.LEFT: "left as it was, and the runs are equal without it",
}
"""Sentences that explain reasons to people."""


def tried_as(
    each: Candidate, outcome: Outcome, reason: Reason | None, why: str = "", seconds: float | None = None
) -> Tried:
    why = why or (WHY.get(reason, "") if reason else "")
    return Tried(each.words, outcome, why, each.kind, each.topic, seconds, each.subjects, reason)
