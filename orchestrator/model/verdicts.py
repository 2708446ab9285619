"""How two runs compare: where they first differ, the causes that were examined, and the verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from enum import Enum
from typing import Any

from .outcomes import Conclusion, Kind, Outcome, Stage


@dataclass(frozen=True)
class Divergence:
    """Where two runs first differ. `relative` is the relative L2 difference of that tensor; `others`
    counts the other tensors that differ in that stage. `shows`: for a file that differs, where it first
    changed what is computed.
    """

    step: int
    stage: Stage
    tensor: str
    relative: float | None
    detail: str
    shows: Divergence | None = None
    others: int = 0


@dataclass(frozen=True)
class Subject:
    """What a difference, a suspicion or a trial is about, independent of its values and wording.

    `topic`: the area that it belongs to; `name`: the file, variable or setting.
    """

    topic: str
    name: str
    kind: Kind = Kind.DIFFERENCE


class Reason(Enum):
    """Why a candidate has its outcome. The text for people is `Tried.why`."""

    EQUAL = "with it the runs are equal"
    LATER = "with it they differ later"
    SYMPTOM = "it is enough, and something that was not tried brings it about"
    NO_CHANGE = "with it the run is the same"
    OTHER_CHANGE = "with it the run is another, and not that of the other side"
    CHANCE = "one run with it was equal, another was not"
    SAME_ELSEWHERE = "in another folder the run is the same"
    CONSEQUENCE = "with the cause imposed it is no difference"
    LEFT = "the runs are equal without it"
    FAILED = "the run with it failed"
    BYPASSED = "the run with it read past what it was given"
    FAULT = "orch itself failed"


@dataclass(frozen=True)
class Tried:
    """A possible cause that was examined, and the outcome.

    `why` says how `outcome` is known, for people.

    Code decides by `subjects` (several if they were tried as a group) and by `reason`; run.json holds
    neither.
    """

    words: str
    outcome: Outcome
    why: str = ""
    kind: Kind = Kind.DIFFERENCE
    topic: str = ""
    seconds: float | None = None
    subjects: tuple[Subject, ...] = ()
    reason: Reason | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the entry of `candidates` in the `parity` object of `run.json`."""
        return {
            "words": self.words,
            "outcome": self.outcome,
            "why": self.why,
            "kind": self.kind,
            "topic": self.topic,
            "seconds": self.seconds,
        }


@dataclass(frozen=True)
class DriftBand:
    """How far rounding alone moves this model: relative L2 by stage, for each compared step.

    `limit` is the drift measured with `flips`, times `margin`; `drift` is the drift of the two compared runs.
    """

    limit: Mapping[Stage, Sequence[float]]
    drift: Mapping[Stage, Sequence[float]]
    flips: tuple[str, ...]
    margin: float


@dataclass(frozen=True)
class RecordedFact:
    """One fact from the records of two runs: its values as text (None: not recorded), and whether they
    are equal (None: a value is missing). `decisive`: the fact is a result, so the runs differ if it
    differs.
    """

    name: str
    a: str | None
    b: str | None
    equal: bool | None
    decisive: bool = False


@dataclass(frozen=True)
class Verdict:
    """The outcome of comparing two recorded runs.

    `cause` is a sentence or None; `confirmed` requires a counterfactual run; `fix` says what to do.
    `compared` counts the tensors that were compared. `tried`: the causes that were examined; `untried`: why
    some were not. `undeclared`: files that one side reads and that were not sent to the other. `recorded`:
    facts from the records, for runs without recorded tensors.

    `detail` is the whole verdict as text. Code never parses it, because its parts are fields: `summary` (what
    was found), `because` (the cause without its degree of certainty), `more` (other differences) and
    `not_compared` (what could not be compared). `about`: the subjects of the cause.
    """

    verdict: Conclusion
    divergence: Divergence | None = None
    cause: str | None = None
    confirmed: bool = False
    compared: int = 0
    steps: int = 0
    detail: str = ""
    fix: str | None = None
    tried: tuple[Tried, ...] = ()
    untried: str | None = None
    band: DriftBand | None = None
    undeclared: tuple[Mapping[str, Any], ...] = ()
    recorded: tuple[RecordedFact, ...] = ()
    summary: str = ""
    because: str = ""
    more: str = ""
    not_compared: tuple[str, ...] = ()
    about: tuple[Subject, ...] = ()

    def with_detail(self) -> Verdict:
        """Return the verdict with `detail` joined from its parts."""
        unseen = f"Not compared: {'; '.join(self.not_compared)}." if self.not_compared else None
        parts = (self.summary, self.cause, self.fix, self.untried, self.more, unseen)
        return replace(self, detail=" ".join(filter(None, parts)))

    def as_json(self) -> dict[str, Any]:
        """Return the `parity` object of `run.json`."""
        divergence = asdict(self.divergence) if self.divergence else {}
        return {
            "verdict": self.verdict,
            "stage": divergence.get("stage"),
            "tensor": divergence.get("tensor"),
            "relative": divergence.get("relative"),
            "step": divergence.get("step"),
            "difference": divergence.get("detail"),
            "others": divergence.get("others"),
            "shows": divergence.get("shows"),
            "cause": self.cause,
            "confirmed": self.confirmed,
            "fix": self.fix,
            "steps": self.steps,
            "compared": self.compared,
            "detail": self.detail,
            "summary": self.summary or self.detail,
            "not_compared": list(self.not_compared),
            "candidates": [each.as_json() for each in self.tried],
            "untried": self.untried,
            "band": asdict(self.band) if self.band else None,
            "undeclared": [dict(each) for each in self.undeclared],
            "recorded": [asdict(each) for each in self.recorded],
        }
