"""Complete an error: what still exists, its price and deadline, and the next command."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

from orchestrator.errors import LocalError, OrchError, RunFailed, UsageError
from orchestrator.ledger import Attempt, Holding, Lease, Ledger
from orchestrator.model import clouds
from orchestrator.session.machines import ends_itself

_UNPROVEN = ", and no timer is known to end it"


@contextmanager
def describe_remains(ledger: Ledger | None, profile: object = "PROFILE.yaml") -> Iterator[None]:
    """Complete the errors of the block by what the ledger knows to exist. An OSError becomes a LocalError.

    Without a ledger nothing was made yet. A UsageError says itself what is wrong.
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
        refused = LocalError(f"This computer refused: {error.strerror or error}{where}")
        _complete(refused, ledger.lease() if ledger else None, profile)
        raise refused from error


@contextmanager
def naming(ledger: Ledger | None, again: str) -> Iterator[None]:
    """As `telling`, for a verb that makes no machine: `again` is its command. OSErrors are not its business.

    How a run ended says itself what is left of it.
    """
    try:
        yield
    except (UsageError, RunFailed):
        raise
    except OrchError as error:
        _complete(error, ledger.lease() if ledger else None, again=again)
        raise


def _complete(error: OrchError, lease: Lease | None, profile: object = "", *, again: str = "") -> None:
    """Fill in what the error leaves open; what it says stays."""
    if error.exists is None:
        error.exists = _what(lease) if lease else "Nothing was created; nothing costs money."
    if error.next_command is not None:
        return
    costs = lease is not None and _maybe(lease) is not None
    if again:
        error.next_command = f"{again}    # or, to end what costs: orch down" if costs else again
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
        return f"A {maybe.instance_type} in {maybe.zone} may have been made, at ${maybe.price:.2f}/h{until}."
    return "Nothing was created; nothing costs money."


def _maybe(lease: Lease) -> Holding | Attempt | None:
    """Whatever may still cost: a machine not seen to end, or a create call without a known outcome."""
    held = [holding for holding in lease.holdings if holding.ended_at is None]
    open_ = [attempt for attempt in lease.attempts if not attempt.settled]
    if held:
        return held[-1]
    return open_[-1] if open_ else None


def _until(deadline: float | None) -> str:
    if deadline is None:
        return " until its deadline"
    return f" until {datetime.fromtimestamp(deadline, UTC):%Y-%m-%d %H:%M} UTC"
