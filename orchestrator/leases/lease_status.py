"""The status of one lease, by its ledger, the provider, and the machine itself."""

from __future__ import annotations

import functools
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import asdict, replace
from typing import Any

from orchestrator.errors import HostError, LocalError, StorageError, UsageError
from orchestrator.leases.listed_once import listed_once
from orchestrator.leases.remains import describe_remains
from orchestrator.ledger import Lease, LeasedRun
from orchestrator.ledger.events import RunEnded
from orchestrator.model import LeaseStatus, Machine, MachineFacts, MachineState, Provider, clouds
from orchestrator.providers import exists, open_provider
from orchestrator.session.machines import RegionUnseen, ends_itself, machines_of, note_ends
from orchestrator.session.project import Project
from orchestrator.session.reach import require_seen

_ANSWER_SECONDS = 5.0


Open = Callable[[str], Provider]


def current_statuses(project: Project, leases: Sequence[Lease], ask: bool) -> tuple[LeaseStatus, ...]:
    """The status of each lease. `ask` asks clouds too; the local provider is always asked. Closed leases are
    not asked about. Several leases of one provider cost one list of its machines.
    """
    count = Counter(str(lease.profile["cloud"]) for lease in leases if lease.open)

    @functools.cache
    def opened(cloud: str) -> Provider:
        provider = open_provider(cloud)
        return listed_once(provider) if count[cloud] > 1 else provider

    return tuple(
        _current(project, lease, ask, opened) if lease.open else lease_status(lease, None, asked=False)
        for lease in leases
    )


def _current(project: Project, lease: Lease, ask: bool, opened: Open) -> LeaseStatus:
    with describe_remains(project.ledger(lease.id)):
        try:
            return _asked(project, lease, ask, opened)
        except RegionUnseen as error:  # the other leases are still shown
            return replace(lease_status(lease, None, asked=False), unseen=error.message)


def _asked(project: Project, lease: Lease, ask: bool, opened: Open) -> LeaseStatus:
    cloud = lease.profile["cloud"]
    if not exists(cloud) or (
        not clouds.is_here(cloud) and not ask
    ):  # a damaged ledger may not say which one it is
        return lease_status(lease, None, asked=False)
    provider = opened(cloud)
    require_seen(provider, lease)
    machines = machines_of(provider, lease)
    lease = note_ends(project.ledger(lease.id), provider, lease, machines)
    if not machines:
        return lease_status(_settled(project, lease, provider), None)
    runs_known = lease.whole
    if not lease.whole:
        from orchestrator.session import unrecorded

        with suppress(HostError):
            lease, runs_known = unrecorded.ask(project, lease, provider, machines), True
    runs = runs_now(project, lease, provider, machines[0])
    return lease_status(lease, machines[0], runs=runs, runs_known=runs_known)


def _settled(project: Project, lease: Lease, provider: Provider) -> Lease:
    """The lease, with runs marked as lost that were not pulled when its machine went away."""
    if not lease.uncollected:
        return lease
    from orchestrator.leases.settle import settle
    from orchestrator.session.reach import ending_of_machine

    ledger = project.ledger(lease.id)
    with suppress(
        OSError, UsageError, LocalError, StorageError
    ):  # shown as it was, if the result cannot be recorded
        settle(project, ledger, ending_of_machine(provider, lease))
    return ledger.lease()


def runs_now(project: Project, lease: Lease, provider: Provider, machine: Machine) -> Mapping[str, str]:
    """The state of runs whose end was not observed here, from the machine itself, by run id.

    An end that is seen is recorded. The machine is also told which of its runs were pulled.
    """
    unseen = [
        (run, run.draft.agent) for run in lease.runs.values() if run.exit_reason is None and run.draft.agent
    ]
    ask = unseen or lease.untold
    endpoint = provider.endpoint(machine) if ask and machine.state is MachineState.RUNNING else None
    if not endpoint:
        return {}
    from orchestrator import jobs
    from orchestrator.runs.follow import note_place
    from orchestrator.session.connect import connect
    from orchestrator.session.releasing import release_again

    try:
        host = connect(project, lease, machine, endpoint, timeout=_ANSWER_SECONDS)
        with closing(host):
            states = {run.run_id: jobs.state(host, agent, run.run_id) for run, agent in unseen}
            release_again(project, project.ledger(lease.id), host)
    except HostError:
        return {run.run_id: "unknown: the machine does not answer" for run, _ in unseen}
    ledger = project.ledger(lease.id)
    with suppress(
        OSError, UsageError, LocalError, StorageError
    ):  # what was observed here is known even after the machine is gone
        for name, state in states.items():
            note_place(ledger, name, state)
            if state.exit:
                ledger.record(RunEnded(name, state.exit.reason))
    return {name: state.exit.reason if state.exit else state.state for name, state in states.items()}


def lease_status(
    lease: Lease,
    machine: Machine | None,
    *,
    asked: bool = True,
    runs: Mapping[str, str] | None = None,
    runs_known: bool | None = None,
) -> LeaseStatus:
    """The status of a lease.

    `runs`: states by run id, if the machine was asked. `runs_known`: see LeaseStatus; None if only the ledger
    was read.
    """
    facts = machine_facts(machine) if machine else lease.machine or {}
    lease = lease.seen(machine.id, machine.age_now) if machine else lease
    now = lease.now()
    return LeaseStatus(
        lease=lease.id,
        name=lease.profile["name"],
        cloud=lease.profile["cloud"],
        state=_state(lease, machine, asked),
        profile=lease.profile["path"],
        machine=facts.get("id"),
        instance_type=facts.get("instance_type"),
        zone=facts.get("zone"),
        price=lease.price,
        cost=lease.cost(now),
        created_at=lease.created_at,
        deadline=None if lease.deadline is None else time.time() + lease.deadline - now,
        detail=facts.get("detail", {}),
        attempts=[asdict(attempt) for attempt in lease.attempts],
        runs=[_run(run, (runs or {}).get(run.run_id)) for run in lease.runs.values()],
        damaged=not lease.whole,
        owner=lease.owner,
        stale=lease.problem or None,
        runs_known=lease.whole if runs_known is None else runs_known,
        deadline_proven=lease.holding is not None and ends_itself(lease, lease.holding),
    )


def _run(run: LeasedRun, now: str | None) -> dict[str, Any]:
    state = run.exit_reason or now or ("queued" if run.waits else "started")
    known = {"run_id": run.run_id, "state": state, "collected": run.collected, "lost": run.lost}
    return {**known, "owner": run.by, "started_at": run.started_at}


def _state(lease: Lease, machine: Machine | None, asked: bool) -> str:
    if not lease.open:
        return "closed"
    if not asked:
        return "unknown"
    return str(machine.state) if machine else "gone"


def machine_facts(machine: Machine) -> MachineFacts:
    """A machine as the ledger, `status` and `run.json` describe it."""
    return {
        "provider": machine.provider,
        "id": machine.id,
        "name": machine.name,
        "state": str(machine.state),
        "instance_type": machine.instance_type,
        "zone": machine.zone,
        "price_usd_hour": machine.price,
        "detail": {key: value for key, value in machine.detail.items() if _plain(value)},
    }


def _plain(value: object) -> bool:
    return value is None or isinstance(value, str | int | float | bool | list | tuple | dict)
