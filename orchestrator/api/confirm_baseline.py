"""The run repeated as it was: is it the one that was recorded, and if not, what is unstable in it?"""

from __future__ import annotations

import time
from dataclasses import dataclass

from orchestrator.api.confirm_runs import Runs, Trial
from orchestrator.model import Verdict
from orchestrator.parity.changes import changes
from orchestrator.parity.explain import (
    GENERATORS,
    HASHES,
    LISTINGS,
    OPERATIONS,
    OWN_SEEDS,
    SEEDS,
    Place,
    Remedy,
    generators,
    place,
    unstable,
)
from orchestrator.parity.imposed import Imposed
from orchestrator.parity.ladder import climb
from orchestrator.parity.recording import Recording

_SEED = {"seed": 1}
_ALL = {**_SEED, "generators": True}

REMEDIES: tuple[tuple[Imposed, tuple[Remedy, ...]], ...] = (
    (Imposed(plan=_SEED), (SEEDS,)),
    (Imposed(plan={"generators": True}), (GENERATORS,)),
    (Imposed(plan=_ALL), (SEEDS, GENERATORS)),
    (Imposed(plan={"deterministic": True}), (OPERATIONS,)),
    (Imposed(plan={**_ALL, "seed_forced": True}), (OWN_SEEDS,)),
    (Imposed(plan={**_ALL, "deterministic": True}), (SEEDS, OPERATIONS)),
    (Imposed(plan={"listing": "sorted"}), (LISTINGS,)),
    (Imposed(plan={**_ALL, "seed_forced": True, "deterministic": True}), (OWN_SEEDS, OPERATIONS)),
)
"""What to impose, twice each, and what it says about the script where the two runs are then equal."""


@dataclass(frozen=True)
class Baseline:
    """`own` is the repetition that counterfactuals are measured against; None where there is none, and
    `obstacle` says why. `differs`: where the script differs from itself, with the `verdict` on that."""

    own: Trial | None = None
    obstacle: str = ""
    differs: Place | None = None
    verdict: Verdict | None = None


def baseline(mine: Recording, runs: Runs, until: float) -> Baseline:
    """Repeat the run as it was recorded.

    Where the copy of the folder or the fork changes the run, later runs go without them (`runs` is told).
    """
    own = runs.run(Imposed(), until)
    if not own.recording.steps and runs.forks:
        runs.forks = False
        own = runs.run(Imposed(), until)
    if not own.recording.steps:
        return Baseline(obstacle=f"the run cannot be repeated here: {own.why}")
    differs = place(mine, own.recording)
    if differs is None:
        return Baseline(own)
    second = runs.run(Imposed(), until, again=1)
    if not second.recording.steps:
        return Baseline(obstacle=f"the run could not be repeated twice: {second.why}")
    if place(own.recording, second.recording) is None:
        return _same_but_other(mine, own, runs, until)
    ordered = likely(own.recording, second.recording)
    verdict = _verdict(own.recording, second.recording, _remedies(ordered, runs, until), ordered[0][1])
    return Baseline(own, differs=place(own.recording, second.recording), verdict=verdict)


def restless(own: Trial, runs: Runs, until: float) -> Verdict | None:
    """The verdict on a script that was the same by luck the first time, and is not the second time; None
    where it still is."""
    second = runs.run(Imposed(), until, again=1)
    if not second.recording.steps or place(own.recording, second.recording) is None:
        return None
    return _verdict(own.recording, second.recording, (), likely(own.recording, second.recording)[0][1])


def _same_but_other(mine: Recording, own: Trial, runs: Runs, until: float) -> Baseline:
    """Repetitions are equal to each other, not to the recording: what did repeating change?"""
    if runs.original and runs.forks:
        runs.always = Imposed(path=runs.original)
        there = runs.run(Imposed(), until)
        if there.recording.steps and place(mine, there.recording) is None:
            return Baseline(there)
        runs.always = Imposed()
    if runs.forks and until - time.monotonic() > runs.import_seconds + (runs.run_seconds or 0.0):
        runs.forks = False
        alone = runs.run(Imposed(), until)
        if alone.recording.steps and place(mine, alone.recording) is None:
            return Baseline(alone)
        runs.forks = True
    return _hashes(mine, runs, until) or Baseline(obstacle=_since(mine, own))


Remedies = tuple[tuple[Imposed, tuple[Remedy, ...]], ...]


def likely(a: Recording, b: Recording) -> Remedies:
    """REMEDIES for a script of which `a` and `b` are two runs, the most probable first.

    Where its generators stood before the first step tells whether it seeds them, and with what.
    """
    left, right = (side.environment.get("rng") or {} for side in (a, b))
    seeds = [(left.get(name), right.get(name)) for name in ("tensorflow_seed", "keras_seed")]
    states = [(left.get(name), right.get(name)) for name in ("python", "numpy")]
    if any(one is not None and one != other for one, other in seeds):
        first = [OWN_SEEDS]
    elif all(one is not None for one, _ in seeds) and all(one == other for one, other in states):
        finding = climb(a, b).finding
        files = finding is not None and finding.stage == "files"
        rounds = finding is not None and finding.rounding
        first = [OPERATIONS] if rounds else [GENERATORS, LISTINGS] if files else [GENERATORS, OPERATIONS]
    else:
        first = [SEEDS]
    ranks = {remedy.words: rank for rank, remedy in enumerate(first)}
    return tuple(sorted(REMEDIES, key=lambda each: max(ranks.get(one.words, len(ranks)) for one in each[1])))


def _verdict(
    a: Recording, b: Recording, remedies: tuple[Remedy, ...], suspected: tuple[Remedy, ...]
) -> Verdict | None:
    outcome = climb(a, b)
    if outcome.finding is None:
        return None
    return unstable(outcome.finding, remedies, outcome.finding.step, outcome.compared, suspected=suspected)


def _remedies(ordered: Remedies, runs: Runs, until: float) -> tuple[Remedy, ...]:
    for imposed, remedies in ordered:
        if until - time.monotonic() < 2 * runs.estimate(imposed):
            return ()
        if _stable(runs, imposed, until):
            where = runs.run(imposed, until).unseeded
            return tuple(generators(where) if each is GENERATORS else each for each in remedies)
    return ()


def _stable(runs: Runs, imposed: Imposed, until: float) -> bool:
    one, other = runs.run(imposed, until), runs.run(imposed, until, again=1)
    if not one.recording.steps or not other.recording.steps:
        return False
    return place(one.recording, other.recording) is None


def _hashes(mine: Recording, runs: Runs, until: float) -> Baseline | None:
    """What Python's hashes do, which forks have in common and processes have not."""
    seeds = [Imposed(env={"PYTHONHASHSEED": seed}) for seed in ("1", "2")]
    given = (mine.environment.get("hashing") or {}).get("seed", "random")
    if given != "random" or until - time.monotonic() < sum(map(runs.estimate, seeds)):
        return None
    one, other = (runs.run(imposed, until) for imposed in seeds)
    if not one.recording.steps or not other.recording.steps:
        return None
    differs = place(one.recording, other.recording)
    verdict = _verdict(one.recording, other.recording, (HASHES,), ())
    return Baseline(one, differs=differs, verdict=verdict) if differs else None


def _since(mine: Recording, own: Trial) -> str:
    found = changes(mine.environment, {**own.recording.environment, **_ours(mine)})
    said = "; ".join(change.words for change in found[:3]).replace(" in A", " then").replace(" in B", " now")
    since = f": {said}" if said else ", and nothing recorded says in what"
    return f"repeated here, the run is not the one that was recorded{since}"


def _ours(mine: Recording) -> dict[str, object]:
    """Facts that are noted beside a recording, not in it."""
    return {name: mine.environment[name] for name in ("variables", "cwd") if name in mine.environment}
