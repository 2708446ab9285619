"""Find the run that a call names, and the runs that were not pulled yet.

A machine is contacted only if its ledger is damaged, to list its runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.errors import UsageError
from orchestrator.ledger import Lease, LeasedRun
from orchestrator.session.project import Project

if TYPE_CHECKING:
    from orchestrator.profile import Profile

_RECORD = "run.json"

LIST_RUNS = "orch runs    # lists the runs of this project"
"""The next command if no run has this id. `orch status` lists no run without a machine."""


def known_run(project: Project, run_id: str | None, lease: str | None) -> tuple[Lease, LeasedRun]:
    """Return the run with this id, or by default the latest of the open lease. Raise UsageError, with similar
    ids, if there is none.
    """
    held = with_runs_there(project, project.lease(lease or (_lease_of(project, run_id) if run_id else None)))
    wanted = run_id or next(reversed(list(held.runs)), None)
    if wanted and wanted in held.runs:
        return held, held.runs[wanted]
    if run_id is None:
        raise UsageError(
            f"The lease {held.id} has no run yet.{_damage(held)}",
            next_command="orch train    # or: orch status",
        )
    raise no_such_run(f"The lease {held.id} has no run {run_id}.{_damage(held)}", run_id, list(held.runs))


def with_runs_there(project: Project, lease: Lease) -> Lease:
    """Return the lease. If its ledger is damaged, add the runs that its machine reports, if it can be
    reached.
    """
    if lease.whole:
        return lease
    from orchestrator.session.unrecorded import ask_if_possible

    return ask_if_possible(project, lease)


def _damage(lease: Lease) -> str:
    return "" if lease.whole else " Its ledger is damaged, so runs may be missing."


def _lease_of(project: Project, run_id: str) -> str | None:
    """Return the open lease of the run: the one where it was not pulled yet, or the only one; else None."""
    having = [lease for lease in open_with_runs(project) if run_id in lease.runs]
    waiting = [lease for lease in having if not lease.runs[run_id].collected]
    for found in (waiting, having):
        if len(found) == 1:
            return found[0].id
    return None


def open_with_runs(project: Project) -> list[Lease]:
    """Return the open leases; for a damaged ledger, with the runs that its machine reports."""
    return [with_runs_there(project, lease) for lease in project.open_leases()]


def no_such_run(message: str, run_id: str, ids: Sequence[str]) -> UsageError:
    """Return an error with `message` and the ids that `run_id` may have been meant to be."""
    near = get_close_matches(run_id, ids, n=3, cutoff=0.5) or list(ids)[:-4:-1]
    named = f" Similar ids: {', '.join(near)}." if near else ""
    return UsageError(message + named, next_command=LIST_RUNS)


def known_ids(project: Project) -> list[str]:
    """Return the runs of open leases, and those with a record in this project."""
    leased = [name for lease in open_with_runs(project) for name in lease.runs]
    recorded = sorted(path.parent.name for path in project.run(".").glob(f"*/{_RECORD}"))
    return list(dict.fromkeys([*leased, *recorded]))


def profile_of(lease: Lease, overrides: Sequence[str]) -> Profile:
    """Return the current profile of a lease: the command to run may change while the machine is leased."""
    from orchestrator.profile import load

    return load(Path(lease.profile["path"]), overrides=(*lease.profile["overrides"], *overrides))
