"""history: the runs of a project."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from orchestrator.errors import OrchError
from orchestrator.model import clouds
from orchestrator.model.history import History
from orchestrator.runs import history as listing
from orchestrator.session.project import Project


def history(
    profile: str | Path | None = None, *, folder: Path | str | None = None, last: int | None = listing.LAST
) -> History:
    """Return the newest `last` runs of this project (None: all); only those of `profile`, a name or a
    file.

    Asks no cloud; a machine on this computer is asked whether its active runs have ended.
    """
    _note_ends_here(Project.at(folder))
    return listing.history(profile, folder=folder, last=last)


def _note_ends_here(project: Project) -> None:
    """Record the ends of runs on this computer's machines. What cannot be asked is shown as it was known."""
    leases = project.open_leases()
    asked = [lease for lease in leases if lease.active and clouds.is_here(lease.profile["cloud"])]
    if asked:
        from orchestrator.leases.lease_status import current_statuses

        with suppress(OrchError, OSError):
            current_statuses(project, asked, ask=False)
