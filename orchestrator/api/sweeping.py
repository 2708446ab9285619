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
    from orchestrator.sweep.machines import Machines, approved
    from orchestrator.sweep.supervise import SweepSettings, to_the_end

    project, tell = Project.at(folder), as_progress(progress)
    wanted = load(Path(profile), overrides=tuple(overrides), files=True)
    plan, chooser = _planned(project, wanted, overrides, matrix, machines, search, objective)
    options = {"search": search, "scheduler": scheduler, "objective": objective}
    limits = {"max-price": max_price, "budget": budget}
    words = sweep_command(profile, plan.matrix, overrides, {"machines": machines, **options, **limits})
    leased = Machines(project, wanted, overrides, plan.sweep)
    if not plan.succeeded:
        leased = approved(leased, plan.machines, max_price, approve, tell)
    course = SweepSettings(
        project, leased, tell, shlex.join(words), budget, chooser, scheduler or "", approve
    )
    return to_the_end(replace(course, told=told or course.told), plan)


def sweep_command(
    profile: str | Path,
    matrix: Mapping[str, Sequence[str]],
    overrides: Sequence[str],
    options: Mapping[str, object],
) -> list[str]:
    """Return the command line of a sweep, with gaps for values that may be secrets. `options`: by their names
    on the command line; those that are None are left out.
    """
    words = ["orch", "sweep", str(profile)]
    words += [word for name, each in matrix.items() for word in ("--matrix", f"{name}={','.join(each)}")]
    given = ((f"--{name}", str(value)) for name, value in options.items() if value is not None)
    words += [word for pair in given for word in pair]
    return [*words, *(word for each in redacted(overrides) for word in ("--set", each))]


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
    from orchestrator.sweep.supervise import require_dask, with_known_points

    require_dask()
    if not 1 <= machines <= MOST_MACHINES:
        raise UsageError(f"`machines` is {machines}; a sweep uses from 1 to {MOST_MACHINES} at a time.")
    if wanted.resources.nodes > 1:
        raise UsageError(
            f"resources.nodes is {wanted.resources.nodes}; a sweep trains each of its runs on one machine.",
            next_command="the same with --set resources.nodes=1",
        )
    project.share(wanted.ledger)
    values, goal, trials = checked(matrix), parse_objective(objective), parse_search(search)
    ids = ids_of(project, wanted, overrides)
    plan = planned(project, wanted, ids, values, machines=machines, objective=goal, search=trials)
    project.require_runs(plan.sweep)
    return with_known_points(project, plan), partial(Search, values, trials, goal, ids) if trials else None


def sweep_status(sweep: str | None = None, *, folder: Path | str | None = None) -> tuple[Sweep, bool]:
    """Return the current status of a sweep, the last one if none is named, and whether a process carries it
    out.

    Asks no machine: metrics of active runs are those that their output shows here. Raises UsageError.
    """
    from orchestrator.sweep.status import status_of

    return status_of(Project.at(folder), sweep)
