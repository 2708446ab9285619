"""Repeat attempts at a run within one call, until one succeeds or `retry` allows no more.

The only state is the attempts themselves: an interrupted call is continued by the next one, which finds the
last attempt and its number of retries.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from orchestrator.errors import RunFailed
from orchestrator.ledger import FIRST
from orchestrator.model import Progress, RunRecord
from orchestrator.model.outcomes import ExitReason
from orchestrator.model.progress import notice
from orchestrator.profile import Profile
from orchestrator.runs.retries import retried_next, retried_until
from orchestrator.session.project import Project
from orchestrator.session.reach import MachineGone
from orchestrator.training.options import RunOptions


@dataclass(frozen=True)
class RetriedRun:
    """A run that may take several attempts.

    `attempt` makes one, or follows an active one. `replace_machine` provides a machine for the next one; its
    argument is the record of the interrupted attempt, None if that had not started. `own`: the machine was
    created for this run.
    """

    project: Project
    profile: Profile
    run_id: str
    attempt: Callable[[RunOptions], RunRecord]
    replace_machine: Callable[[RunRecord | None], None]
    tell: Progress
    own: bool


def until_it_ends(course: RetriedRun, options: RunOptions) -> RunRecord:
    """Return the record of the attempt that succeeded.

    Raises the error of the last attempt, or of creating another machine.
    """
    while True:
        try:
            return course.attempt(options)
        except RunFailed as failed:
            options = _next(course, options, failed)
        except MachineGone as gone:
            options = _next_unbegun(course, options, gone)


def _next(course: RetriedRun, options: RunOptions, failed: RunFailed) -> RunOptions:
    """Return the options of the next attempt, with its machine ready. Raises `failed` if none is left."""
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
    notice(course.tell, f"{course.run_id}: {said} Retrying (retry {count} of {most})")
    if interrupted:
        course.replace_machine(record)
    asked = options.asked or options
    return replace(options, asked=asked, new_data=False, retry_failed=True, seen=record, retried=retried)


def _next_unbegun(course: RetriedRun, options: RunOptions, gone: MachineGone) -> RunOptions:
    """Retry after the machine was lost before the job started: this is a retry without an attempt."""
    taken = gone.ending is not None and gone.ending.preempted
    ours = course.own or taken or options.retried != FIRST
    more = replace(options.retried, interruption=options.retried.interruption + 1)
    if not ours or more.interruption > course.profile.retry.interruption:
        raise gone
    notice(course.tell, f"{gone.message} Creating another machine for {course.run_id}")
    course.replace_machine(None)
    return replace(options, asked=options.asked or options, new_data=False, retried=more)


def _used_up(failed: RunFailed, record: RunRecord) -> RunFailed:
    """Return the failure, with the number of retries that were made."""
    reason, used = ExitReason(record.exit["reason"]), retried_until(record)
    count = used.interruption if reason.interrupted else used.error if reason.retried_as_error else 0
    if count:
        times = "once" if count == 1 else f"{count} times"
        failed.message += f" It was retried {times}, the limit set by `retry` in the profile."
    return failed
