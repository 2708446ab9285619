"""Permission for a machine to upload a run's checkpoints and results to the profile's store by itself."""

from __future__ import annotations

import time

from orchestrator.errors import OrchError
from orchestrator.ledger import LeasedRun
from orchestrator.model import store_keys
from orchestrator.model.plain import moment
from orchestrator.model.progress import notice
from orchestrator.model.stores import Grant
from orchestrator.profile.values import is_bucket
from orchestrator.session.session import Session
from orchestrator.storage import open_store

_AFTER_S = 600.0
"""Seconds after the machine's deadline for which the grant is valid."""


def upload_grant(session: Session, run: LeasedRun) -> Grant | None:
    """Return an upload grant for one attempt, valid beyond the end of its machine.

    Returns None if the store or the credentials cannot give one; the call that follows the run then uploads.
    """
    if not session.profile.store:
        return None
    lease = session.ledger.lease()
    left = max(0.0, (lease.deadline or lease.now()) - lease.now())
    prefix = f"{store_keys.attempt(run.run_id, run.attempt)}/"
    try:
        grant = open_store(session.profile.store).grant(prefix, left + _AFTER_S)
    except OrchError as error:
        notice(session.progress, f"The machine cannot upload to {session.profile.store} by itself: {error}")
        return None
    if limit := _limit(session.profile.store, grant, left):
        notice(session.progress, limit)
    return grant


def _limit(store: str, grant: Grant | None, left: float) -> str:
    """Return a sentence on what a machine with `left` seconds to its deadline cannot upload by itself; "" if
    there is nothing.
    """
    if grant is None and is_bucket(store):
        return (
            f"The credentials here cannot sign uploads: results reach {store} through a command that "
            "follows the run (train, logs -f, watch)"
        )
    if grant is not None and grant.expires.timestamp() < time.time() + left:
        until = moment(grant.expires.timestamp())
        return f"The machine can upload results to {store} until {until}, when the credentials here expire"
    return ""
