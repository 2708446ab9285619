"""The machines of a sweep: leases of one profile under numbered names, created when their first point
starts.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from orchestrator.errors import Busy, HostError, OrchError, ProviderError, UsageError
from orchestrator.leases.consent import Approve
from orchestrator.leases.costs import costs
from orchestrator.leases.down import down
from orchestrator.leases.offered import foreseen_plan
from orchestrator.leases.provision import LeaseRequest, provision
from orchestrator.leases.remains import what_is_there
from orchestrator.ledger import Lease
from orchestrator.model import Progress
from orchestrator.model.counted import counted
from orchestrator.model.progress import notice
from orchestrator.profile import Profile, load
from orchestrator.session.project import Project
from orchestrator.session.work_locks import exclusive_use
from orchestrator.sweep import book
from orchestrator.sweep.call import SweepCall


@dataclass(frozen=True)
class Machines:
    """`overrides`: of the call that sweeps `profile`. `sweep`: the id under which the leases are opened.

    `agreed`: US dollars per hour that were approved for each machine; a more expensive one needs approval.
    """

    project: Project
    profile: Profile
    overrides: Sequence[str]
    sweep: str
    agreed: float = 0.0

    def name(self, number: int) -> str:
        """Return the name of a machine's profile; numbers start at 1."""
        return f"{self.profile.name[:36].rstrip('-')}-m{number}"

    def overrides_of(self, number: int) -> tuple[str, ...]:
        """Return the overrides of a machine's profile: all its runs go to one MLflow experiment."""
        own = (f"name={self.name(number)}",)
        named = self.profile.mlflow.experiment is not None
        return (*self.overrides, *own, *(() if named else (f"mlflow.experiment={self.profile.name}",)))

    def lease(self, number: int) -> Lease | None:
        return self.project.open_lease_of(self.name(number))

    def numbers(self) -> list[int]:
        """Return the numbers of the existing machines."""
        begin = self.name(0)[:-1]
        names = {lease.profile["name"].removeprefix(begin) for lease in self.project.open_leases()}
        return sorted(int(name) for name in names if name.isdigit())

    def bound(self, run_ids: Collection[str]) -> list[tuple[str, int]]:
        """Return those of the runs that were started and not downloaded yet, with their machines, in the
        order in which they were started there.
        """
        return [
            (run.run_id, number)
            for number in self.numbers()
            if (lease := self.lease(number)) is not None
            for run in lease.uncollected
            if run.run_id in run_ids
        ]

    def ready(self, number: int, approve: Approve | None, tell: Progress) -> Lease:
        """Return the lease of a machine with its stack installed; it is created if there is none.

        Raises what `up` does.
        """
        overrides = self.overrides_of(number)
        wanted = load(self.profile.path, overrides=overrides, files=True)
        asked = LeaseRequest(self.project, wanted, overrides, approve, tell)
        held = provision(replace(asked, for_run=self.sweep, agreed=self.agreed))
        return self.project.ledger(held.lease).lease()

    def _is_of_a_sweep(self, lease: Lease) -> bool:
        """Whether this sweep, or another one of the project, created the machine."""
        return lease.for_run is not None and lease.for_run in (self.sweep, *book.sweep_ids(self.project))

    def end(self, number: int, tell: Progress) -> str | None:
        """Delete a machine that this sweep created; returns "", or the reason why it is kept."""
        lease = self.lease(number)
        if lease is None:
            return None
        with exclusive_use(self.project, self.name(number)) as nobody:
            if not nobody:
                return _left(lease, "another orch command uses it. Next: orch status")
            if not self._is_of_a_sweep(lease):
                return _left(lease, "it existed before this sweep. Next: orch down")
            if lease.uncollected:
                return _left(lease, f"{what_is_there(lease)}. Next: the same `orch sweep` command")
            try:
                down(lease.id, folder=self.project.root, progress=tell)
            except (OrchError, OSError) as error:
                said = error.message if isinstance(error, OrchError) else str(error)
                return _left(lease, f"{said} Next: orch down {lease.id}")
        return None


def leases_of(project: Project, sweep: str) -> tuple[str, ...]:
    """Return every lease of a sweep, including closed ones."""
    return tuple(lease.id for lease in project.leases() if lease.for_run == sweep)


def spent(project: Project, sweep: str) -> tuple[float, float]:
    """Return the cost of a sweep's machines so far, and per hour now, in US dollars."""
    mine = set(leases_of(project, sweep))
    found = [one for one in costs(project.root, now=time.time()).leases if one.lease in mine]
    return round(sum(one.usd for one in found), 6), round(sum(one.usd_hour for one in found), 6)


def approved(
    machines: Machines,
    count: int,
    unbound: int,
    call: SweepCall,
    max_price: float | None,
    approve: Approve | None,
    tell: Progress,
) -> Machines:
    """Return the machines with the price that is approved for each of `count`.

    `unbound`: how many points have no machine yet; no more machines than that are created. `approve` gets the
    plan of one that is to be created; it is not called if all exist. `max_price`: US dollars per hour for all
    together. Raises UsageError, with a changed `call`, if that is exceeded or approval is denied.
    """
    there = [lease for number in range(1, count + 1) if (lease := machines.lease(number))]
    missing = [number for number in range(1, count + 1) if machines.lease(number) is None][:unbound]
    agreed = max((lease.price for lease in there), default=0.0)
    if not missing:
        return replace(machines, agreed=agreed)
    overrides = machines.overrides_of(missing[0])
    wanted = load(machines.profile.path, overrides=overrides, files=True)
    plan = foreseen_plan(machines.project, wanted, overrides)
    price = plan.price or 0.0
    total_price = sum(lease.price for lease in there) + price * len(missing)
    _require_price(machines, count, total_price, call, max_price)
    if price:
        total = f"${price * len(missing):.4g}/h together"
        notice(tell, f"{counted(len(missing), 'machine')} to be created when needed, {total}, each:")
    if approve is not None and not approve(plan):
        raise UsageError("Not approved; nothing was created.")
    return replace(machines, agreed=max(agreed, price))


def _require_price(
    machines: Machines, count: int, total: float, call: SweepCall, max_price: float | None
) -> None:
    if max_price is None or total <= max_price:
        return
    fits = int(max_price // (total / count))
    raise UsageError(
        f"{counted(count, 'machine')} would cost ${total:.4g}/h together, more than the ${max_price:g}/h "
        "that are allowed. Nothing was created.",
        next_command=call.command(machines=fits) if fits else f"orch plan {machines.profile.path}",
    )


def is_of_machine(error: OrchError) -> bool:
    """Whether the error is of the machine, so that another machine may train the point."""
    return isinstance(error, (HostError, ProviderError, Busy))


def _left(lease: Lease, why: str) -> str:
    machine = (lease.machine or {}).get("id", f"of {lease.id}")
    return f"The machine {machine} was left running, at ${lease.price:.2f}/h: {why}"
