"""The points of a sweep: which runs there are to be, and under which ids."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence

from orchestrator import sync
from orchestrator.model.sweeps import Objective, Point, Sweep
from orchestrator.profile import Profile
from orchestrator.profile.command import unfilled
from orchestrator.runs.spec import profile_facts
from orchestrator.session.project import Project
from orchestrator.session.session import read_lock
from orchestrator.session.trees import code_ignored
from orchestrator.sweep.matrix import combinations, require_used

_DIGITS = 10


def planned(
    project: Project,
    profile: Profile,
    overrides: Sequence[str],
    matrix: Mapping[str, Sequence[str]],
    *,
    machines: int,
    objective: Objective,
) -> Sweep:
    """Return the sweep, with nothing started.

    A run's id is made of the profile's name and a digest of profile, code, data, lock and parameters: a
    repeated call finds its runs, and a changed project makes new ones. Raises UsageError, SyncError,
    StackError.
    """
    require_used(matrix, unfilled(profile.train.command), set(profile.train.params))
    common = _inputs(project, profile, overrides)
    points = tuple(
        Point(f"{profile.name}-{_digest([*common, sorted(params.items())])}", params)
        for params in combinations(matrix)
    )
    name = f"{profile.name[:33].rstrip('-')}-{_digest([p.run_id for p in points])[:6]}"
    return Sweep(
        sweep=name,
        name=profile.name,
        profile=str(profile.path),
        path=str(project.run(name)),
        machines=min(machines, len(points)),
        matrix={key: list(values) for key, values in matrix.items()},
        points=points,
        objective=objective,
    )


def overrides_of(params: Mapping[str, str]) -> tuple[str, ...]:
    """Return the overrides that give a profile these parameters."""
    return tuple(f"train.params.{name}={json.dumps(value)}" for name, value in params.items())


def _inputs(project: Project, profile: Profile, overrides: Sequence[str]) -> list[str]:
    """Return digests of what all points have in common. Data that `prepare` makes, or that are in a bucket,
    are left out: the record of each run has them.
    """
    code = sync.scan(profile.code.path, ignore=code_ignored(profile), cache=project.cache).manifest
    data = [
        sync.scan(each.source, cache=project.cache, data=True).manifest.digest
        for each in profile.data
        if not each.bucket and not each.prepare
    ]
    return [profile_facts(profile, overrides)["digest"], code.digest, *data, read_lock(profile).digest]


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:_DIGITS]
