"""Repeat the run unchanged: does it give the recorded result, and if not, what is unstable in it?"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from orchestrator.model import Tried, Verdict
from orchestrator.model.outcomes import Kind, Outcome, Stage
from orchestrator.parity.changes import changes
from orchestrator.parity.explain import (
    GENERATORS,
    HASHES,
    LISTINGS,
    OPERATIONS,
    OWN_SEEDS,
    SEEDS,
    THREADS,
    Place,
    Randomness,
    Remedy,
    describe_change,
    generators,
    place,
    unstable,
)
from orchestrator.parity.intervention import Candidate, Intervention
from orchestrator.parity.ladder import compare_stages, same_records_overall
from orchestrator.parity.naming import THEN_AND_NOW
from orchestrator.parity.recording import Recording
from orchestrator.parity.repeat_statistics import LEAST, repeats_needed, repeats_shown
from orchestrator.replay.replay import Replay
from orchestrator.replay.replayer import Replayer

_SEED = {"seed": 1}
_ALL = {**_SEED, "generators": True}

REMEDIES: tuple[tuple[Intervention, tuple[Remedy, ...]], ...] = (
    (Intervention(plan=_SEED), (SEEDS,)),
    (Intervention(plan={"generators": True}), (GENERATORS,)),
    (Intervention(plan=_ALL), (SEEDS, GENERATORS)),
    (Intervention(plan={"deterministic": True}), (OPERATIONS,)),
    (Intervention(plan={**_ALL, "seed_forced": True}), (OWN_SEEDS,)),
    (Intervention(plan={**_ALL, "deterministic": True}), (SEEDS, OPERATIONS)),
    (Intervention(plan={"listing": "sorted"}), (LISTINGS,)),
    (Intervention(plan={**_ALL, "seed_forced": True, "deterministic": True}), (OWN_SEEDS, OPERATIONS)),
)
"""Interventions, each with the remedies that are shown to work if runs with it are equal."""
HASH_SEEDS = tuple(Intervention(env={"PYTHONHASHSEED": str(seed)}) for seed in range(1, 5))


@dataclass(frozen=True)
class Baseline:
    """`own`: the repetition that interventions are compared with; if it is None, `obstacle` says why
    (`fault`: because orch itself failed).

    `differs`: the first place where the script differs from itself, with the `verdict` on that.
    """

    own: Replay | None = None
    obstacle: str = ""
    fault: bool = False
    differs: Place | None = None
    verdict: Verdict | None = None


def baseline(mine: Recording, runs: Replayer, until: float) -> Baseline:
    """Repeat the run as it was recorded, and compare the result.

    If the copied folder or the fork changes the result, later runs do without them; this is noted in `runs`.
    """
    own = _first(runs, until)
    if not own.recording.steps:
        return Baseline(obstacle=f"the run cannot be repeated here: {own.why}", fault=own.fault)
    differs = place(mine, own.recording)
    if differs is None:
        return Baseline(own)
    second = runs.run(Intervention(), until, again=1)
    if not second.recording.steps:
        return Baseline(obstacle=f"the run could not be repeated twice: {second.why}")
    if place(own.recording, second.recording) is None:
        found = _same_but_other(mine, own, runs, until)
        verdict = None if found.own else recheck_stability(own, runs, until, most=2)
        return replace(found, verdict=verdict, own=own, differs=(1, 0)) if verdict else found
    differs = place(own.recording, second.recording)
    return Baseline(own, differs=differs, verdict=_unstable(own, second, runs, until))


def _first(runs: Replayer, until: float) -> Replay:
    """Run in a copy that is mounted at the original path, because absolute paths lead there; elsewhere if
    mounts are not possible, and as a new process if a fork does not work.
    """
    if runs.original and runs.forks:
        before, runs.always = runs.always, runs.always | Intervention(path=runs.original)
        own = runs.run(Intervention(), until)
        if own.recording.steps:
            return own
        runs.always = before
    own = runs.run(Intervention(), until)
    if not own.recording.steps and runs.forks:
        runs.forks = False
        own = runs.run(Intervention(), until)
    return own


def recheck_stability(own: Replay, runs: Replayer, until: float, *, most: int = 1) -> Verdict | None:
    """Return the verdict on a script that was equal by chance at first and differs in one of up to `most`
    further runs; None if all are equal.
    """
    for again in range(1, most + 1):
        if until - time.monotonic() < runs.estimate(Intervention(), again):
            break
        other = runs.run(Intervention(), until, again=again)
        if other.recording.steps and place(own.recording, other.recording) is not None:
            return _unstable(own, other, runs, until)
    return None


def find_one_sided_nondeterminism(by: Candidate, runs: Replayer, until: float) -> Verdict | None:
    """Return the verdict on a script that is stable with this side's inputs and differs from itself with
    those of the other side.
    """
    before = runs.always
    runs.always = before | (by.imposed or Intervention())
    try:
        one, other = (runs.run(Intervention(), until, again=again) for again in (0, 1))
        found = _unstable(one, other, runs, until)
    finally:
        runs.always = before
    if found is None:
        return None
    besides = f"That is so on one side only, by this: {by.words}."
    fix = " ".join(filter(None, (found.fix, by.fix)))
    return replace(found, cause=f"{found.cause} {besides}", fix=fix).with_detail()


def _same_but_other(mine: Recording, own: Replay, runs: Replayer, until: float) -> Baseline:
    """Find out what repeating changed if the repetitions equal each other, but not the recording."""
    if runs.forks and until - time.monotonic() > runs.import_seconds + (runs.run_seconds or 0.0):
        before = runs.always
        runs.forks, runs.always = False, replace(before, path=None)
        alone = runs.run(Intervention(), until)
        if alone.recording.steps and place(mine, alone.recording) is None:
            return Baseline(alone)
        runs.forks, runs.always = True, before
    return hash_order(mine, runs, until) or Baseline(obstacle=_since(mine, own))


Remedies = tuple[tuple[Intervention, tuple[Remedy, ...]], ...]


def rank_remedies(a: Recording, b: Recording) -> Remedies:
    """Return REMEDIES for a script, the most probable first, from two of its runs.

    The states of its generators before the first step show whether it seeds them, and with what. If the
    states of both runs are equal, another seed cannot help, and none is tried.
    """
    usual = REMEDIES
    left, right = (side.environment.get("rng") or {} for side in (a, b))
    seeds = [(left.get(name), right.get(name)) for name in ("tensorflow_seed", "keras_seed")]
    states = [(left.get(name), right.get(name)) for name in ("python", "numpy")]
    if any(one is not None and one != other for one, other in seeds):
        first = [OWN_SEEDS]
    elif all(one is not None for one, _ in seeds) and all(one == other for one, other in states):
        finding = compare_stages(a, b).finding
        files = finding is not None and finding.stage == Stage.FILES
        rounds = finding is not None and finding.rounding
        seeding = {Randomness.GLOBAL_SEEDS, Randomness.CHANGING_SEED}
        usual = tuple(each for each in REMEDIES if not seeding & {one.kind for one in each[1]})
        first = [OPERATIONS] if rounds else [GENERATORS, LISTINGS] if files else [GENERATORS, OPERATIONS]
    else:
        first = [SEEDS]
    ranks = {remedy.kind: rank for rank, remedy in enumerate(first)}
    return tuple(sorted(usual, key=lambda each: max(ranks.get(one.kind, len(ranks)) for one in each[1])))


@dataclass(frozen=True)
class Stabilised:
    """`remedies`: what made the script stable, empty if nothing did; then `suspected` are probable causes."""

    remedies: tuple[Remedy, ...] = ()
    suspected: tuple[Remedy, ...] = ()
    tried: tuple[Tried, ...] = ()


def _unstable(own: Replay, other: Replay, runs: Replayer, until: float) -> Verdict | None:
    return _verdict(own.recording, other.recording, _find_remedies(own, other, runs, until))


def _verdict(a: Recording, b: Recording, stabilised: Stabilised) -> Verdict | None:
    outcome = compare_stages(a, b)
    if outcome.finding is None:
        return None
    return unstable(
        outcome.finding,
        stabilised.remedies,
        outcome.finding.step,
        outcome.compared,
        suspected=stabilised.suspected,
        tried=stabilised.tried,
    )


def _find_remedies(own: Replay, other: Replay, runs: Replayer, until: float) -> Stabilised:
    """Return the first remedy that keeps more runs equal than chance would."""
    results = _results([own, other, *_further(runs, Intervention(), until)])
    told: list[Tried] = []
    ordered = rank_remedies(own.recording, other.recording)
    for count, (imposed, remedies) in enumerate(ordered):
        words = _words(remedies, own, other)
        most = repeats_needed(results, count)
        equal, holds, failed = _equal(runs, imposed, until, most)
        if holds and equal >= most:
            where = runs.run(imposed, until).unseeded
            named = tuple(
                generators(where) if each.kind is Randomness.GENERATORS else each for each in remedies
            )
            told.append(
                Tried(
                    _words(named, own, other),
                    Outcome.CONFIRMED,
                    repeats_shown(equal, results),
                    Kind.PROBE,
                )
            )
            return Stabilised(named, tried=tuple(told))
        if holds:
            why = "the budget was used up" + (
                f" after {equal} equal runs, which may be luck" if equal else ""
            )
            told.append(Tried(words, Outcome.NOT_TRIED, why, Kind.PROBE))
            return Stabilised(suspected=remedies, tried=tuple(told))
        if failed:
            outcome = Outcome.INTERNAL_ERROR if failed.fault else Outcome.NOT_TRIED
            told.append(Tried(words, outcome, f"the run with it failed: {failed.why}", Kind.PROBE))
            continue
        told.append(Tried(words, Outcome.CLEARED, "with it fixed, runs still differ", Kind.PROBE))
    return Stabilised(
        suspected=(THREADS,) if _reordered(own.recording, other.recording) else (), tried=tuple(told)
    )


def _reordered(a: Recording, b: Recording) -> bool:
    """Return whether files or records are the same in a different order."""
    finding = compare_stages(a, b).finding
    if finding is None or finding.kind == "order":
        return finding is not None
    seen = finding.shows or finding
    group = seen.tensor.split("/")[0].split("#")[0]
    return seen.stage == Stage.BATCH and same_records_overall(a.steps, b.steps, group)


def _equal(runs: Replayer, imposed: Intervention, until: float, most: int) -> tuple[int, bool, Replay | None]:
    """Count the equal ones of up to `most` runs with this intervention; also returns whether none
    differed, and a run that failed.
    """
    first: Recording | None = None
    for again in range(most):
        if until - time.monotonic() < runs.estimate(imposed, again):
            return again, True, None
        trial = runs.run(imposed, until, again=again)
        found = trial.recording
        if not found.steps:
            return again, False, trial
        if first is not None and place(first, found) is not None:
            return again, False, None
        first = first or found
    return most, True, None


def _further(runs: Replayer, imposed: Intervention, until: float) -> list[Replay]:
    """Run once more if there is time: two runs say little about chance."""
    if until - time.monotonic() < runs.estimate(imposed, 2):
        return []
    third = runs.run(imposed, until, again=2)
    return [third] if third.recording.steps else []


def _results(trials: Sequence[Replay]) -> list[int]:
    """Return a number for each run, the same for equal results."""
    found: list[int] = []
    for trial in trials:
        same = (at for at, one in enumerate(trials) if place(one.recording, trial.recording) is None)
        found.append(next(same))
    return found


def _words(remedies: Sequence[Remedy], own: Replay, other: Replay) -> str:
    finding = compare_stages(own.recording, other.recording).finding
    return describe_change(remedies, finding.stage if finding else None)


def hash_order(mine: Recording, runs: Replayer, until: float) -> Baseline | None:
    """Find out whether Python's hash seed changes the result: forks share it, processes do not. Two seeds
    may give the same order, above all for small sets.
    """
    given = (mine.environment.get("hashing") or {}).get("seed", "random")
    first, *others = HASH_SEEDS
    if given != "random" or until - time.monotonic() < 2 * runs.estimate(first):
        return None
    one = runs.run(first, until)
    for imposed in others:
        if not one.recording.steps or until - time.monotonic() < runs.estimate(imposed):
            return None
        other = runs.run(imposed, until)
        if other.recording.steps and place(one.recording, other.recording) is not None:
            return _hashed(one, other, runs, until)
    return None


def _hashed(one: Replay, other: Replay, runs: Replayer, until: float) -> Baseline | None:
    """Two runs with different hash seeds differ: check whether runs with one seed are equal."""
    equal, holds, _ = _equal(runs, HASH_SEEDS[0], until, LEAST)
    if not holds:
        return None
    sure, results = equal >= LEAST, [0, 1]
    why = repeats_shown(equal, results) if sure else "the budget was used up"
    tried = (Tried(HASHES.words, Outcome.CONFIRMED if sure else Outcome.NOT_TRIED, why, Kind.PROBE),)
    stabilised = Stabilised((HASHES,) if sure else (), (HASHES,), tried)
    verdict = _verdict(one.recording, other.recording, stabilised)
    return Baseline(one, differs=place(one.recording, other.recording), verdict=verdict)


def _since(mine: Recording, own: Replay) -> str:
    found = changes(mine.environment, {**own.recording.environment, **_ours(mine)}, THEN_AND_NOW)
    said = "; ".join(change.words for change in found[:3])
    since = f": {said}" if said else ", and nothing recorded says in what"
    return f"repeated here, the run is not the one that was recorded{since}"


def _ours(mine: Recording) -> dict[str, object]:
    """Return facts that are stored beside a recording, not in it."""
    return {name: mine.environment[name] for name in ("variables", "cwd") if name in mine.environment}
