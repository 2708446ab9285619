"""Delete a machine that this call of `up` created and could not set up."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from orchestrator.errors import Interrupted, OrchError
from orchestrator.leases.down import down
from orchestrator.ledger import Lease, Ledger
from orchestrator.model import Progress
from orchestrator.model.progress import notice
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
        made = None if keep else _made_since(before, ledger.lease(), isinstance(error, KeyboardInterrupt))
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
        notice(tell, told)
        raise


@dataclass(frozen=True)
class _Made:
    """A machine that this call created, or was creating when it was interrupted; `price` in $/h."""

    name: str
    price: float


def _made_since(before: Lease, now: Lease, interrupted: bool) -> _Made | None:
    """The machine created since then, if it may be deleted: no earlier call may have created it, and it has
    no results of a known run.
    """
    earlier = {holding.id for holding in before.holdings}
    unknown = any(not attempt.settled for attempt in before.attempts)
    if unknown or not now.open or now.uncollected or not (before.whole and now.whole):
        return None
    held = now.holding
    if held and held.ended_at is None:
        return None if held.id in earlier else _Made(held.id, held.price)
    if not interrupted or held:
        return None
    asked = [attempt.price for attempt in now.attempts[len(before.attempts) :] if not attempt.settled]
    return _Made("the machine that was being created", max(asked, default=0.0))


def _ended(project: Project, lease: str, made: _Made, tell: Progress) -> str:
    """Close the lease; returns what became of its machine."""
    notice(tell, f"Deleting {made.name}; it could not be set up (use --keep to keep it)")
    name = made.name[0].upper() + made.name[1:] if " " in made.name else made.name
    try:
        report = down(lease, folder=project.root, discard=True, progress=tell)
    except (OrchError, OSError) as error:
        why = error.message if isinstance(error, OrchError) else str(error)
        return f"{name} could not be deleted: {why} It may cost ${made.price:.2f}/h until it is."
    except KeyboardInterrupt:
        return f"{name} may still be running, at ${made.price:.2f}/h: its deletion was interrupted."
    if not report.machines:
        return "No machine was created; nothing costs money."
    return f"{name} was deleted, and cost ${report.cost:.2f}. Nothing is running; nothing costs money."
