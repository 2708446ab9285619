"""Complete an error with what still exists, its price and deadline, and the next command."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

from orchestrator.errors import NOTHING_CREATED, LocalError, OrchError, RunFailed, UsageError
from orchestrator.ledger import Attempt, Holding, Lease, Ledger
from orchestrator.model import clouds
from orchestrator.session.machines import ends_itself

_UNPROVEN = ", and no timer is known to end it"


@contextmanager
def describe_remains(ledger: Ledger | None, profile: object = "PROFILE.yaml") -> Iterator[None]:
    """Complete errors of the block with what the ledger knows to exist. An OSError becomes a LocalError.

    Without a ledger nothing was created yet. A UsageError is complete already.
    """
    try:
        yield
    except UsageError:
        raise
    except OrchError as error:
        _complete(error, ledger.lease() if ledger else None, profile)
        raise
    except OSError as error:
        where = f": {error.filename}" if error.filename else ""
        refused = LocalError(f"Error on this computer: {error.strerror or error}{where}")
        _complete(refused, ledger.lease() if ledger else None, profile)
        raise refused from error


@contextmanager
def naming(ledger: Ledger | None, again: str) -> Iterator[None]:
    """Like `describe_remains`, for a verb that creates no machine; `again` is its command. OSErrors pass
    through.

    Errors of a run's end pass through too: they are complete already.
    """
    try:
        yield
    except (UsageError, RunFailed):
        raise
    except OrchError as error:
        _complete(error, ledger.lease() if ledger else None, again=again)
        raise


def what_is_there(lease: Lease) -> str:
    """Return which runs are active on the lease's machine, as far as its ledger knows, and which left results
    there that are nowhere else: the end of a sentence about that machine. "" for none.
    """
    active, ended = lease.active, [run.run_id for run in lease.uncollected if run.exit_reason is not None]
    goes_on = f"{', '.join(active)} {'goes' if len(active) == 1 else 'go'} on there" if active else ""
    left = f"results of {', '.join(ended)} are on it only" if ended else ""
    return " and ".join(part for part in (goes_on, left) if part)


def command_to_fetch(lease: Lease) -> str:
    """Return the command that downloads what is on the machine only; of an active run, at its end.

    An active run that only the machine reported can be followed, but not continued.
    """
    if len(lease.active) == len(lease.uncollected):
        first = lease.runs[lease.active[0]]
        return f"orch {'logs -f' if first.found else 'watch'} {first.run_id}"
    return f"orch pull {lease.uncollected[0].run_id if len(lease.uncollected) == 1 else '--all'}"


def _complete(error: OrchError, lease: Lease | None, profile: object = "", *, again: str = "") -> None:
    """Fill in the missing fields of an error."""
    if error.exists is None:
        error.exists = _what(lease) if lease else NOTHING_CREATED
    if error.next_command is not None:
        return
    costs = lease is not None and _maybe(lease) is not None
    if again:
        error.next_command = f"{again}    # or, to stop the costs: orch down" if costs else again
    else:
        up = shlex.join(["orch", "up", str(lease.profile["path"] if lease else profile)])
        error.next_command = f"orch down    # or, once that is fixed: {up}" if costs else up


def _what(lease: Lease) -> str:
    maybe = _maybe(lease)
    if isinstance(maybe, Holding):
        until = _until(maybe.deadline) if ends_itself(lease, maybe) else _UNPROVEN
        return f"{maybe.id} is still running, at ${maybe.price:.2f}/h{until}."
    if isinstance(maybe, Attempt):
        kept = clouds.exists(lease.profile["cloud"]) and clouds.traits(lease.profile["cloud"]).keeps_deadlines
        until = _until(maybe.deadline) if kept else _UNPROVEN
        return (
            f"A {maybe.instance_type} in {maybe.zone} may have been created, at ${maybe.price:.2f}/h{until}."
        )
    return NOTHING_CREATED


def _maybe(lease: Lease) -> Holding | Attempt | None:
    """What may still cost money: a machine not confirmed gone, or a create call without a known result."""
    held = [holding for holding in lease.holdings if holding.ended_at is None]
    open_ = [attempt for attempt in lease.attempts if not attempt.settled]
    if held:
        return held[-1]
    return open_[-1] if open_ else None


def _until(deadline: float | None) -> str:
    if deadline is None:
        return " until its deadline"
    return f" until {datetime.fromtimestamp(deadline, UTC):%Y-%m-%d %H:%M} UTC"
