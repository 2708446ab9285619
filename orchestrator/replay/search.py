"""Search for the smallest set of candidates that makes a repeated run equal to the other side's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from orchestrator.model import Progress, Reason, Subject, Tried, Verdict
from orchestrator.model.outcomes import Kind, Outcome
from orchestrator.parity import rounding_tolerance as band_
from orchestrator.parity.changes import changes
from orchestrator.parity.explain import ARITHMETIC, Diagnosis, Place, conclude, place
from orchestrator.parity.intervention import Candidate, Intervention, as_if_recorded, joined
from orchestrator.parity.ladder import Finding
from orchestrator.parity.places import named_alike
from orchestrator.parity.plan import brings_about
from orchestrator.parity.probes import rounding_perturbations
from orchestrator.parity.recording import STAGES, Recording
from orchestrator.parity.repeat_statistics import LEAST
from orchestrator.parity.smallest import smallest_sufficient
from orchestrator.replay.evidence import bypassed
from orchestrator.replay.replay import Replay
from orchestrator.replay.replayer import Replayer
from orchestrator.replay.sides import Clock, Sides
from orchestrator.replay.tried import WHY, tried_as


class Search:
    """One search. `own` is the run repeated unchanged; `self_place`: where the script differs from itself, or
    None."""

    def __init__(
        self,
        sides: Sides,
        runs: Replayer,
        clock: Clock,
        own: Replay,
        self_place: Place | None,
        tell: Progress,
    ) -> None:
        self._sides = sides
        self._runs = runs
        self._clock = clock
        self._own = own
        self._self_place = self_place
        self._tell = tell
        self._first = place(sides.a, sides.b)
        self._kind = ""
        self._tried: dict[int, Tried] = {}
        self._drifts: dict[str, tuple[str, band_.Drift]] = {}
        self._late: dict[int, str] = {}
        self._cut = False
        self._acting: tuple[Candidate, ...] = ()
        self._follows: frozenset[Subject] = frozenset()
        self._symptom: Candidate | None = None
        self.unsettles: Candidate | None = None
        """If nothing makes the runs equal: what of the other side makes the script differ from itself."""
        self.shaken = False
        """Whether a candidate made the runs equal in one run, but not in another."""

    def verdict(self, first: Verdict, finding: Finding, listed: Sequence[Candidate]) -> Verdict:
        """Return the verdict with what was found."""
        self._kind = finding.kind
        causes = self._known_causes(listed)
        self.unsettles = None if causes else self._unsettling(listed)
        apart = band_.measure_drift(self._sides.a, self._sides.b)
        rounding = finding.kind == "value" and finding.stage in band_.STAGES
        band = self._band(causes) if rounding and (finding.rounding or causes) else None
        self._follows = self._brought_about(causes)
        told = [self._told(each, causes) for each in self._opened(listed, causes)]
        diagnosis = Diagnosis(
            causes=causes,
            tried=tuple(each for each in told if each is not None),
            untried=self._untried(listed, causes),
            until=self._self_place,
            located=self._located(listed, causes),
            suspects=self._suspects(listed, causes),
            acting=self._acting if causes else (),
            symptom=self._symptom,
        )
        return conclude(first, finding, diagnosis, band, apart, self._sides.names)

    # ------------------------------------------------------------ searching

    def _known_causes(self, listed: Sequence[Candidate]) -> tuple[Candidate, ...]:
        """Return the causes; none if one of them is only a consequence of something that was not tried."""
        causes = self._causes(listed)
        for cause in causes:
            if any(brings_about(each, cause) and not self._was_tried(each) for each in listed):
                self._symptom = cause
                known = self._tried[id(cause)]
                self._tried[id(cause)] = replace(
                    known, outcome=Outcome.PART, why=WHY[Reason.SYMPTOM], reason=Reason.SYMPTOM
                )
                return ()
        return causes

    def _was_tried(self, each: Candidate) -> bool:
        known = self._tried.get(id(each))
        return known is not None and known.outcome not in _LEFT

    def _causes(self, listed: Sequence[Candidate]) -> tuple[Candidate, ...]:
        """Return what makes the runs equal; () if that was by chance."""
        found = self._enough_of(listed)
        if not found or not self._fickle(found):
            return found
        held, seen = self._again(found)
        self.shaken = held < seen
        for each in found:
            known = self._tried[id(each)]
            why = f"{known.why}, in each of {seen} runs" if seen > 1 else known.why
            lucky = tried_as(each, Outcome.CLEARED, Reason.CHANCE)
            self._tried[id(each)] = lucky if self.shaken else replace(known, why=why)
        return () if self.shaken else found

    def _enough_of(self, listed: Sequence[Candidate]) -> tuple[Candidate, ...]:
        """Try differences one by one, then several at once, then probes of unrecorded causes; last, replays
        that locate it."""
        able = [each for each in listed if each.imposed]
        parts: list[Candidate] = []
        for kind in (Kind.DIFFERENCE, Kind.PROBE):
            for each in (each for each in able if each.kind == kind):
                outcome = self._try(each, anyhow=not self._tried)
                if outcome == Outcome.CONFIRMED:
                    return self._deepest(each, able)
                if outcome == Outcome.PART:
                    parts.append(each)
            several = self._several(able, parts)
            if several:
                return several
        for each in (each for each in able if each.kind == Kind.DIFFERENCE and id(each) in self._late):
            if self._try(each, anyhow=True) == Outcome.CONFIRMED:
                return self._deepest(each, able)
        for each in (each for each in able if each.kind == Kind.REPLAY):
            if self._try(each) == Outcome.CONFIRMED:
                break
        return ()

    def _deepest(self, found: Candidate, able: Sequence[Candidate]) -> tuple[Candidate, ...]:
        """Return the sufficient candidate, or one that causes it, such as a variable that sets the number of
        threads."""
        self._acting = (found,)
        for each in able if found.kind == Kind.DIFFERENCE else ():
            untried = brings_about(each, found) and id(each) not in self._tried
            if untried and self._try(each) == Outcome.CONFIRMED:
                found = each
                break
        return self._narrowed((found,)) if found.parts else (found,)

    def _unsettling(self, listed: Sequence[Candidate]) -> Candidate | None:
        """Return the first difference with which two runs differ from each other."""
        for each in listed:
            known = self._tried.get(id(each))
            acts = known is not None and known.reason is Reason.OTHER_CHANGE
            if each.kind != Kind.DIFFERENCE or not acts or each.imposed is None:
                continue
            if not self._clock.allows(self._runs.estimate(each.imposed, 1)):
                return None
            one, other = (self._runs.run(each.imposed, self._clock.until, again=n) for n in (0, 1))
            if one.recording.steps and other.recording.steps and place(one.recording, other.recording):
                return each
        return None

    def _again(self, causes: Sequence[Candidate]) -> tuple[int, int]:
        """Return in how many runs with `causes` the other side's result was seen, and how many runs were
        made: LEAST, or as many as there is time for.

        A script that differs from itself, in the order of records or in rounding, sometimes gives the other
        side's result by chance.
        """
        together, seen = joined(causes), 1
        for again in range(1, LEAST):
            if not self._clock.allows(self._runs.estimate(together, again)):
                break
            trial = self._runs.run(together, self._clock.until, again=again)
            if not trial.recording.steps:
                break
            seen += 1
            if not self._explains(place(trial.recording, self._sides.theirs)):
                return seen - 1, seen
        return seen, seen

    def _fickle(self, causes: Sequence[Candidate]) -> bool:
        return (
            self._self_place is not None
            or self._kind == "order"
            or any(each.kind == Kind.PROBE or each.topic in _FICKLE for each in (*causes, *self._acting))
        )

    def _several(self, able: Sequence[Candidate], parts: Sequence[Candidate]) -> tuple[Candidate, ...]:
        """Try several differences at once; if they suffice, return the smallest sufficient subset.

        First those that changed the run by themselves; the folder's path last, because it seldom has an
        effect.
        """
        pool = [each for each in able if each.kind == Kind.DIFFERENCE or each in parts]
        pool.sort(key=lambda each: each not in parts)
        acting = [each for each in pool if self._acts(each)]
        inside = [each for each in pool if each.topic not in ("folder", "around")]
        asked: list[list[Candidate]] = []
        for some in (acting, inside, pool):
            if len(some) > 1 and some not in asked and self._enough(some):
                return self._narrowed(smallest_sufficient(some, self._enough))
            asked.append(some)
        return ()

    def _acts(self, each: Candidate) -> bool:
        known = self._tried.get(id(each))
        return known is not None and known.reason is not Reason.NO_CHANGE and self._was_tried(each)

    def _narrowed(self, causes: Sequence[Candidate]) -> tuple[Candidate, ...]:
        """Return the smallest sufficient subset, with groups split into their parts."""
        single = tuple(one for each in causes for one in each.parts or (each,))
        found = smallest_sufficient(single, self._enough) if single != tuple(causes) else single
        why = self._equal("with this alone")
        if len(found) > 1:
            why = self._equal("with all of this")
            why += "; whether less is enough was not tried" if self._cut else ", and with nothing less"
        for each in found:
            self._tried[id(each)] = tried_as(each, Outcome.CONFIRMED, Reason.EQUAL, why)
        return found

    def _enough(self, several: Sequence[Candidate]) -> bool:
        together = joined(several)
        if not self._clock.allows(self._runs.estimate(together)):
            self._cut = True
            return False
        trial = self._runs.run(together, self._clock.until)
        if not trial.recording.steps or self._bypassed(replace(several[0], imposed=together), trial):
            return False
        return self._explains(place(trial.recording, self._sides.theirs))

    def _try(self, each: Candidate, *, anyhow: bool = False) -> Outcome:
        """Run with one candidate. `anyhow`: even if it will probably take longer than the time that is
        left."""
        assert each.imposed is not None
        if not self._clock.allows(0.0):
            return Outcome.NOT_TRIED
        if not anyhow and not self._clock.allows(self._runs.estimate(each.imposed)):
            self._late[id(each)] = f"what was left of the {self._clock.budget:.0f} s would not have sufficed"
            return Outcome.NOT_TRIED
        trial = self._runs.run(each.imposed, self._clock.until)
        outcome, reason, why = self._outcome(each, trial)
        self._tell.say(f"  {outcome}: {each.words}")
        seconds = round(trial.seconds, 1)
        self._tried[id(each)] = tried_as(each, outcome, reason, why, seconds)
        if each.topic in ARITHMETIC and trial.recording.steps:
            self._drifts[each.topic] = (each.words, band_.measure_drift(self._own.recording, trial.recording))
        return outcome

    def _outcome(self, each: Candidate, trial: Replay) -> tuple[Outcome, Reason, str]:
        if trial.fault:
            return Outcome.INTERNAL_ERROR, Reason.FAULT, trial.why
        if not trial.recording.steps:
            return Outcome.NOT_TRIED, Reason.FAILED, f"the run with it failed: {trial.why}"
        if past := self._bypassed(each, trial):
            why = f"the run with it still reads {past}, by its absolute path"
            return Outcome.NOT_TRIED, Reason.BYPASSED, why
        now = place(trial.recording, self._sides.theirs)
        if self._explains(now):
            return Outcome.CONFIRMED, Reason.EQUAL, self._equal("with this alone")
        assert now is not None and self._first is not None
        if now > self._first:
            return Outcome.PART, Reason.LATER, WHY[Reason.LATER]
        same = place(trial.recording, self._own.recording) is None
        reason = Reason.NO_CHANGE if same else Reason.OTHER_CHANGE
        return Outcome.CLEARED, reason, WHY[reason]

    def _bypassed(self, each: Candidate, trial: Replay) -> str | None:
        if each.imposed is None or each.topic == "paths":
            return None
        mounted = self._runs.always.path is not None
        return bypassed(each.imposed, trial.recording.environment, self._sides, mounted=mounted)

    def _equal(self, how: str) -> str:
        names = self._sides.names
        mine, theirs = (names.of_a, names.of_b) if self._sides.base == "A" else (names.of_b, names.of_a)
        repeated = f"the first steps {mine}, repeated {how} changed, are"
        if self._self_place is None:
            return f"{repeated} bitwise identical to those {theirs}"
        step, stage = self._self_place
        where = f"step {step}, {STAGES[stage]}"
        return f"{repeated} equal to those {theirs} until the script differs from itself ({where})"

    def _explains(self, now: Place | None) -> bool:
        return now is None or (self._self_place is not None and now >= self._self_place)

    def _band(self, causes: Sequence[Candidate]) -> band_.RoundingTolerance | None:
        """Measure the rounding tolerance: run the rounding perturbations that were not run as candidates, as
        far as the budget allows.

        The effect of the cause itself counts only if there is no other measurement, because it is what is to
        be judged.
        """
        for flip in rounding_perturbations(self._sides.mine.environment):
            assert flip.imposed is not None
            if flip.topic in self._drifts or not self._clock.allows(self._runs.estimate(flip.imposed)):
                continue
            trial = self._runs.run(flip.imposed, self._clock.until)
            if trial.recording.steps:
                self._drifts[flip.topic] = (
                    flip.words,
                    band_.measure_drift(self._own.recording, trial.recording),
                )
        topics = {cause.topic for cause in (*causes, *self._acting)}
        others = [drift for topic, drift in self._drifts.items() if topic not in topics]
        return band_.calibrate(others) or band_.calibrate(self._drifts.values())

    # ------------------------------------------------------------ reporting

    def _opened(self, listed: Sequence[Candidate], causes: Sequence[Candidate]) -> list[Candidate]:
        """Expand groups that contain a cause into their parts."""
        guilty = {id(cause) for cause in causes}
        return [
            one
            for each in listed
            for one in (each.parts if any(id(part) in guilty for part in each.parts) else (each,))
        ]

    def _brought_about(self, causes: Sequence[Candidate]) -> frozenset[Subject]:
        """Return the differences of a repeated run that disappear when the causes are imposed."""
        together = joined(causes)
        trial = self._runs.run(together, self._clock.until) if causes else None
        if trial is None or not trial.recording.steps:
            return frozenset()
        a, b = self._sides.a.environment, self._sides.b.environment
        before = {change.subject for change in changes(a, b)}
        before &= self._differing(self._own.recording, Intervention())
        return frozenset(before - self._differing(trial.recording, together))

    def _differing(self, repeated: Recording, imposed: Intervention) -> set[Subject]:
        """Return the differences between a repeated run and the other side."""
        a, b = self._sides.a.environment, self._sides.b.environment
        now = as_if_recorded(repeated.environment, self._sides.mine.environment, imposed)
        a, b = named_alike(now, b) if self._sides.base == "A" else named_alike(a, now)
        return {change.subject for change in changes(a, b)}

    def _told(self, each: Candidate, causes: Sequence[Candidate]) -> Tried | None:
        known = self._tried.get(id(each))
        if causes and not any(each is one for one in causes) and self._is_brought_about(each):
            seconds = known.seconds if known else None
            return tried_as(each, Outcome.FOLLOWS, Reason.CONSEQUENCE, seconds=seconds)
        if known and not (each.topic == "folder" and known.outcome == Outcome.NOT_TRIED):
            return known
        if (causes or self._symptom) and each.kind != Kind.DIFFERENCE:
            return known
        if causes and not any(brings_about(each, cause) for cause in causes):
            return tried_as(each, Outcome.NOT_NEEDED, Reason.LEFT)
        if each.topic == "folder" and self._runs.always.path is None:
            return tried_as(each, Outcome.CLEARED, Reason.SAME_ELSEWHERE)
        if each.kind == Kind.REPLAY and Outcome.CONFIRMED in (one.outcome for one in self._tried.values()):
            return known  # one replay that locates it is enough
        why = each.why or self._late.get(id(each)) or f"the budget of {self._clock.budget:.0f} s was used up"
        return known or tried_as(each, Outcome.NOT_TRIED, None, why)

    def _is_brought_about(self, each: Candidate) -> bool:
        return self._follows.issuperset(each.subjects)

    def _untried(self, listed: Sequence[Candidate], causes: Sequence[Candidate]) -> str | None:
        if causes:
            return None
        told = [self._told(each, causes) for each in listed]
        left = [each.words for each in told if each and each.outcome in _LEFT]
        return f"Not tried: {'; '.join(left)}." if left else None

    def _suspects(self, listed: Sequence[Candidate], causes: Sequence[Candidate]) -> tuple[Candidate, ...]:
        """Return the differences that were not cleared: first those that explain a part, then those that were
        not tried; without symptoms and caches of libraries."""
        differences = [
            each
            for each in listed
            if each.kind == Kind.DIFFERENCE and each.topic != "cache" and each is not self._symptom
        ]
        told = [(each, self._told(each, causes)) for each in differences]
        order = (Outcome.PART, *_LEFT)
        return tuple(e for outcome in order for e, known in told if known and known.outcome == outcome)

    def _located(self, listed: Sequence[Candidate], causes: Sequence[Candidate]) -> str:
        if causes:
            return ""
        if words := self._symptom and self._symptom.words:
            return f"Confirmed: the difference lies in this: {words}. What sets it was not tried."
        for each in listed:
            known = self._tried.get(id(each))
            if each.kind == Kind.REPLAY and known and known.outcome == Outcome.CONFIRMED:
                return f"Confirmed: the difference lies in {each.words}, and in nothing after it."
        return ""


_LEFT = (Outcome.NOT_TRIED, Outcome.INTERNAL_ERROR)
_FICKLE = frozenset(("order", "cores", "threads", "determinism"))
"""Topics of causes that may only have changed the outcome of a race."""
