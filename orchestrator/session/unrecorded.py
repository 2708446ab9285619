"""Find the runs on a lease's machine that its damaged ledger does not list."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import replace

from orchestrator import jobs
from orchestrator.errors import CleanupUnproven, HostError, LocalError, OrchError, StorageError, UsageError
from orchestrator.ledger import Draft, Lease, LeasedRun, Ledger, Try
from orchestrator.ledger.events import RunEnded, RunFound
from orchestrator.model import FAR_BASE, Agent, Host, Machine, MachineState, Provider
from orchestrator.session.project import Project

_ANSWER_SECONDS = 20.0


def ask(project: Project, lease: Lease, provider: Provider, machines: Sequence[Machine]) -> Lease:
    """Record the runs that the lease's machines have and its ledger does not list; returns the updated lease.

    A lease with an intact ledger is returned unchanged. Raises HostError if a machine cannot be reached;
    machines that are ending are skipped.
    """
    if lease.whole:
        return lease
    for machine in machines:
        if machine.state is not MachineState.STOPPING:
            lease = _record(project.ledger(lease.id), lease, _waiting(project, lease, provider, machine))
    return lease


def require(project: Project, lease: Lease, provider: Provider, machines: Sequence[Machine]) -> Lease:
    """Like `ask`; called before machines are deleted. Raises CleanupUnproven if one cannot be reached."""
    try:
        return ask(project, lease, provider, machines)
    except HostError as error:
        ids = ", ".join(machine.id for machine in machines)
        raise CleanupUnproven(
            f"The ledger of {lease.id} {lease.flaw}, and its machine does not report its runs: "
            f"{error.message.rstrip('.')}. Results may be on it only. Nothing was deleted.",
            exists=f"{ids} still exists, at ${sum(machine.price for machine in machines):.2f}/h.",
            next_command=(
                f"orch down {lease.id}    # once it answers; or, without its results: orch down {lease.id} "
                "--discard"
            ),
        ) from error


def ask_if_possible(project: Project, lease: Lease) -> Lease:
    """Like `ask`, but the lease is returned unchanged if no machine can be reached."""
    if lease.whole:
        return lease
    from orchestrator.providers import exists, open_provider
    from orchestrator.session.machines import machines_of

    cloud = lease.profile["cloud"]
    if not exists(cloud):
        return lease
    with suppress(OrchError, OSError):
        provider = open_provider(cloud)
        return ask(project, lease, provider, machines_of(provider, lease))
    return lease


def ask_host(ledger: Ledger, host: Host, base: str, agent: Agent) -> None:
    """Record the runs below `base` of a connected machine. Raises HostError, OSError, UsageError."""
    lease = ledger.lease()
    if not lease.whole:
        for run in _found(lease, jobs.waiting(host, base), agent):
            _append(ledger, run)


def _waiting(
    project: Project, lease: Lease, provider: Provider, machine: Machine
) -> tuple[jobs.Waiting, ...]:
    from orchestrator.session import connect

    try:
        endpoint = provider.endpoint(machine) if machine.state is MachineState.RUNNING else None
        if not endpoint:
            raise HostError(f"{machine.id} is {machine.state}")
        with closing(connect.connect(project, lease, machine, endpoint, timeout=_ANSWER_SECONDS)) as host:
            return jobs.waiting(host, str(machine.detail.get("base", FAR_BASE)))
    except OSError as error:  # the key cannot be read here
        raise HostError(f"{error.filename or machine.id}: {error.strerror or error}") from error


def _record(ledger: Ledger, lease: Lease, waiting: Sequence[jobs.Waiting]) -> Lease:
    """The lease with these runs, whether or not its ledger can be written."""
    agent = Agent(**lease.agent) if lease.agent and set(lease.agent) == {"python", "root", "base"} else None
    found = _found(lease, waiting, agent)
    with suppress(OSError, UsageError, LocalError, StorageError):
        for run in found:
            _append(ledger, run)
    return replace(lease, runs={**lease.runs, **{run.run_id: run for run in found}})


def _append(ledger: Ledger, run: LeasedRun) -> None:
    ledger.record(RunFound(run.run_id, run.draft))
    if run.exit_reason:
        ledger.record(RunEnded(run.run_id, run.exit_reason))


def _found(lease: Lease, waiting: Sequence[jobs.Waiting], agent: Agent | None) -> list[LeasedRun]:
    """Return the runs that the ledger does not list; a new attempt if an earlier one was pulled or lost."""
    found, begun = [], lease.created_at or lease.opened_at
    for one in waiting:
        known = lease.runs.get(one.run_id)
        if known is None or not _awaits(known):
            draft = Draft(attempt=Try(known.attempt + 1 if known else 1), agent=agent)
            found.append(LeasedRun(one.run_id, begun, exit_reason=one.reason, draft=draft, found=True))
    return found


def _awaits(run: LeasedRun) -> bool:
    """Whether files of the run are on its machine, by the ledger."""
    return run.lost is None and (not run.collected or any(each.can_come for each in run.left))
