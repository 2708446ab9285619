"""Identify a run for its record: which code was sent, and how the run was requested."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path

from orchestrator.errors import ProfileError, UsageError
from orchestrator.model import CodeFacts, Manifest, RequestFacts, RunRecord
from orchestrator.model.answers import LONG
from orchestrator.model.files import regular_bytes, sha256_of
from orchestrator.profile import load
from orchestrator.profile.overrides import name_of, of_environment, secrets_of, without_secrets
from orchestrator.runs import kept_code
from orchestrator.runs.collect import copy_folder
from orchestrator.runs.inputs import Inputs, differences
from orchestrator.session.session import Session


def identify(
    session: Session,
    run_id: str,
    code: Manifest,
    overrides: Sequence[str],
    local_parity: bool,
    same_as: RunRecord | None,
) -> tuple[CodeFacts, RequestFacts | None]:
    """Keep code and profile in the run's folder; returns the facts about them for the record.

    For a run that repeats `same_as`, what was kept of that run is copied. `overrides`: those of this call, in
    addition to those of its lease.
    """
    run = session.project.run(run_id)
    if same_as is None or same_as.code is None:
        facts = kept_code.keep_code(run, session.profile.code.path, code)
        return facts, request_of(session, run, overrides, local_parity)
    if (same_as.folder / kept_code.FOLDER).is_dir():
        copy_folder(same_as.folder / kept_code.FOLDER, run / kept_code.FOLDER)
    return same_as.code, same_as.request


def request_of(
    session: Session, run: Path, overrides: Sequence[str], local_parity: bool
) -> RequestFacts | None:
    """Return how the run was requested, and keep its profile; None if the profile's file has changed
    since it was read.
    """
    path, leased = session.profile.path, session.ledger.lease().profile
    said = (*of_environment(os.environ), *leased["overrides"], *overrides)
    with suppress(OSError, ValueError, ProfileError):
        text = regular_bytes(path.resolve(), LONG)
        if load(path, overrides=said).digest != session.profile.digest:
            return None
        kept_code.keep_profile(run, path, text)
        return {
            "orch": version("orch-train"),
            "profile": os.path.relpath(path, session.project.root),
            "profile_sha256": sha256_of(path),
            "overrides": list(without_secrets(said)),
            "withheld": sorted({*map(name_of, secrets_of(said)), *leased.get("withheld", ())}),
            "local_parity": local_parity,
        }
    return None


def require_same(same_as: RunRecord | None, now: Inputs) -> None:
    """Raise UsageError if what was sent differs from the record of `same_as`."""
    found = differences(same_as, now) if same_as is not None else []
    if same_as is not None and found:
        raise UsageError(
            f"{same_as.run_id} cannot be repeated: {'; '.join(found)}.",
            exists=f"Its record is in {same_as.folder}. No run was started.",
            next_command=f"orch report {same_as.run_id}    # shows what it had",
        )
