"""Confirm the cause of a difference by repeating the first steps here, with one intervention at a time."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from orchestrator.model import Progress, Tried, Verdict
from orchestrator.model.outcomes import Conclusion, Kind, Outcome, Stage
from orchestrator.parity.changes import Change, Facts, changes
from orchestrator.parity.explain import besides, place
from orchestrator.parity.intervention import Candidate, Intervention, Other
from orchestrator.parity.ladder import Finding, compare_stages
from orchestrator.parity.plan import candidates
from orchestrator.parity.recording import Recording
from orchestrator.parity.verdict import absorbed
from orchestrator.replay.baseline import (
    baseline,
    find_one_sided_nondeterminism,
    hash_order,
    recheck_stability,
)
from orchestrator.replay.evidence import own_places, seen_by_both
from orchestrator.replay.recipe import KEPT
from orchestrator.replay.replay import cores
from orchestrator.replay.replayer import Replayer
from orchestrator.replay.search import Search
from orchestrator.replay.sides import Clock, Sides
from orchestrator.replay.working_folders import Tree, not_sent, only_listed, unseen

__all__ = ["BUDGET", "Sides", "confirm", "imitation_of", "is_confirmable", "light_steps"]

BUDGET = 120.0
"""Default of the seconds that confirming may take."""


def confirm(sides: Sides, first: Verdict, runs: Replayer, budget: float, tell: Progress) -> Verdict:
    """Return the verdict `first` on two recordings, confirmed as far as the budget (in seconds) allows."""
    clock = Clock(budget)
    tell.say(f"Confirming: the first steps again, for at most {budget:.0f} s")
    finding = _finding(sides)
    listed = _candidates(sides, finding, runs)
    runs.warm(Intervention())
    runs.warm(next((each.imposed for each in listed if each.imposed), Intervention()))
    begin = baseline(sides.mine, runs, clock.until)
    if begin.own is None:
        failed = Tried("the run as it was, repeated", Outcome.INTERNAL_ERROR, begin.obstacle)
        told = (*first.tried, failed) if begin.fault else first.tried
        return replace(first, tried=told, untried=f"Nothing could be confirmed: {begin.obstacle}.")
    if begin.verdict and begin.differs and begin.differs <= (place(sides.a, sides.b) or begin.differs):
        return begin.verdict
    search = Search(sides, runs, clock, begin.own, begin.differs, tell)
    found = search.verdict(first, finding, listed)
    if search.unsettles and begin.differs is None:
        return find_one_sided_nondeterminism(search.unsettles, runs, clock.until) or found
    if begin.differs is not None:
        return besides(found, begin.verdict) if begin.verdict else found
    shaky = recheck_stability(begin.own, runs, clock.until, most=3 if search.shaken else 1)
    if shaky is None and not found.confirmed:  # the first repetition may have had that order by chance
        hashed = hash_order(sides.mine, runs, clock.until)
        shaky = hashed.verdict if hashed else None
    return shaky or found


def _finding(sides: Sides) -> Finding:
    """Return the first difference; runs of different length differ at the end of the shorter one."""
    outcome = compare_stages(sides.a, sides.b)
    if outcome.finding:
        return outcome.finding
    return Finding(outcome.steps + 1, Stage.STEPS, "", "count", "", None, 0, None, False, None)


def _candidates(sides: Sides, finding: Finding, runs: Replayer) -> list[Candidate]:
    """Return recorded differences, then differing files that no run was seen to read, then probes."""
    found = changes(sides.a.environment, sides.b.environment, sides.names)
    known = candidates(finding, found, sides.base, sides.mine.environment, sides.other, sides.names)
    seen = _seen(found, (sides.a.environment, sides.b.environment), sides.other.beside)
    base, imitated, called = sides.base, "B" if sides.base == "A" else "A", sides.names
    mine = Tree(runs.original, sides.observe, frozenset(runs.rerun.made), base)
    theirs = Tree(sides.other.folder, sides.other.observe, sides.other.made, imitated)
    if any(change.topic == "start" for change in found):
        mine = theirs  # started from different folders, equal names are different files
    more = unseen(mine, theirs, seen, sides.mine.environment, called)
    differences = [each for each in known if each.kind == Kind.DIFFERENCE]
    early = finding.stage in (Stage.BATCH, Stage.INITIAL, Stage.FILES, Stage.STEPS)
    listed = only_listed(mine, theirs, called) if early else ()
    unsent = not_sent(runs.original, sides.unsent, base, called) if early and runs.original else ()
    rest = (each for each in known if each.kind != Kind.DIFFERENCE)
    places = own_places(runs.rerun, sides.mine.environment, sides.other)
    return [seen_by_both(each, places) for each in (*differences, *unsent, *more, *listed, *rest)]


def _seen(found: Iterable[Change], facts: Sequence[Facts], beside: Path | None) -> set[str]:
    """Return the differing files and modules, by their recorded names and by their paths from the working
    folder.
    """
    seen: set[str] = set()
    folders = [str(side["cwd"]) for side in facts if side.get("cwd")]
    for change in found:
        if change.topic == "data":
            paths = [str(entry.get("path", "")) for entry in (change.a, change.b) if entry]
            inside = [(path, folder) for path in paths for folder in folders if path.startswith(f"{folder}/")]
            seen |= {change.name, *(os.path.relpath(path, folder) for path, folder in inside)}
        elif change.topic == "source":
            places = [os.path.relpath(beside, folder) for folder in folders] if beside else []
            seen |= {*change.a, *(os.path.normpath(f"{p}/{name}") for p in places for name in change.a)}
    return seen


def imitation_of(
    folder: Path,
    recording: Recording,
    python: str | None = None,
    cwd: Path | None = None,
    made: Iterable[str] = (),
    beside: Path | None = None,
) -> Other:
    """Return the side to imitate: `folder` holds its recording; `python`, `cwd` and `beside` (the folder of
    its program) are its own, if they are on this computer; `made` are the files in `cwd` that its run
    created."""
    kept = folder / KEPT if (folder / KEPT).is_dir() else None
    return Other(
        recording.environment, folder / "observe", cwd, python, cores(), kept, frozenset(made), beside
    )


def is_confirmable(verdict: Verdict, a: Recording, b: Recording) -> bool:
    """Return whether there is a difference to explain that changes results."""
    if verdict.verdict not in (Conclusion.EQUIVALENT, Conclusion.DIVERGENT):
        return False
    finding = compare_stages(a, b).finding
    return finding is None or not absorbed(a, b, finding)


def light_steps(verdict: Verdict, recorded: Recording) -> int:
    """Return how many steps to fingerprint in a repeated run: up to the first difference, if it is among
    them.
    """
    first = verdict.divergence.step if verdict.divergence else 0
    return max(0, min(first - len(recorded.steps), len(recorded.light)))
