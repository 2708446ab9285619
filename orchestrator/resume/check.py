"""The resume check: an uninterrupted run, one that is killed after a checkpoint and resumed, and the cause of
a difference.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from orchestrator.model import Agent
from orchestrator.model.counted import counted
from orchestrator.model.resume import VARIABLES, Lost, Omission, ResumeCheck, Resumed
from orchestrator.resume import plain
from orchestrator.resume.imposition import keep_batches, keep_variables
from orchestrator.resume.judge import explain, first_difference, prefix_difference
from orchestrator.resume.scratch import STEPS, Command, Originals, Scratch, Wish
from orchestrator.resume.seen import Attempt, Event

_ROUNDS = 4
"""Maximum number of omissions that are restored in turn, each together with those before it."""

_FOLLOWING = VARIABLES | {Lost.PATIENCE, Lost.BEST, Lost.EPOCH}
"""Omissions that may be reported beside a restored cause. Others may be a side effect of the restoration."""

_DATA = frozenset((Lost.DATA_POSITION, Lost.DATA_ORDER))


RESUME_BUDGET = 1800.0
"""Default seconds for all attempts together."""


@dataclass(frozen=True)
class Context:
    """A check in progress. No attempt continues after `until`, on the clock of time.monotonic()."""

    scratch: Scratch
    root: Path
    until: float
    say: Callable[[str], None]

    def run(self, wish: Wish) -> Attempt | None:
        return self.scratch.run(wish, self.until, self.say)


def check_in_copies(
    command: Command,
    originals: Originals,
    agent: Agent,
    folders: Sequence[str],
    budget: float,
    say: Callable[[str], None],
) -> ResumeCheck:
    """Check `command` in copies of `originals`, which are removed; `folders` are those of its checkpoints."""
    with tempfile.TemporaryDirectory(prefix="orch-resume-", ignore_cleanup_errors=True) as made:
        root = Path(made).resolve()
        return check(Scratch(command, originals, agent, root, folders), root, budget, say)


def check(scratch: Scratch, root: Path, budget: float, say: Callable[[str], None]) -> ResumeCheck:
    """Check the job in `scratch`, whose folder is `root`, within `budget` seconds."""
    context = Context(scratch, root, time.monotonic() + budget, say)
    whole = _whole(context)
    if isinstance(whole, ResumeCheck):
        return whole
    if not whole.recording.steps:
        return plain.check(context, whole)
    chosen = _chosen(whole)
    if chosen is None:
        return _none(whole)
    killed = context.run(Wish(kill={"checkpoint": chosen.number}))
    if killed is None:
        return _late()
    begun = ResumeCheck(
        Resumed.NOT_CHECKED,
        checkpoint=chosen.files,
        steps=len(whole.recording.steps),
        kept=chosen.step,
        killed=len(killed.recording.steps),
        not_compared=whole.recording.not_compared,
    )
    if unstable := _unstable(begun, whole, killed):
        return unstable
    if not killed.was_killed:
        return replace(begun, why="the second run wrote no such checkpoint, so it was not killed")
    scratch.keep()
    resumed = context.run(Wish(attempt=2))
    if resumed is None:
        return _late()
    return _judged(context, begun, whole, resumed)


def _whole(context: Context) -> Attempt | ResumeCheck:
    """Run the job without interruption, in a folder without checkpoints of other runs."""
    context.scratch.lay_out()
    whole = context.run(Wish())
    left = _of_other_runs(context, whole)
    context.scratch.lay_out(left)
    if left and whole:
        whole = context.run(Wish())
        context.scratch.lay_out(left)
    if whole is None:
        return _late()
    if whole.code != 0:
        why = f"the job fails without any break (exit code {whole.code}): {_last(whole)}"
        return ResumeCheck(Resumed.NOT_CHECKED, why=why)
    if len(whole.recording.steps) >= STEPS:
        why = f"it makes more than {counted(STEPS, 'step')}: check it with fewer epochs or less data"
        return ResumeCheck(Resumed.NOT_CHECKED, steps=STEPS, why=why)
    return whole


def _of_other_runs(context: Context, whole: Attempt | None) -> frozenset[str]:
    """Return the checkpoints that were in the folder before: the job would resume from them."""
    written = {name for each in whole.events for name in (*each.files, each.file)} if whole else set()
    return frozenset(name for name in written if name and context.scratch.existed(name))


def _chosen(whole: Attempt) -> Event | None:
    """Choose the middle checkpoint of those that are followed by steps which a resumed run can repeat."""
    steps = len(whole.recording.steps)
    able = [each for each in whole.checkpoints if each.step < steps]
    return able[(len(able) - 1) // 2] if able else None


def _unstable(begun: ResumeCheck, whole: Attempt, killed: Attempt) -> ResumeCheck | None:
    differs = prefix_difference(whole.recording, killed.recording)
    if differs is None:
        return None
    why = (
        f"two runs without any resumption differ in step {differs.step}, {differs.stage}: {differs.names[0]}"
    )
    return replace(begun, verdict=Resumed.UNSTABLE, why=why)


def _judged(context: Context, begun: ResumeCheck, whole: Attempt, resumed: Attempt) -> ResumeCheck:
    if resumed.code != 0:
        failed = Omission(Lost.FAILED, detail=f"exit code {resumed.code}: {_last(resumed)}", confirmed=True)
        return replace(begun, verdict=Resumed.NOT_EXACT, omissions=(failed,))
    if not resumed.recording.steps:
        why = "after the restart it made no step, and said nothing of a fault"
        lost = Omission(Lost.LENGTH, detail=f"0 steps instead of {begun.steps - begun.kept}", confirmed=True)
        return replace(begun, verdict=Resumed.NOT_EXACT, omissions=(lost,), why=why)
    after, omissions, differs = explain(whole, resumed, begun.kept)
    equal = (differs.step - 1 - after) if differs else min(len(resumed.recording.steps), begun.steps - after)
    found = replace(begun, resumed=after, compared=max(0, equal))
    if not omissions:
        return replace(found, verdict=Resumed.EXACT)
    return _confirmed(context, replace(found, verdict=Resumed.NOT_EXACT), whole, omissions)


def _confirmed(
    context: Context, found: ResumeCheck, whole: Attempt, omissions: list[Omission]
) -> ResumeCheck:
    """Restore the first cause, then whatever differs next, until the resumed run is bitwise identical."""
    causes = [omissions[0]]
    for tried in range(1, _ROUNDS + 1):
        wish = _wish(context, whole, found.resumed, causes, tried)
        if wish is None:
            break
        context.scratch.put_back()
        again = context.run(wish)
        if again is None or again.code != 0:
            break
        found = replace(found, tried=tried)
        left = _left(whole, again, found.resumed)
        if not left:
            return replace(found, omissions=tuple(replace(each, confirmed=True) for each in causes))
        if left[0].lost not in _FOLLOWING or left[0].lost in {each.lost for each in causes}:
            break
        causes.append(left[0])
    if causes[0].lost in (Lost.EVERYTHING, Lost.LENGTH):
        causes[0] = replace(causes[0], confirmed=True)
    return replace(found, omissions=tuple(causes))


def _left(whole: Attempt, again: Attempt, after: int) -> list[Omission]:
    """Return what still differs. Batches that were restored do not come from the program's own position."""
    if not again.recording.steps:
        return [Omission(Lost.UNKNOWN)]
    differs = first_difference(whole.recording.steps, again.recording.steps, after)
    _, omissions, _ = explain(whole, again, after)
    if differs is None and not omissions:
        return []
    return omissions or [Omission(Lost.UNKNOWN)]


def _wish(context: Context, whole: Attempt, after: int, causes: list[Omission], number: int) -> Wish | None:
    """Return an attempt in which these are restored; None if one of them cannot be."""
    wish = Wish(attempt=2)
    held = [each for each in causes if each.lost in VARIABLES and each.names]
    if held:
        folder = context.root / f"variables-{number}"
        if not keep_variables(whole.recording, after, held, folder):
            return None
        wish = replace(wish, variables=folder)
    if any(each.lost in _DATA for each in causes):
        folder = context.root / f"batches-{number}"
        if not keep_batches(whole.recording, after, folder):
            return None
        wish = replace(wish, batches=folder)
    if any(each.lost in (Lost.PATIENCE, Lost.BEST) for each in causes):
        wish = replace(wish, callbacks=whole.epochs[after].callbacks)
    return None if wish == Wish(attempt=2) else wish


def _none(whole: Attempt) -> ResumeCheck:
    late = [each for each in whole.events if each.event == "checkpoint"]
    steps = len(whole.recording.steps)
    why = "it wrote no file that looks like a checkpoint while it trained"
    if late:
        why = f"its only checkpoints ({', '.join(late[0].files[:2])}) are written before the first step"
    return ResumeCheck(Resumed.NO_CHECKPOINT, steps=steps, why=why, not_compared=whole.recording.not_compared)


def _late() -> ResumeCheck:
    return ResumeCheck(Resumed.NOT_CHECKED, why="it took longer than the budget allows")


def _last(attempt: Attempt) -> str:
    return next((line.strip()[:200] for line in reversed(attempt.said) if line.strip()), "it said nothing")
