"""Monthly budgets: that of a project's profile, and ORCH_BUDGET for all projects together."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from orchestrator.errors import Fault, ProviderError, UsageError
from orchestrator.leases.costs import Costs, costs
from orchestrator.model import Offer
from orchestrator.plan import Plan, disk_cost
from orchestrator.profile import Profile
from orchestrator.providers.local.store import state_home
from orchestrator.session.project import Project

VARIABLE = "ORCH_BUDGET"


def require_budget(project: Project, wanted: Profile, worst_case: float) -> None:
    """Raise ProviderError(QUOTA), with the figures, if a machine could exceed a budget.

    The sum of this month's costs, what running machines may cost until their deadlines, and `worst_case`, US
    dollars for the new machine until its deadline.
    """
    overall = _from_environment(os.environ)
    if worst_case <= 0 or (wanted.budget is None and overall is None):
        return
    known = costs(project.root)
    if wanted.budget is not None:
        _require(wanted.budget, known, project.root, worst_case, f"budget of {wanted.path.name}")
    if overall is not None:
        _require(overall, known, None, worst_case, VARIABLE)


def worst_case(offer: Offer, wanted: Profile) -> float:
    """US dollars for a machine of `offer` and its disk until its deadline."""
    need = wanted.need()
    disk = disk_cost(offer.cloud, offer.instance_type, need.disk, need.volume)
    hour = offer.price + (disk.usd_hour if disk and offer.price else 0.0)
    return hour * wanted.max_duration / 3600


def require_planned(project: Project, wanted: Profile, planned: Plan, machines: int = 1) -> None:
    """Like `require_budget`, for so many machines of the first offer of a plan."""
    if planned.offers:
        require_budget(project, wanted, machines * worst_case(planned.offers[0], wanted))


@contextmanager
def alone() -> Iterator[None]:
    """Block other calls of this user between checking the budget and recording the new intent."""
    path = state_home(os.environ) / "budget.lock"
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _require(budget: float, known: Costs, project: Path | None, worst_case: float, name: str) -> None:
    spent, to_come = known.this_month(project), known.to_come(project)
    if spent + to_come + worst_case <= budget:
        return
    raise ProviderError(
        Fault.QUOTA,
        f"The {name} is ${budget:.2f} a month, and this machine could exceed it: ${spent:.2f} was spent this "
        f"month, running machines may cost ${to_come:.2f} more until their deadlines, and this machine "
        f"${worst_case:.2f} until its own.",
        code="Budget",
        exists="This call created nothing.",
        next_command="orch costs    # then a shorter max_duration, a cheaper machine, or a larger budget",
    )


def _from_environment(environ: Mapping[str, str]) -> float | None:
    text = environ.get(VARIABLE, "").strip()
    if not text:
        return None
    try:
        found = float(text)
    except ValueError:
        found = 0.0
    if not 0 < found < float("inf"):
        raise UsageError(f"{VARIABLE} is {text!r}; write US dollars a month, e.g. {VARIABLE}=50")
    return found
