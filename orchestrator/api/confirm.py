"""Confirms the cause of a difference: the first steps again, here, with one thing imposed at a time."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from orchestrator.api.confirm_baseline import baseline
from orchestrator.api.confirm_runs import Runs, Trial, cores
from orchestrator.model import Progress, Tried, Verdict
from orchestrator.parity import band as band_
from orchestrator.parity.changes import changes
from orchestrator.parity.explain import ARITHMETIC, Diagnosis, Place, concluded, place
from orchestrator.parity.ladder import climb
from orchestrator.parity.plan import Candidate, Imposed, Other, candidates, innocent_flips
from orchestrator.parity.recording import Recording
from orchestrator.parity.verdict import DIVERGENT, EQUIVALENT, absorbed

BUDGET = 120.0
"""Seconds that confirming may take where nobody says otherwise."""


class Clock:
    """What is left of the budget, in seconds."""

    def __init__(self, budget: float) -> None:
        self.budget = budget
        self.until = time.monotonic() + budget

    @property
    def left(self) -> float:
        return self.until - time.monotonic()

    def allows(self, seconds: float) -> bool:
        """Whether something that probably takes `seconds` still fits."""
        return self.left > seconds


@dataclass(frozen=True)
class Sides:
    """Two recordings, of which `base` ("A" or "B") is run again here and the other imitated."""

    a: Recording
    b: Recording
    base: str
    other: Other

    @property
    def mine(self) -> Recording:
        return self.a if self.base == "A" else self.b

    @property
    def theirs(self) -> Recording:
        return self.b if self.base == "A" else self.a


def confirm(sides: Sides, first: Verdict, runs: Runs, budget: float, tell: Progress) -> Verdict:
    """The verdict `first` on two recordings, confirmed as far as the budget (seconds) allows."""
    clock = Clock(budget)
    tell.say(f"Confirming: the first steps again, for at most {budget:.0f} s")
    begin = baseline(sides.mine, runs, clock.until)
    if begin.own is None:
        return replace(first, untried=f"Nothing could be confirmed: {begin.obstacle}.")
    if begin.verdict and begin.differs and begin.differs <= (place(sides.a, sides.b) or begin.differs):
        return begin.verdict
    return _Search(sides, runs, clock, begin.own, begin.differs, tell).verdict(first)


class _Search:
    """Looks for the smallest set of candidates that makes the repeated run equal to the other side's."""

    def __init__(
        self, sides: Sides, runs: Runs, clock: Clock, own: Trial, self_place: Place | None, tell: Progress
    ) -> None:
        self._sides = sides
        self._runs = runs
        self._clock = clock
        self._own = own
        self._self_place = self_place
        self._tell = tell
        self._first = place(sides.a, sides.b)
        self._trials: dict[int, Tried] = {}
        self._drifts: dict[str, tuple[str, band_.Drift]] = {}

    def verdict(self, first: Verdict) -> Verdict:
        """The verdict with what was found."""
        sides = self._sides
        finding = climb(sides.a, sides.b).finding
        found = changes(sides.a.environment, sides.b.environment)
        if finding is None:
            return replace(
                first, untried="A difference in the number of steps is not followed by repeated runs."
            )
        listed = [
            self._elsewhere(each)
            for each in candidates(finding, found, sides.base, sides.mine.environment, sides.other)
        ]
        causes = self._causes(listed)
        apart = band_.drift(sides.a, sides.b)
        rounding = finding.kind == "value" and finding.stage in band_.STAGES
        band = self._band() if rounding and (finding.rounding or causes) else None
        diagnosis = Diagnosis(
            causes=causes,
            tried=self._tried(listed, causes),
            untried=self._untried(listed, causes),
            until=self._self_place,
            located=self._located(listed, causes),
        )
        return concluded(first, finding, diagnosis, band, apart)

    def _elsewhere(self, each: Candidate) -> Candidate:
        """The folder's path is innocent where the run was the same in a copy that lies elsewhere."""
        if each.topic != "folder" or self._runs.always.folder:
            return each
        self._trials[id(each)] = Tried(each.words, "cleared", _SAME_ELSEWHERE, each.kind, each.topic)
        return each

    # ------------------------------------------------------------ searching

    def _causes(self, listed: Sequence[Candidate]) -> tuple[Candidate, ...]:
        able = [
            each for each in listed if each.imposed is not None and each.can_act and each.kind != "replay"
        ]
        parts: list[Candidate] = []
        for each in able:
            outcome = self._try(each)
            if outcome == "confirmed":
                return (each,)
            if outcome == "part":
                parts.append(each)
        several = self._several(able, parts)
        if not several:
            for each in (each for each in listed if each.kind == "replay"):
                if self._try(each) == "confirmed":
                    break
        return several

    def _known(self, each: Candidate) -> bool:
        return id(each) in self._trials

    def _several(self, able: Sequence[Candidate], parts: Sequence[Candidate]) -> tuple[Candidate, ...]:
        """All differences at once, then without each in turn: the smallest set that is enough."""
        pool = [each for each in able if each.kind == "difference" or each in parts]
        pool.sort(key=lambda each: each not in parts)
        if len(pool) < 2 or not self._equal(pool):
            return ()
        for each in reversed(list(pool)):
            without = [kept for kept in pool if kept is not each]
            if len(pool) > 1 and self._equal(without):
                pool = without
        for each in pool:
            words = "with the others that are confirmed, and no fewer"
            self._trials[id(each)] = Tried(each.words, "confirmed", words, each.kind, each.topic)
        return tuple(pool)

    def _equal(self, several: Sequence[Candidate]) -> bool:
        together = Imposed()
        for each in several:
            together |= each.imposed or Imposed()
        if not self._clock.allows(self._runs.estimate(together)):
            return False
        trial = self._runs.run(together, self._clock.until)
        return bool(trial.recording.steps) and self._explains(place(trial.recording, self._sides.theirs))

    def _try(self, each: Candidate) -> str:
        assert each.imposed is not None
        if not self._clock.allows(self._runs.estimate(each.imposed)):
            return "not tried"
        trial = self._runs.run(each.imposed, self._clock.until)
        outcome, why = self._outcome(trial)
        self._tell.say(f"  {outcome}: {each.words}")
        self._trials[id(each)] = Tried(
            each.words, outcome, why, each.kind, each.topic, round(trial.seconds, 1)
        )
        if each.topic in ARITHMETIC and trial.recording.steps:
            self._drifts[each.topic] = (each.words, band_.drift(self._own.recording, trial.recording))
        return outcome

    def _outcome(self, trial: Trial) -> tuple[str, str]:
        if not trial.recording.steps:
            return "not tried", f"the run with it failed: {trial.why}"
        now = place(trial.recording, self._sides.theirs)
        if self._explains(now):
            return "confirmed", "with it alone the two runs are equal to the bit"
        assert now is not None and self._first is not None
        if now > self._first:
            return "part", "with it the runs differ later: it explains the first difference, not all"
        if place(trial.recording, self._own.recording) is None:
            return "cleared", "imposing it changed nothing"
        return "cleared", "imposing it changed the run, and did not make it the other one"

    def _explains(self, now: Place | None) -> bool:
        return now is None or (self._self_place is not None and now >= self._self_place)

    # ------------------------------------------------------------ telling

    def _band(self) -> band_.Band | None:
        """Run the innocent flips that were not run as candidates, as far as the budget allows."""
        for flip in innocent_flips(self._sides.mine.environment):
            assert flip.imposed is not None
            if flip.topic in self._drifts or not self._clock.allows(self._runs.estimate(flip.imposed)):
                continue
            trial = self._runs.run(flip.imposed, self._clock.until)
            if trial.recording.steps:
                self._drifts[flip.topic] = flip.words, band_.drift(self._own.recording, trial.recording)
        return band_.calibrated(self._drifts.values())

    def _tried(self, listed: Sequence[Candidate], causes: Sequence[Candidate]) -> tuple[Tried, ...]:
        found = [self._told(each, causes) for each in listed]
        return tuple(each for each in found if each is not None)

    def _told(self, each: Candidate, causes: Sequence[Candidate]) -> Tried | None:
        known = self._trials.get(id(each))
        if known:
            return known
        if causes:
            return (
                Tried(each.words, "cleared", _STILL, each.kind, each.topic)
                if each.kind == "difference"
                else None
            )
        if not each.can_act:
            return Tried(each.words, "cleared", "it cannot act at this stage", each.kind, each.topic)
        why = each.why or f"the budget of {self._clock.budget:.0f} s was used up"
        return Tried(each.words, "not tried", why, each.kind, each.topic)

    def _untried(self, listed: Sequence[Candidate], causes: Sequence[Candidate]) -> str | None:
        if causes:
            return None
        left = [each for each in listed if id(each) not in self._trials and each.can_act]
        return f"Not tried: {'; '.join(each.words for each in left)}." if left else None

    def _located(self, listed: Sequence[Candidate], causes: Sequence[Candidate]) -> str:
        if causes:
            return ""
        for each in listed:
            known = self._trials.get(id(each))
            if each.kind == "replay" and known and known.outcome == "confirmed":
                return f"Confirmed: the difference lies in {each.words}, and in nothing after it."
        return ""


_SAME_ELSEWHERE = "repeated in another folder, the run is the same"
_STILL = "it still differs while the runs are equal"


def imitated(folder: Path, recording: Recording, python: str | None = None, cwd: Path | None = None) -> Other:
    """The side to imitate: `folder` holds its recording; `python` and `cwd` are its own, if they are here."""
    return Other(recording.environment, folder / "observe", cwd, python, cores())


def confirmable(verdict: Verdict, a: Recording, b: Recording) -> bool:
    """Whether there is a difference to explain, and it is not one that changes nothing."""
    if verdict.verdict not in (EQUIVALENT, DIVERGENT):
        return False
    finding = climb(a, b).finding
    return finding is None or not absorbed(a, b, finding)


def light_steps(verdict: Verdict, recorded: Recording) -> int:
    """Steps to fingerprint in a repeated run: as far as the first difference is, where it is among them."""
    first = verdict.divergence.step if verdict.divergence else 0
    return max(0, min(first - len(recorded.steps), len(recorded.light)))
