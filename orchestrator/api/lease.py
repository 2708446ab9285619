"""plan, up: from a profile to a machine that is ready."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.model import LeaseStatus, Progress
from orchestrator.model.progress import as_progress
from orchestrator.profile import Profile, load
from orchestrator.session.project import Project

if TYPE_CHECKING:
    from orchestrator.leases.consent import Approve
    from orchestrator.plan import Plan


def plan(
    profile: str | Path | Profile, *, overrides: Sequence[str] = (), folder: Path | str | None = None
) -> Plan:
    """What `up` would do, with reasons and prices. Changes nothing.

    Without an open lease no cloud is asked; the recorded catalog is enough.
    """
    wanted = _profile(profile, overrides)
    from orchestrator.leases.offered import foreseen_plan

    return foreseen_plan(Project.at(folder), wanted, overrides)


def up(
    profile: str | Path | Profile,
    *,
    overrides: Sequence[str] = (),
    folder: Path | str | None = None,
    approve: Approve | None = None,
    strict: bool = False,
    progress: Progress | Callable[[str], None] | None = None,
    for_run: str | None = None,
    keep: bool = False,
) -> LeaseStatus:
    """Create or find the machine that `profile` describes, install its stack and verify it.

    Safe to repeat: the result is exactly one machine. `approve` gets the plan before anything that costs
    money is created; if it returns False, UsageError is raised. Lint findings in the script are reported;
    with `strict`, errors stop the call. `for_run`: the run for which `run` opens the lease, which it later
    closes; a later `up` without `for_run` keeps the lease. A machine that this call created and could not set
    up is deleted, unless `keep`. Raises ProfileError, LintRefused, ProviderError, HostError, StackError,
    StackMismatch.
    """
    wanted = _profile(profile, overrides)
    from orchestrator.leases.gang import provision_all
    from orchestrator.leases.provision import LeaseRequest

    asked = (Project.at(folder), wanted, overrides, approve, as_progress(progress))
    return provision_all(LeaseRequest(*asked, strict=strict, for_run=for_run, keep=keep))


def _profile(profile: str | Path | Profile, overrides: Sequence[str]) -> Profile:
    if isinstance(profile, Profile):
        return profile
    return load(Path(profile), overrides=tuple(overrides), files=True)
