"""Attempts at a run that follow one another without a call, until it succeeds or `retry` allows no more.

Nothing is kept of this but the attempts themselves: a call that was killed anywhere is continued by the next
one, which finds the last attempt and how often it was begun again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from orchestrator.errors import RunFailed
from orchestrator.ledger import FIRST
from orchestrator.model import Progress, RunRecord
from orchestrator.model.outcomes import ExitReason
from orchestrator.profile import Profile
from orchestrator.runs.retries import retried_next, retried_until
from orchestrator.session.project import Project
from orchestrator.session.reach import MachineGone
from orchestrator.training.one_run import RunOptions


@dataclass(frozen=True)
class Course:
    """A run that may take several attempts.

    `attempt` makes one, or follows the one that goes on. `replace_machine` sees that the next one has a
    machine; it gets the record of the one that was interrupted, None where that had not begun. `own`: the
    machine was made for this run.
    """

    project: Project
    profile: Profile
    run_id: str
    attempt: Callable[[RunOptions], RunRecord]
    replace_machine: Callable[[RunRecord | None], None]
    tell: Progress
    own: bool


def until_it_ends(course: Course, wish: RunOptions) -> RunRecord:
    """The record of the attempt that succeeded. Raises what the last attempt raised, and what making a
    machine for another one did."""
    while True:
        try:
            return course.attempt(wish)
        except RunFailed as failed:
            wish = _next(course, wish, failed)
        except MachineGone as gone:
            wish = _next_unbegun(course, wish, gone)


def _next(course: Course, wish: RunOptions, failed: RunFailed) -> RunOptions:
    """What the next attempt is to be, with its machine. Raises `failed` where there is none."""
    record, limits = failed.record, course.profile.retry
    if not isinstance(record, RunRecord):
        raise failed
    retried = retried_next(course.project, record, limits)
    if retried is None:
        raise _used_up(failed, record)
    interrupted = ExitReason(record.exit["reason"]).interrupted
    count = retried.interruption if interrupted else retried.error
    most = limits.interruption if interrupted else limits.error
    said = record.exit.get("detail") or record.exit["reason"]
    course.tell.say(f"{course.run_id}: {said} It is begun again (retry {count} of {most})")
    if interrupted:
        course.replace_machine(record)
    return replace(wish, new_data=False, retry_failed=True, seen=record, retried=retried)


def _next_unbegun(course: Course, wish: RunOptions, gone: MachineGone) -> RunOptions:
    """The machine went before the job began: that is a retry, too, and leaves no attempt."""
    taken = gone.ending is not None and gone.ending.preempted
    ours = course.own or taken or wish.retried != FIRST
    more = replace(wish.retried, interruption=wish.retried.interruption + 1)
    if not ours or more.interruption > course.profile.retry.interruption:
        raise gone
    course.tell.say(f"{gone.message} Another is made for {course.run_id}")
    course.replace_machine(None)
    return replace(wish, new_data=False, retried=more)


def _used_up(failed: RunFailed, record: RunRecord) -> RunFailed:
    """The failure, which names how many attempts were made by themselves."""
    reason, used = ExitReason(record.exit["reason"]), retried_until(record)
    count = used.interruption if reason.interrupted else used.error if reason.retried_as_error else 0
    if count:
        times = "once" if count == 1 else f"{count} times"
        failed.message += f" It was begun again {times}, which is what `retry` of the profile allows."
    return failed
