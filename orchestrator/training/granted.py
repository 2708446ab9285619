"""What lets a machine put a run's checkpoints and results into the store of its profile by itself."""

from __future__ import annotations

from datetime import datetime

from orchestrator.errors import OrchError
from orchestrator.ledger import LeasedRun
from orchestrator.model import store_keys
from orchestrator.model.plain import moment
from orchestrator.model.stores import Grant
from orchestrator.session.session import Session
from orchestrator.storage import open_store

_AFTER_S = 600.0
"""Seconds after the machine's deadline until which the grant goes."""


def upload_grant(session: Session, run: LeasedRun) -> Grant | None:
    """A grant for one attempt at a run, until after its machine's end. None where the store, or who calls,
    can give none: what the run leaves then goes through the call that follows it."""
    if not session.profile.store:
        return None
    lease = session.ledger.lease()
    ends = lease.deadline or lease.now()
    try:
        store = open_store(session.profile.store)
        prefix = f"{store_keys.attempt(run.run_id, run.attempt)}/"
        grant = store.grant(prefix, max(0.0, ends - lease.now()) + _AFTER_S)
    except OrchError as error:
        session.progress.say(f"The machine itself cannot put anything into {session.profile.store}: {error}")
        return None
    if grant is not None and grant.expires.timestamp() < _here(ends, lease.now()):
        session.progress.say(
            f"The machine can put results into {session.profile.store} by itself until "
            f"{moment(grant.expires.timestamp())}, when the credentials here end"
        )
    return grant


def _here(then: float, now: float) -> float:
    """A time of the lease's clock by the clock of this computer."""
    return datetime.now().astimezone().timestamp() + (then - now)
