"""down: delete the machines of a lease and confirm that they are gone."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from orchestrator import providers
from orchestrator.errors import (
    Busy,
    CleanupUnproven,
    LocalError,
    OrchError,
    ProviderError,
    StorageError,
    UsageError,
)
from orchestrator.leases.down_all import ApproveDeletion, down_all
from orchestrator.leases.remains import command_to_fetch, describe_remains
from orchestrator.ledger import Lease, Ledger
from orchestrator.ledger.events import DeleteIntent, LeaseClosed, LedgerEvent, MachineEnded, RunRefused
from orchestrator.model import DownReport, Machine, Progress, Provider, RunRecord
from orchestrator.model.counted import few
from orchestrator.model.outcomes import ExitReason
from orchestrator.model.progress import as_progress, notice
from orchestrator.providers import open_provider
from orchestrator.session import unrecorded
from orchestrator.session.machines import await_existing, end_and_prove, note_ends
from orchestrator.session.owner import forget_folder
from orchestrator.session.project import Project
from orchestrator.session.reach import ending_of_machine, require_seen
from orchestrator.session.work_locks import changing, starting

_BEGINS_WITHIN = 60.0
"""Seconds from the announcement of a run to its begin on the machine."""


def down(
    lease: str | None = None,
    *,
    folder: Path | str | None = None,
    discard: bool = False,
    everything: bool = False,
    others: bool = False,
    clouds: Sequence[str] = (),
    approve: ApproveDeletion | None = None,
    progress: Progress | Callable[[str], None] | None = None,
) -> DownReport:
    """Delete the lease's machine and confirm that it is gone. No lease is a success, and so is the id of one
    that is closed, for instance by another call meanwhile.

    Refuses while results were not pulled, unless `discard`. `everything` deletes all machines of this user,
    whichever folder leased them, and with `others` those of other owners: on this computer, on `clouds` and
    on the clouds of the leases. `approve` gets the list before anything is deleted. Raises Busy, UsageError,
    ProviderError, and CleanupUnproven if something may still cost money.
    """
    tell = as_progress(progress)
    project = Project.at(folder)
    project.remove_abandoned()
    if everything:
        options: dict[str, Any] = {"discard": discard, "others": others, "clouds": clouds}
        return _sum(down_all(project, **options, approve=approve, end_lease=_down_one, tell=tell))
    meant = _with_gangs(project, _meant(project, lease))
    return _sum([_down_one(project, each, discard, tell) for each in meant])


def _meant(project: Project, wanted: str | None) -> Sequence[Lease]:
    leases = project.leases()
    if by_id := [lease for lease in leases if lease.id == wanted]:
        return by_id
    opened = [lease for lease in leases if lease.open]
    return [project.lease(wanted)] if wanted or len(opened) > 1 else opened


def _with_gangs(project: Project, leases: Sequence[Lease]) -> list[Lease]:
    """The leases, each after those of the other machines that train one model with its own: an interrupted
    call leaves the lease that names them all.
    """
    return [each for lease in leases for each in (*project.gang_of(lease), lease)]


class _Notes:
    """A ledger that reports an event that it cannot write, instead of raising."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._refusals: dict[str, None] = {}

    def add(self, event: LedgerEvent) -> None:
        try:
            self._ledger.record(event)
        except (OSError, UsageError, LocalError, StorageError) as error:
            self.refused(error)

    def remove(self, file: Path) -> None:
        try:
            file.unlink(missing_ok=True)
        except OSError as error:
            self.refused(error)

    def refused(self, error: OSError | OrchError) -> None:
        if isinstance(error, OrchError):
            self._refusals[error.message] = None
        else:
            self._refusals[f"{error.filename or self._ledger.path}: {error.strerror or error}."] = None

    @property
    def missing(self) -> tuple[str, ...]:
        return tuple(self._refusals)


def _down_one(
    project: Project, lease: Lease, discard: bool, tell: Progress, only: frozenset[str] | None = None
) -> DownReport:
    """Delete the lease's machine. A run that another call is about to start there counts as active.

    A machine that another call creates for the lease meanwhile is waited for and deleted. `only`: if given,
    other machine ids are refused.
    """
    turns = (changing,) if discard else (starting, changing)
    with ExitStack() as locks:
        for turn in turns:
            # a folder or store that cannot be locked must not prevent deleting a machine
            with suppress(OSError, LocalError, StorageError):
                locks.enter_context(turn(project, lease.id, "down", tell))
        return _down_now(project, project.ledger(lease.id).lease(), discard, tell, only)


def _down_now(
    project: Project, lease: Lease, discard: bool, tell: Progress, only: frozenset[str] | None
) -> DownReport:
    """Delete the lease's machine on its cloud, or on every cloud if its ledger does not say which."""
    if not lease.whole:
        tell.say(
            f"The ledger of {lease.id} {lease.flaw}: asking the cloud and the machine for what is missing"
        )
    clouds = _clouds_of(lease)
    notes = _Notes(project.ledger(lease.id))
    ended: list[Machine] = []
    unseen: dict[str, ProviderError] = {}
    for cloud in clouds:
        try:
            with describe_remains(project.ledger(lease.id)):
                ended += _end_on(cloud, project, lease, discard, notes, tell, only)
        except ProviderError as error:
            if len(clouds) == 1:
                raise
            unseen[cloud] = error
    if unseen and not ended:
        raise _unasked(lease, unseen)
    lost = () if ended else _gone_before(project, lease, clouds, notes)
    return _closed(project, lease, ended, notes, () if discard else lost)


def _gone_before(
    project: Project, lease: Lease, clouds: Sequence[str], notes: _Notes
) -> tuple[Mapping[str, str], ...]:
    """Settle runs that were not pulled from a machine that is already gone; returns how each ended.

    Lost results that an earlier command settled are returned again, because a `status` that nobody read may
    have done it.
    """
    before = tuple(
        {"run_id": run.run_id, "reason": run.exit_reason, "detail": run.lost}
        for run in lease.runs.values()
        if run.lost is not None and run.exit_reason == ExitReason.RESULTS_LOST
    )
    if not lease.uncollected:
        return before
    from orchestrator.leases.settle import settle

    ledger = project.ledger(lease.id)
    try:
        ending = ending_of_machine(open_provider(clouds[0]), lease) if len(clouds) == 1 else None
        return (*before, *(_lost_run(record) for record in settle(project, ledger, ending)))
    except (OSError, UsageError, LocalError, StorageError) as error:
        notes.refused(error)
    unsettled = (
        {"run_id": run.run_id, "reason": ExitReason.RESULTS_LOST, "detail": ""} for run in lease.uncollected
    )
    return (*before, *unsettled)


def _lost_run(record: RunRecord) -> dict[str, str]:
    """A settled run as `down` reports it."""
    ended = record.exit
    return {"run_id": record.run_id, "reason": str(ended["reason"]), "detail": str(ended.get("detail", ""))}


def _clouds_of(lease: Lease) -> tuple[str, ...]:
    cloud = lease.profile["cloud"]
    return (cloud,) if providers.exists(cloud) else providers.names()


def _end_on(
    cloud: str,
    project: Project,
    lease: Lease,
    discard: bool,
    notes: _Notes,
    tell: Progress,
    only: frozenset[str] | None,
) -> Sequence[Machine]:
    """Delete the machines of the lease and confirm that they are gone. Returns those that existed."""
    provider = open_provider(cloud)
    require_seen(provider, lease)
    machines = await_existing(provider, lease, tell)
    if only is not None:
        _require_listed(lease, [machine for machine in machines if machine.id not in only])
    lease = note_ends(project.ledger(lease.id), provider, lease, machines)
    if machines and not discard:
        lease = unrecorded.require(project, lease, provider, machines)
    if machines and lease.active and not discard:
        lease = _without_unbegun(project, lease, provider, machines[0])
    if machines and lease.uncollected and not discard:
        raise _refuse(lease)
    if machines:
        if lease.uncollected:
            notice(tell, f"Discarding the results of {', '.join(run.run_id for run in lease.uncollected)}")
        _settle_left(lease, discard, tell)
        notes.add(DeleteIntent(tuple(machine.id for machine in machines)))
    asked = time.monotonic()
    end_and_prove(provider, machines, lease, tell)
    if lease.joined:
        provider.separate(lease.id)
    for holding in lease.holdings:
        for machine in machines:
            if machine.id == holding.id and machine.age is not None:
                lasted = machine.age + time.monotonic() - asked
                notes.add(MachineEnded(machine.id, holding.created_at + lasted))
    return machines


def _closed(
    project: Project,
    lease: Lease,
    ended: Sequence[Machine],
    notes: _Notes,
    lost: Sequence[Mapping[str, str]],
) -> DownReport:
    """Close the lease last: if this is interrupted, the next `down` finds it open and closes it."""
    ledger = project.ledger(lease.id)
    for secret in (project.identity(lease.id), project.known_hosts(lease.id)):
        notes.remove(secret)
    notes.add(LeaseClosed())
    if not notes.missing:
        forget_folder(lease.id)
    closed = ledger.lease()
    now = closed.now()
    return DownReport(
        leases=(lease.id,),
        machines=tuple(machine.id for machine in ended),
        seconds=closed.seconds(now),
        cost=closed.cost(now),
        proven_gone=True,
        unnoted=notes.missing,
        lost=lost,
    )


def _require_listed(lease: Lease, new: Sequence[Machine]) -> None:
    """Refuse to delete machines that were created after `down --all` listed its targets."""
    if new:
        raise UsageError(
            f"{', '.join(machine.id for machine in new)} of {lease.id} was created after the list was shown.",
            exists=f"It is still running, at ${sum(machine.price for machine in new):.2f}/h.",
            next_command="orch down --all    # lists it too",
        )


def _unasked(lease: Lease, unseen: Mapping[str, ProviderError]) -> CleanupUnproven:
    said = " ".join(f"{cloud}: {error.message}" for cloud, error in unseen.items())
    return CleanupUnproven(
        f"The ledger of {lease.id} does not say on which cloud its machine is. It is not on the clouds "
        f"that answered; these did not: {said}",
        exists="A machine may be running there and cost money.",
        next_command=f"orch down {lease.id}    # with credentials for that cloud",
    )


def _without_unbegun(project: Project, lease: Lease, provider: Provider, machine: Machine) -> Lease:
    """Return the lease after its machine was asked about its active runs. One that was announced a minute
    ago, and of which the machine has nothing, did not begin: the call that announced it was killed.
    """
    from orchestrator.leases.lease_status import runs_now

    ledger, states = project.ledger(lease.id), runs_now(project, lease, provider, machine)
    for run in lease.runs.values():
        if states.get(run.run_id) == "absent" and lease.now() - run.started_at > _BEGINS_WITHIN:
            ledger.record(RunRefused(run.run_id, "It never began: the call that announced it was killed."))
    return ledger.lease()


def _refuse(lease: Lease) -> Busy:
    """Return the refusal to delete a machine that has active runs, or results that are nowhere else."""
    ended = [run.run_id for run in lease.uncollected if run.exit_reason is not None]
    active, ids = ", ".join(lease.active), ", ".join(ended)
    goes_on = f"{active} {'is' if len(lease.active) == 1 else 'are'} running on the machine" if active else ""
    said = [f"{goes_on}; deleting it would end what runs there, and lose its results."] if active else []
    said += [f"Results of {ids} are on the machine only; deleting it would lose them."] if ended else []
    bring = command_to_fetch(lease)
    several = bring.endswith("--all")
    return Busy(
        " ".join(said),
        exists=f"The machine is still running, at ${lease.price:.2f}/h.",
        next_command=f"{bring}{f' --lease {lease.id}' if several else ''}    "
        f"# or, to lose them: orch down {lease.id} --discard",
    )


def _settle_left(lease: Lease, discard: bool, tell: Progress) -> None:
    """Report which parts of pulled runs are lost with the machine.

    Refuse if pulling again would save them.
    """
    for run in lease.runs.values():
        coming = [each.path for each in run.left if each.can_come]
        if coming and not discard:
            raise Busy(
                f"{few(coming)} of {run.run_id} is on the machine only and can still be pulled.",
                exists=f"The machine is still running, at ${lease.price:.2f}/h.",
                next_command=f"orch pull --again {run.run_id}    "
                f"# or, to lose it: orch down {lease.id} --discard",
            )
        if run.left:
            paths = [each.path for each in run.left]
            notice(
                tell,
                f"{few(paths)} of {run.run_id} could not be downloaded and will be lost with the machine",
            )


def _sum(reports: Sequence[DownReport]) -> DownReport:
    return DownReport(
        leases=tuple(name for report in reports for name in report.leases),
        machines=tuple(name for report in reports for name in report.machines),
        seconds=max((report.seconds for report in reports), default=0.0),
        cost=sum(report.cost for report in reports),
        proven_gone=all(report.proven_gone for report in reports),
        unnoted=tuple(text for report in reports for text in report.unnoted),
        lost=tuple(run for report in reports for run in report.lost),
        left=tuple(lease for report in reports for lease in report.left),
        unseen={region: why for report in reports for region, why in report.unseen.items()},
    )
