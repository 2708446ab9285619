"""down --all: list every machine of this user with its owner and runs, then delete them."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from orchestrator import providers
from orchestrator.errors import Busy, HostError, UsageError
from orchestrator.ledger import Lease
from orchestrator.model import (
    LABEL_LEASE,
    LABEL_OWNER,
    DownReport,
    Machine,
    Progress,
    Provider,
    clouds,
    unseen_in,
)
from orchestrator.providers import open_provider
from orchestrator.session.machines import RegionUnseen, end_and_prove, machines_of
from orchestrator.session.owner import is_mine, noted_folders
from orchestrator.session.project import Project
from orchestrator.session.unrecorded import ask


@dataclass(frozen=True)
class Target:
    """A machine that exists or may exist. `price` in US dollars per hour.

    `known`: its ledger is available, in `folder`. `running` and `uncollected`: run ids according to that
    ledger; empty without a ledger. `certain`: the machine was seen; otherwise the ledger leaves open whether
    `lease` has one, and `id` is empty. `damaged`: the ledger is damaged and the machine did not report its
    runs.
    """

    cloud: str
    id: str
    instance_type: str
    zone: str
    state: str
    price: float
    lease: str
    owner: str
    mine: bool
    known: bool
    folder: str = ""
    running: tuple[str, ...] = ()
    uncollected: tuple[str, ...] = ()
    certain: bool = True
    damaged: bool = False

    @property
    def busy(self) -> bool:
        """Whether deleting it would lose something, or might.

        A machine that was not seen reports that when it is deleted.
        """
        if not self.certain:
            return False
        return not self.known or self.damaged or bool(self.running or self.uncollected)

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class _Found:
    """A target, and the function that deletes it."""

    provider: Provider
    machine: Machine
    target: Target


@dataclass(frozen=True)
class _Unseen:
    """Regions that refused, as "cloud region", with their errors, and leases that may have a
    machine there.
    """

    regions: dict[str, str]
    leases: set[str]


ApproveDeletion = Callable[[Sequence[Target]], bool]
"""Receives what would be deleted; returns whether to delete it."""

End = Callable[[Project, Lease, bool, Progress, "frozenset[str] | None"], DownReport]


def down_all(
    project: Project,
    *,
    discard: bool,
    others: bool,
    clouds: Sequence[str],
    approve: ApproveDeletion | None,
    end_lease: End,
    tell: Progress,
) -> list[DownReport]:
    """Delete what `approve` has seen: this user's machines, and with `others` those of other owners.

    Nothing else is deleted or settled; a lease without a machine is only reported. Nothing is deleted if one
    of the machines has an active run, results that were not pulled, or an unknown state, unless `discard`. A
    region that refuses does not hide others; the report names it. Raises Busy, UsageError, and what deleting
    a lease raises.
    """
    leases = list(leases_at_hand(project))
    unseen = _Unseen({}, set())
    found = [one for cloud in _clouds(leases, clouds) for one in _found(open_provider(cloud), leases, unseen)]
    seen = _by_lease(found)
    open_ = [
        (folder, lease)
        for folder, lease in leases
        if lease.id not in seen and lease.id not in unseen.leases and _may_have_one(lease)
    ]
    ours = [one for one in found if one.target.mine or others]
    if not discard:
        again = command_of(discard=True, others=others, clouds=clouds)
        _require_idle([one.target for one in ours], again)
    shown = [*(one.target for one in found), *(_unseen(folder, lease) for folder, lease in open_)]
    if shown and approve and not approve(shown):
        raise UsageError("Not approved; nothing was deleted.")
    ended = [(folder, lease) for folder, lease in leases if lease.id in seen]
    ended.sort(key=lambda one: -one[1].rank)  # of several that train together, the first names the others
    reports = [end_lease(folder, lease, discard, tell, seen[lease.id]) for folder, lease in ended]
    reports += [end_lease(folder, lease, discard, tell, None) for folder, lease in open_]
    for one in ours:
        if not one.target.known:
            end_and_prove(one.provider, [one.machine], None, tell)
            reports.append(DownReport((), (one.machine.id,), 0.0, 0.0, True))
    rest = [each for each in leases if each not in ended and each not in open_]
    left = tuple(
        {"lease": lease.id, "folder": str(folder.root)}
        for folder, lease in rest
        if lease.id not in unseen.leases
    )
    regions = unseen.regions
    return [*reports, DownReport((), (), 0.0, 0.0, not regions, left=left, unseen=regions)]


def _by_lease(found: Sequence[_Found]) -> dict[str, frozenset[str]]:
    """The ids of the machines that were seen, by lease."""
    seen: dict[str, frozenset[str]] = {}
    for one in found:
        if one.target.known:
            seen[one.target.lease] = seen.get(one.target.lease, frozenset()) | {one.machine.id}
    return seen


def _may_have_one(lease: Lease) -> bool:
    """Return whether a machine may exist: a create call has no result, or a line of the ledger is damaged."""
    return not lease.whole or any(not attempt.settled for attempt in lease.attempts)


def _unseen(project: Project, lease: Lease) -> Target:
    asked = next((one for one in reversed(lease.attempts) if not one.settled), None)
    return Target(
        cloud=lease.profile["cloud"],
        id="",
        instance_type=asked.instance_type if asked else "",
        zone=asked.zone if asked else "",
        state="may exist",
        price=asked.price if asked else 0.0,
        lease=lease.id,
        owner="",
        mine=True,
        known=True,
        folder=str(project.root),
        certain=False,
    )


def leases_at_hand(project: Project) -> Iterator[tuple[Project, Lease]]:
    """The open leases of this folder and of the folders that this user leased from."""
    for root in dict.fromkeys((project.root, *noted_folders())):
        project = Project(root)
        yield from ((project, lease) for lease in project.open_leases())


def _clouds(leases: Sequence[tuple[Project, Lease]], named: Sequence[str]) -> list[str]:
    of_leases = (lease.profile["cloud"] for _, lease in leases)
    return sorted({clouds.LOCAL, *named, *(cloud for cloud in of_leases if providers.exists(cloud))})


def _found(provider: Provider, leases: Sequence[tuple[Project, Lease]], unseen: _Unseen) -> Iterator[_Found]:
    """Every machine of orch on one cloud, listed or known by a ledger. Fills `unseen`."""
    listed = provider.list({})
    left = {machine.id: machine for machine in listed}
    for region, error in unseen_in(listed).items():
        unseen.regions[f"{provider.name} {region}"] = error.message
    for folder, lease in leases:
        try:
            machines = _machines(provider, lease, tuple(left.values()))
        except RegionUnseen:
            unseen.leases.add(lease.id)
            continue
        for machine in machines:
            left.pop(machine.id, None)
            yield _Found(provider, machine, _of_lease(provider, machine, folder, lease))
    for machine in left.values():
        target = _target(machine, mine=is_mine(provider, machine), known=False)
        yield _Found(provider, machine, target)


def _machines(provider: Provider, lease: Lease, listed: Sequence[Machine]) -> Sequence[Machine]:
    """The machines of one lease. If a damaged ledger does not say on which cloud they are, labels do."""
    if lease.profile["cloud"] == provider.name:
        return machines_of(provider, lease)
    if providers.exists(lease.profile["cloud"]):
        return ()
    return [machine for machine in listed if machine.labels.get(LABEL_LEASE) == lease.id]


def _of_lease(provider: Provider, machine: Machine, project: Project, lease: Lease) -> Target:
    """The owner of a lease. A lease in one of this user's folders is theirs, whatever its label says."""
    damaged = False
    try:
        lease = ask(project, lease, provider, (machine,))
    except HostError:
        damaged = True
    return _target(
        machine,
        lease=lease.id,
        mine=True,
        known=True,
        folder=str(project.root),
        running=tuple(run.run_id for run in lease.uncollected if run.exit_reason is None),
        uncollected=tuple(run.run_id for run in lease.uncollected if run.exit_reason is not None),
        damaged=damaged,
    )


def _target(machine: Machine, *, lease: str = "", **known: Any) -> Target:
    return Target(
        cloud=machine.provider,
        id=machine.id,
        instance_type=machine.instance_type,
        zone=machine.zone,
        state=str(machine.state),
        price=machine.price,
        lease=lease or machine.labels.get(LABEL_LEASE, ""),
        owner=machine.labels.get(LABEL_OWNER, ""),
        **known,
    )


def command_of(*, discard: bool, others: bool, clouds: Sequence[str]) -> str:
    """The command line of a `down --all`."""
    named = [word for cloud in clouds for word in ("--cloud", cloud)]
    flags = [*(["--discard"] if discard else []), *(["--others"] if others else [])]
    return shlex.join(["orch", "down", "--all", *flags, *named])


def _require_idle(targets: Sequence[Target], again: str) -> None:
    busy = [target for target in targets if target.busy]
    if not busy:
        return
    price = sum(target.price for target in targets)
    many = "1 machine runs" if len(targets) == 1 else f"{len(targets)} machines run"
    raise Busy(
        f"Deleting these machines would lose what is on them: {'; '.join(map(_why_busy, busy))}. Nothing "
        "was deleted.",
        exists=f"{many} on, at ${price:.2f}/h.",
        next_command=f"{_fetch(busy)}    # or, to lose them: {again}",
    )


def _fetch(busy: Sequence[Target]) -> str:
    """The command that pulls the first results, if a ledger is available."""
    for target in busy:
        runs = [f"pull {run}" for run in target.uncollected] + [f"logs -f {run}" for run in target.running]
        if runs:
            return f"cd {shlex.quote(target.folder)} && orch {runs[0]}"
    return "orch pull    # in the folder of its lease"


def _why_busy(target: Target) -> str:
    if not target.known:
        return f"{target.id} (its ledger is not available here, so it may have an active run)"
    said = ["its ledger is damaged, and it does not report its runs"] if target.damaged else []
    said += [f"{', '.join(target.running)} may be running"] if target.running else []
    said += [f"results of {', '.join(target.uncollected)} were not pulled"] if target.uncollected else []
    return f"{target.id} ({'; '.join(said)}; leased in {target.folder})"
