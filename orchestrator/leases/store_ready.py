"""Check that results could be uploaded to a profile's store, before a machine is rented."""

from __future__ import annotations

import secrets

from orchestrator.errors import NOTHING_CREATED, OrchError
from orchestrator.profile import Profile
from orchestrator.storage import open_store


def require_store(wanted: Profile) -> None:
    """Upload and delete a small object, as a run does. Raises StorageError or LocalError."""
    if wanted.store is None:
        return
    key = f"runs/probe-{secrets.token_hex(8)}"
    try:
        store = open_store(wanted.store)
        store.put(key, b"orch")
        store.delete(key)
    except OrchError as error:
        error.exists = NOTHING_CREATED
        raise
