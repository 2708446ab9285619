"""sweep: one profile with several parameter values, on several machines."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.errors import UsageError
from orchestrator.model import Progress
from orchestrator.model.progress import as_progress
from orchestrator.model.sweeps import Point, Sweep
from orchestrator.profile import Profile, load
from orchestrator.profile.overrides import redacted
from orchestrator.session.project import Project

if TYPE_CHECKING:
    from orchestrator.leases.consent import Approve
    from orchestrator.sweep.search import Search
    from orchestrator.sweep.supervise import Course

MOST_MACHINES = 100


def sweep(
    profile: str | Path,
    *,
    matrix: Mapping[str, Sequence[object]],
    machines: int = 1,
    search: str | None = None,
    scheduler: str | None = None,
    objective: str | None = None,
    max_price: float | None = None,
    budget: float | None = None,
    overrides: Sequence[str] = (),
    folder: Path | str | None = None,
    approve: Approve | None = None,
    told: Callable[[Sweep, Point], None] | None = None,
    progress: Progress | Callable[[str], None] | None = None,
) -> Sweep:
    """Train `profile` once for each combination of the values in `matrix`, on up to `machines` machines at a
    time, and delete the machines.

    Each point is an ordinary run, `runs/<id>/`; the whole is in `runs/<id of the sweep>/sweep.json`. A
    parameter `lr` replaces `{lr}` in the command, and is ORCH_PARAM_LR in the run's environment. Runs are
    trained once: a repeated call continues with those that have no successful record, and follows those that
    are active. A run that fails is in `failed` of the result, and the others go on; `retry` of the profile
    applies to each.

    `search`: `optuna:30` lets Optuna choose 30 points, each after what the earlier ones gave; a list of one
    text such as `1e-5..1e-1` is then a range. `scheduler`: the address of a Dask cluster, `tls://host:8786`,
    whose workers then carry out the runs. `objective`: the metric by which `best` is chosen, as
    `val_accuracy:max` or `loss`. `max_price`: of all machines together, US dollars an hour. `budget`: US
    dollars; when the machines have cost that much, no further run is started. `told`: called after each
    point. The profile's `accept` promotes no model.
    Raises UsageError, ProfileError; ProviderError or HostError if no machine is left that works.
    """
    from orchestrator.sweep.supervise import to_the_end

    project, tell = Project.at(folder), as_progress(progress)
    wanted = load(Path(profile), overrides=tuple(overrides), files=True)
    plan, chooser = _planned(project, wanted, overrides, matrix, machines, search, objective)
    words = _words(profile, plan, machines, scheduler, objective, overrides)
    course = _course(project, wanted, overrides, plan, words, max_price, approve, tell)
    course = replace(course, search=chooser, scheduler=scheduler or "", told=told or course.told)
    return to_the_end(replace(course, budget=budget), plan)


def _planned(
    project: Project,
    wanted: Profile,
    overrides: Sequence[str],
    matrix: Mapping[str, Sequence[object]],
    machines: int,
    search: str | None,
    objective: str | None,
) -> tuple[Sweep, Callable[[Sequence[Point]], Search] | None]:
    """Return the sweep with what there is of it already, and what chooses its points. Creates nothing."""
    from orchestrator.sweep.matrix import checked, parse_objective
    from orchestrator.sweep.points import ids_of, planned
    from orchestrator.sweep.search import Search, parse_search
    from orchestrator.sweep.supervise import known, require_dask

    require_dask()
    if not 1 <= machines <= MOST_MACHINES:
        raise UsageError(f"`machines` is {machines}; a sweep uses from 1 to {MOST_MACHINES} at a time.")
    project.share(wanted.ledger)
    values, goal, trials = checked(matrix), parse_objective(objective), parse_search(search)
    ids = ids_of(project, wanted, overrides)
    plan = planned(project, wanted, ids, values, machines=machines, objective=goal, search=trials)
    project.require_runs(plan.sweep)
    return known(project, plan), partial(Search, values, trials, goal, ids) if trials else None


def _course(
    project: Project,
    wanted: Profile,
    overrides: Sequence[str],
    plan: Sweep,
    words: str,
    max_price: float | None,
    approve: Approve | None,
    tell: Progress,
) -> Course:
    """Return how to carry out the sweep, once its machines are approved; none are if all runs are there."""
    from orchestrator.sweep.machines import Machines, approved_price
    from orchestrator.sweep.supervise import Course

    price = 0.0
    if not plan.succeeded:
        price = approved_price(project, wanted, overrides, plan.machines, max_price, approve, tell)
    machines = Machines(project, wanted, overrides, plan.sweep, price)
    return Course(project, machines, tell, words, approve=approve)


def sweep_status(sweep: str | None = None, *, folder: Path | str | None = None) -> tuple[Sweep, bool]:
    """Return the current status of a sweep, the last one if none is named, and whether a process carries it
    out.

    Asks no machine: metrics of active runs are those that their output shows here. Raises UsageError.
    """
    from orchestrator.sweep.status import status_of

    return status_of(Project.at(folder), sweep)


def _words(
    profile: str | Path,
    plan: Sweep,
    machines: int,
    scheduler: str | None,
    objective: str | None,
    overrides: Sequence[str],
) -> str:
    """Return the command that repeats the sweep."""
    words = ["orch", "sweep", str(profile), "--machines", str(machines)]
    words += [word for name, each in plan.matrix.items() for word in ("--matrix", f"{name}={','.join(each)}")]
    words += ["--search", f"optuna:{plan.search}"] if plan.search else []
    words += ["--scheduler", scheduler] if scheduler else []
    words += ["--objective", objective] if objective else []
    return shlex.join([*words, *(word for each in redacted(overrides) for word in ("--set", each))])
