"""A script that differs from itself: what makes it stable is what was missing."""

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
    Remedy,
    place,
    unstable,
)
from orchestrator.parity.ladder import climb
from orchestrator.parity.plan import Imposed
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
class Self:
    """A run compared with its own repetition. `verdict`: it is unstable; `obstacle`: it was not repeated."""

    verdict: Verdict | None = None
    obstacle: str | None = None


def diagnose(mine: Recording, own: Trial, runs: Runs, until: float) -> Self:
    """Why the repeated run `own` is not equal to the recording `mine`."""
    second = runs.run(Imposed(), until)
    if not second.recording.steps:
        return Self(obstacle=f"the run could not be repeated twice: {second.why}")
    if place(own.recording, second.recording) is None:
        return _between_processes(mine, own, runs, until)
    return Self(_verdict(own.recording, second.recording, _remedies(runs, until)))


def _verdict(a: Recording, b: Recording, remedies: tuple[Remedy, ...]) -> Verdict | None:
    outcome = climb(a, b)
    if outcome.finding is None:
        return None
    return unstable(outcome.finding, remedies, outcome.finding.step, outcome.compared)


def _remedies(runs: Runs, until: float) -> tuple[Remedy, ...]:
    for imposed, remedies in REMEDIES:
        if until - time.monotonic() < 2 * runs.estimate(imposed):
            return ()
        if _stable(runs, imposed, until):
            return remedies
    return ()


def _stable(runs: Runs, imposed: Imposed, until: float) -> bool:
    one, other = runs.run(imposed, until), runs.run(imposed, until)
    if not one.recording.steps or not other.recording.steps:
        return False
    return place(one.recording, other.recording) is None


def _between_processes(mine: Recording, own: Trial, runs: Runs, until: float) -> Self:
    """Two repetitions are equal to each other, not to the recording: hashes, or something changed since."""
    seeds = [Imposed(env={"PYTHONHASHSEED": seed}) for seed in ("1", "2")]
    given = (mine.environment.get("hashing") or {}).get("seed", "random")
    if given == "random" and until - time.monotonic() > sum(map(runs.estimate, seeds)):
        one, other = (runs.run(imposed, until) for imposed in seeds)
        if one.recording.steps and other.recording.steps and place(one.recording, other.recording):
            verdict = _verdict(one.recording, other.recording, (HASHES,))
            if verdict:
                return Self(verdict)
    found = changes(mine.environment, own.recording.environment)
    said = "; ".join(change.words for change in found[:3]).replace(" in A", " then").replace(" in B", " now")
    since = f": {said}" if said else ", and nothing recorded says in what"
    return Self(obstacle=f"repeated here, the run is not the one that was recorded{since}")
