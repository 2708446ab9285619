"""The points of a sweep: one run for each combination of parameter values, and its id."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

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


@dataclass(frozen=True)
class Ids:
    """Creates the ids of a sweep's runs: the profile's name, and a digest of profile, code, data, lock and
    parameters. So a repeated call finds its runs, and a changed project gets new ones.
    """

    name: str
    common: tuple[str, ...]

    def of(self, params: Mapping[str, str]) -> str:
        return f"{self.name}-{_digest([*self.common, sorted(params.items())])}"


def ids_of(project: Project, profile: Profile, overrides: Sequence[str]) -> Ids:
    """Raises SyncError, StackError."""
    return Ids(profile.name, tuple(_inputs(project, profile, overrides)))


def planned(
    project: Project,
    profile: Profile,
    ids: Ids,
    matrix: Mapping[str, Sequence[str]],
    *,
    machines: int,
    objective: Objective,
    search: int | None = None,
) -> Sweep:
    """Return the new sweep; nothing is started. `search`: the number of points that the search will choose,
    one after the other. Raises UsageError.
    """
    require_used(matrix, unfilled(profile.train.command), set(profile.train.params))
    points = () if search else tuple(Point(ids.of(each), each) for each in combinations(matrix))
    what = [*ids.common, matrix, search, asdict(objective)] if search else [p.run_id for p in points]
    name = f"{profile.name[:33].rstrip('-')}-{_digest(what)[:6]}"
    return Sweep(
        sweep=name,
        name=profile.name,
        profile=str(profile.path),
        path=str(project.run(name)),
        machines=min(machines, search or len(points)),
        matrix={key: list(values) for key, values in matrix.items()},
        points=points,
        objective=objective,
        search=search,
        drawn=search is None,
    )


def overrides_of(params: Mapping[str, str]) -> tuple[str, ...]:
    """Return the overrides that give a profile these parameters."""
    return tuple(f"train.params.{name}={json.dumps(value)}" for name, value in params.items())


def _inputs(project: Project, profile: Profile, overrides: Sequence[str]) -> list[str]:
    """Return digests of the inputs that all points have in common. Data that `prepare` makes, or that are in
    a bucket, are left out: the record of each run has them.
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
