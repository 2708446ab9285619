"""A machine that is ready for runs: made or found, reached, with its stack installed and proven."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict

from orchestrator.api import foreseen, space
from orchestrator.api.awaiting import require_seen
from orchestrator.api.driver import require_gpus
from orchestrator.api.exists import telling
from orchestrator.api.folder import Folder, new_lease_id
from orchestrator.api.held import existing
from orchestrator.api.lint import look, tell_once
from orchestrator.api.machine import machine_of
from orchestrator.api.offered import one_cloud, open_lease_of, planned_of
from orchestrator.api.owner import forget_folder, note_folder
from orchestrator.api.session import (
    Session,
    local_stack,
    open_session,
    read_lock,
    stack_facts,
)
from orchestrator.api.spec import profile_facts
from orchestrator.api.standing import lease_status
from orchestrator.api.tier import tell_tier
from orchestrator.api.turns import one_at_a_time
from orchestrator.errors import ProviderError, UsageError
from orchestrator.ledger import Lease, Ledger
from orchestrator.model import LeaseStatus, Progress
from orchestrator.plan import Plan
from orchestrator.profile import Profile
from orchestrator.providers import open_provider

Approve = Callable[[Plan], bool]

_NOBODY_WAS_ASKED = frozenset(("DefaultCredentialsError", "NoCredentialsError", "PartialCredentialsError"))
"""The clients' own refusals where there are no credentials: nothing was sent, so nothing was made."""


def provision(
    place: Folder,
    wanted: Profile,
    *,
    overrides: Sequence[str],
    approve: Approve | None,
    strict: bool,
    tell: Progress,
    for_run: str | None,
) -> LeaseStatus:
    """As `up`, once its profile was read."""
    wanted, overrides = one_cloud(place, wanted, overrides)
    space.require_records(place, "Nothing was made by this call.", f"orch up {shlex.quote(str(wanted.path))}")
    with telling(_ledger_at_hand(place, wanted), wanted.path):
        read_lock(wanted)  # what cannot be installed is refused before anything is made
        hazards = look(wanted, strict=strict)
    provider = open_provider(wanted.cloud)
    if wanted.cloud == "local":
        tell_tier(tell)
    with one_at_a_time(place, wanted.name, "run" if for_run else "up", tell):
        lease = open_lease_of(place, wanted)
        with telling(place.ledger(lease.id) if lease else None, wanted.path):
            if lease:
                require_seen(provider, lease)
            machines = existing(provider, lease, tell) if lease else ()
            planned = planned_of(wanted, provider, machines)
        if approve and not approve(planned):
            raise UsageError("Not approved; nothing was made.")
        with telling(_ledger_at_hand(place, wanted), wanted.path):
            local = local_stack(wanted, tell)  # may take minutes, and fail
            if not machines:
                foreseen.refuse(wanted, local)
        ledger = _ledger_for(place, lease, wanted, overrides, for_run)
        tell_once(hazards, place.state, tell)
        with telling(ledger):
            try:
                reached = machine_of(ledger, provider, planned, wanted, place, tell)
            except ProviderError as error:
                error.attempts = [asdict(attempt) for attempt in ledger.lease().attempts]
                if lease is None and error.code in _NOBODY_WAS_ASKED:
                    _forget_unmade(place, ledger)
                raise
            with open_session(place, ledger, wanted, progress=tell, reached=reached) as session:
                require_gpus(session)
                _installed(session, tell)
                session.watch_idleness()
                session.confine()
    return lease_status(ledger.lease(), session.machine)


def _ledger_at_hand(place: Folder, wanted: Profile) -> Ledger | None:
    """That of the open lease: its machine goes on to cost whatever is refused here."""
    lease = open_lease_of(place, wanted)
    return place.ledger(lease.id) if lease else None


def _ledger_for(
    place: Folder, lease: Lease | None, wanted: Profile, overrides: Sequence[str], for_run: str | None
) -> Ledger:
    facts = profile_facts(wanted, overrides)
    if lease is None:
        place.ignore_runs()
        name = new_lease_id(wanted.name)
        ledger = place.ledger(name)
        note_folder(name, place.root)
        ledger.append("lease.opened", lease=name, profile=facts, for_run=for_run)
        return ledger
    ledger = place.ledger(lease.id)
    if lease.for_run and for_run is None:
        ledger.append("lease.kept")
    if lease.profile != facts:
        ledger.append("profile.changed", profile=facts)
    return ledger


def _forget_unmade(place: Folder, ledger: Ledger) -> None:
    """Close a lease that never had a machine: without credentials `down` could not even ask for one."""
    lease = ledger.lease()
    if all(attempt.settled and attempt.outcome != "accepted" for attempt in lease.attempts):
        place.identity(lease.id).unlink(missing_ok=True)
        ledger.append("lease.closed")
        forget_folder(lease.id)


def _installed(session: Session, tell: Progress) -> None:
    begun = time.monotonic()
    stack = session.install()
    seconds = time.monotonic() - begun
    facts = {**stack_facts(stack), "seconds": round(seconds, 3)}
    session.ledger.append("stack.installed", agent=asdict(session.agent), stack=facts)
    tell.say("Stack: " + ("already there" if stack.skipped else f"installed in {seconds:.0f} s"))
