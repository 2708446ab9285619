"""plan, up: from a profile to a machine that is ready. The rest is loaded once the profile was read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.model import LeaseStatus, Progress, Silent
from orchestrator.profile import Profile, load
from orchestrator.session.project import Project

if TYPE_CHECKING:
    from orchestrator.plan import Plan

    Approve = Callable[[Plan], bool]


def plan(
    profile: str | Path | Profile, *, overrides: Sequence[str] = (), folder: Path | str | None = None
) -> Plan:
    """What `up` would do, with reasons and prices. Changes nothing.

    Where nothing is leased no cloud is asked: what is recorded of it is enough.
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
    progress: Progress | None = None,
    for_run: str | None = None,
    keep: bool = False,
) -> LeaseStatus:
    """The machine that `profile` describes, made or found, with its stack installed and proven.

    May be called again at any time: exactly one machine results. `approve` sees the plan before
    anything that costs is made; its False ends the call with UsageError.
    What lint finds in the script is said; with `strict` its errors stop the call. `for_run`: the run for
    which `run` makes a new lease, and ends it; an `up` without it keeps such a lease from then on.
    A machine that this call made and could not prepare is ended, unless `keep`.
    Raises ProfileError, LintRefused, ProviderError, HostError, StackError, StackMismatch.
    """
    wanted = _profile(profile, overrides)
    from orchestrator.leases.provision import provision

    return provision(
        Project.at(folder),
        wanted,
        overrides=overrides,
        approve=approve,
        strict=strict,
        tell=progress or Silent(),
        for_run=for_run,
        keep=keep,
    )


def _profile(profile: str | Path | Profile, overrides: Sequence[str]) -> Profile:
    if isinstance(profile, Profile):
        return profile
    return load(Path(profile), overrides=tuple(overrides), files=True)
