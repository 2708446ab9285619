"""Check jobs whose steps cannot be observed (NumPy, pickle) by their checkpoints, files and last lines."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from orchestrator.model.resume import Lost, Omission, ResumeCheck, Resumed
from orchestrator.resume.scratch import Wish
from orchestrator.resume.seen import Attempt, Event

if TYPE_CHECKING:
    from orchestrator.resume.check import Context

_GENERATORS = {
    "made": Lost.GENERATOR_NUMPY,
    "numpy": Lost.GENERATOR_NUMPY,
    "python": Lost.GENERATOR_PYTHON,
    "instances": Lost.GENERATOR_PYTHON,
}


def check(context: Context, whole: Attempt) -> ResumeCheck:
    """Like resume.check, for a job without observed steps. Its checkpoints count as its steps."""
    chosen = _chosen(whole)
    if chosen is None:
        why = (
            "no step of a framework was observed, and no file that looks like a checkpoint was written twice"
        )
        return ResumeCheck(Resumed.NO_CHECKPOINT, why=why, not_compared=whole.recording.not_compared)
    total = max(each.count for each in whole.events if each.cycle == chosen.cycle)
    begun = ResumeCheck(
        Resumed.NOT_CHECKED,
        checkpoint=(_shown(whole, chosen),),
        steps=total,
        kept=chosen.count,
        killed=chosen.count,
    )
    states = context.root / "generators"
    killed = context.run(Wish(kill={"cycle": chosen.cycle, "write": chosen.count + 1}, states=states))
    if killed is None or not killed.was_killed:
        return replace(begun, why="the second run was not killed: it did not write that checkpoint again")
    context.scratch.keep()
    resumed = context.run(Wish(attempt=2))
    if resumed is None:
        return replace(begun, why="it took longer than the budget allows")
    if resumed.code != 0:
        last = next((line for line in reversed(resumed.said) if line.strip()), "it said nothing")
        failed = Omission(Lost.FAILED, detail=f"exit code {resumed.code}: {last[:200]}", confirmed=True)
        return replace(begun, verdict=Resumed.NOT_EXACT, omissions=(failed,))
    return _judged(context, replace(begun, resumed=chosen.count), whole, resumed, chosen)


def _chosen(whole: Attempt) -> Event | None:
    """Choose the middle one of the writes of a checkpoint: of the file that is restored first."""
    writes = [each for each in whole.events if each.event == "write"]
    most = {each.cycle: each.count for each in writes}
    leader = next((each.cycle for each in writes if most[each.cycle] > 1), None)
    able = [each for each in writes if each.cycle == leader and each.count < most[each.cycle]]
    return able[(len(able) - 1) // 2] if able else None


def _shown(whole: Attempt, chosen: Event) -> str:
    """Return the name under which a file remains: a file may be written under another name and renamed."""
    same = [each for each in whole.events if each.event == "write" and each.count == chosen.count]
    return next((each.file for each in same if each.file in whole.files), chosen.file)


def _judged(
    context: Context, begun: ResumeCheck, whole: Attempt, resumed: Attempt, chosen: Event
) -> ResumeCheck:
    differing = differing_files(whole, resumed)
    wrote = max((each.count for each in resumed.events if each.cycle == chosen.cycle), default=0)
    expected = begun.steps - chosen.count
    if not differing and wrote == expected:
        return replace(begun, verdict=Resumed.EXACT, compared=wrote)
    found = replace(begun, verdict=Resumed.NOT_EXACT)
    if wrote >= begun.steps:
        lost = Omission(Lost.EVERYTHING, (chosen.file,), 1, confirmed=True)
        return replace(found, resumed=0, omissions=(lost,))
    if wrote != expected:
        detail = f"{wrote} checkpoints instead of {expected} after the resumption"
        return replace(
            found, omissions=(Omission(Lost.LENGTH, (chosen.file,), detail=detail, confirmed=True),)
        )
    for which, kind in _GENERATORS.items():
        context.scratch.put_back()
        states = context.root / "generators"
        again = context.run(Wish(states=states, generators=which, attempt=2))
        found = replace(found, tried=found.tried + 1)
        if again and again.code == 0 and not differing_files(whole, again):
            return replace(found, omissions=(Omission(kind, differing[:5], confirmed=True),))
    return _unexplained(context, found, whole, differing)


def _unexplained(
    context: Context, found: ResumeCheck, whole: Attempt, differing: tuple[str, ...]
) -> ResumeCheck:
    """Nothing that was restored removed the difference: check whether the job repeats itself at all."""
    context.scratch.lay_out()
    again = context.run(Wish())
    if again and (unlike := differing_files(whole, again)):
        why = f"two runs without any break leave another content in {unlike[0]}"
        return replace(found, verdict=Resumed.UNSTABLE, why=why)
    return replace(found, omissions=(Omission(Lost.UNKNOWN, differing[:5]),))


def differing_files(whole: Attempt, other: Attempt) -> tuple[str, ...]:
    """Return the files of the uninterrupted run that differ in the other, or are missing there."""
    return tuple(sorted(name for name in whole.files if whole.files[name] != other.files.get(name)))
