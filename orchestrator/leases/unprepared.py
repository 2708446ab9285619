"""Delete a machine that this call of `up` created and could not set up."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager

from orchestrator.errors import Interrupted, OrchError
from orchestrator.leases.down import down
from orchestrator.ledger import Holding, Lease, Ledger
from orchestrator.model import Progress
from orchestrator.session.project import Project


@contextmanager
def end_unprepared(project: Project, ledger: Ledger, *, keep: bool, tell: Progress) -> Iterator[None]:
    """If the block fails, delete the machine that it created, unless `keep`; the error says so.

    A machine that existed before, or that holds results, stays. A first interrupt deletes the machine too; a
    second one leaves it.
    """
    before = ledger.lease()
    try:
        yield
    except (Exception, KeyboardInterrupt) as error:
        made = None if keep else _made_since(before, ledger.lease())
        if made is None:
            raise
        told = _ended(project, before.id, made, tell)
        once_ended = error.once_ended if isinstance(error, OrchError) else None
        again = once_ended or shlex.join(["orch", "up", str(before.profile["path"])])
        again = "orch down" if ledger.lease().open else again
        if isinstance(error, OrchError):
            error.exists, error.next_command = told, again
            raise
        if isinstance(error, KeyboardInterrupt):
            raise Interrupted(told, again) from None
        tell.say(told)
        raise


def _made_since(before: Lease, now: Lease) -> Holding | None:
    """The machine created since then, if it may be deleted: no earlier call may have created it, and it has
    no results of a known run.
    """
    earlier = {holding.id for holding in before.holdings}
    unknown = any(not attempt.settled for attempt in before.attempts)
    if unknown or not now.open or now.uncollected or not (before.whole and now.whole):
        return None
    held = now.holding
    return held if held and held.id not in earlier and held.ended_at is None else None


def _ended(project: Project, lease: str, made: Holding, tell: Progress) -> str:
    """Close the lease; returns what became of its machine."""
    tell.say(f"Deleting {made.id}, which this call created and could not set up (use --keep to keep it)")
    try:
        report = down(lease, folder=project.root, discard=True, progress=tell)
    except (OrchError, OSError) as error:
        why = error.message if isinstance(error, OrchError) else str(error)
        return f"{made.id} could not be deleted: {why} It may cost ${made.price:.2f}/h until it is."
    except KeyboardInterrupt:
        return f"{made.id} may still be running, at ${made.price:.2f}/h: its deletion was interrupted."
    return f"{made.id} was deleted, and cost ${report.cost:.2f}. Nothing is running; nothing costs money."
