"""sweep: one profile with several parameter values, on several machines."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.errors import OrchError, UsageError
from orchestrator.model import Progress
from orchestrator.model.counted import counted
from orchestrator.model.progress import as_progress
from orchestrator.model.sweeps import Point, Sweep
from orchestrator.profile import Profile, load
from orchestrator.session.project import Project
from orchestrator.sweep.call import SweepCall

if TYPE_CHECKING:
    from orchestrator.leases.consent import Approve
    from orchestrator.sweep.machines import Machines
    from orchestrator.sweep.search import Search

MOST_MACHINES = 100
MOST_QUEUED = 100
"""Most runs that one call puts into the queue of a machine. Each has a waiting process there."""


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
    detach: bool = False,
    overrides: Sequence[str] = (),
    folder: Path | str | None = None,
    approve: Approve | None = None,
    told: Callable[[Sweep, Point], None] | None = None,
    progress: Progress | Callable[[str], None] | None = None,
) -> Sweep:
    """Train `profile` once for each combination of the values in `matrix`, on up to `machines` machines at a
    time, and delete the machines.

    Each point is an ordinary run, `runs/<id>/`; the whole is in `runs/<id of the sweep>/sweep.json`. A
    parameter `lr` replaces `{lr}` in the command, and is ORCH_PARAM_LR in the run's environment. A repeated
    call trains those that have no successful record, and follows those that are active. A run that fails is
    in `failed` of the result, and the others go on; `retry` of the profile applies to each.

    `search`: `optuna:30` lets Optuna choose 30 points, each after what the earlier ones gave; a list of one
    text such as `1e-5..1e-1` is then a range. `scheduler`: the address of a Dask cluster, `tls://host:8786`,
    whose workers then carry out the runs. `objective`: the metric by which `best` is chosen, as
    `val_accuracy:max` or `loss`. `max_price`: of all machines together, US dollars an hour. `budget`: US
    dollars; when the machines have cost that much, no further run is started. `told`: called after each
    point that has ended. The profile's `accept` promotes no model.

    `detach`: return when each point is in the queue of its machine, which trains without this process;
    `going_on` of the result has them. Another call downloads what has ended, and without it follows the rest.

    Raises UsageError, ProfileError; ProviderError or HostError if no machine is left that works.
    """
    from orchestrator.sweep.machines import Machines, approved
    from orchestrator.sweep.supervise import SweepSettings, to_the_end

    project, tell = Project.at(folder), as_progress(progress)
    options = {"machines": machines, "search": search, "scheduler": scheduler, "objective": objective}
    limits = {"max-price": max_price, "budget": budget, "detach": detach}
    call = SweepCall(profile, matrix, tuple(overrides), {**options, **limits})
    wanted = load(Path(profile), overrides=call.overrides, files=True)
    if detach:
        _require_queueable(wanted, call)
    plan, chooser = _planned(project, wanted, call, machines, search, objective)
    call = replace(call, matrix=plan.matrix)
    leased = Machines(project, wanted, call.overrides, plan.sweep)
    if not plan.succeeded:
        unbound = _unbound(plan, leased, call)
        leased = approved(leased, plan.machines, unbound, call, max_price, approve, tell)
    course = SweepSettings(project, leased, tell, call.command(), budget, chooser, scheduler or "", approve)
    return to_the_end(replace(course, told=told or course.told, detach=detach), plan)


def _planned(
    project: Project,
    wanted: Profile,
    call: SweepCall,
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
            next_command=f"{call.command()} --set resources.nodes=1",
        )
    project.share(wanted.ledger)
    values, goal, trials = checked(call.matrix), parse_objective(objective), parse_search(search)
    ids = ids_of(project, wanted, call.overrides)
    plan = planned(project, wanted, ids, values, machines=machines, objective=goal, search=trials)
    project.require_runs(plan.sweep)
    return with_known_points(project, plan), partial(Search, values, trials, goal, ids) if trials else None


def _unbound(plan: Sweep, machines: Machines, call: SweepCall) -> int:
    """Return how many points have neither succeeded nor a run on a machine. Raise UsageError if the call is
    to queue them, and they would be too many in one queue.
    """
    waiting = {point.run_id for point in plan.points if not point.succeeded}
    known = sum(point.succeeded for point in plan.points)
    count = (plan.search or len(plan.points)) - known - len(machines.bound(waiting))
    if call.options["detach"]:
        _require_short_queues(plan, count, call)
    return count


_WATCHED = {
    "search": "the next point is chosen after the results of earlier ones",
    "scheduler": "the cluster's workers follow the runs",
    "budget": "nobody watches the costs meanwhile",
}
"""Options that need a process that watches the sweep, with the reason."""


def _require_queueable(wanted: Profile, call: SweepCall) -> None:
    """Refuse what needs a process that watches the sweep, or that the queue of a machine cannot do."""
    watched = call.command(detach=None)
    found = next((name for name in _WATCHED if call.options[name] not in (None, "")), None)
    if found:
        raise UsageError(
            f"--detach cannot be used with --{found}: {_WATCHED[found]}. Nothing was started.",
            next_command=f"{watched}    # or without --{found}",
        )
    fixed = next((each.target for each in wanted.data if Path(each.target).is_absolute()), None)
    if fixed is not None:
        raise UsageError(
            f"--detach cannot be used with data at an absolute path, {fixed}: there, they serve one run at a "
            "time, and the files of a queued run are laid out when it is queued. Nothing was started.",
            next_command=f"{watched}    # or a relative data.target in the profile",
        )


def _require_short_queues(plan: Sweep, unbound: int, call: SweepCall) -> None:
    each = -(-unbound // plan.machines)
    if each <= MOST_QUEUED:
        return
    machines = -(-unbound // MOST_QUEUED)
    raise UsageError(
        f"{unbound} runs on {counted(plan.machines, 'machine')} would be {each} in one queue; at most "
        f"{MOST_QUEUED} are allowed, because each takes 11 MB of the machine's memory. Nothing was started.",
        next_command=call.command(machines=machines)
        if machines <= MOST_MACHINES
        else f"{call.command(machines=MOST_MACHINES)}    # with fewer values; another call for the others",
    )


def sweep_status(sweep: str | None = None, *, folder: Path | str | None = None) -> tuple[Sweep, bool]:
    """Return the current status of a sweep, the last one if none is named, and whether a process carries it
    out.

    Metrics of active runs are those that their output shows here. Machines are asked only if the runs were
    queued on them and no process follows them; one that does not answer is shown as it was seen last. Raises
    UsageError.
    """
    from orchestrator.sweep.status import status_of

    project = Project.at(folder)
    found, active = status_of(project, sweep)
    if active or not found.detached or not found.going_on:
        return found, active
    from orchestrator.leases.lease_status import current_statuses

    with suppress(OrchError, OSError):
        asked = {point.lease for point in found.going_on}
        current_statuses(project, [each for each in project.open_leases() if each.id in asked], ask=True)
    return status_of(project, sweep)
