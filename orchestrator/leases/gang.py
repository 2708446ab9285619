"""Several equal machines that train one model: all of them in one zone, or none.

Each has a lease of its own. That of the first machine, rank 0, is the lease of the profile; the others name
it.
"""

from __future__ import annotations

import functools
import shlex
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace

from orchestrator.errors import (
    CleanupUnproven,
    Interrupted,
    LintRefused,
    OrchError,
    ProviderError,
    UsageError,
)
from orchestrator.leases import joining
from orchestrator.leases.consent import Approve
from orchestrator.leases.down import down
from orchestrator.leases.left_out import leads_on
from orchestrator.leases.offered import planned_of
from orchestrator.leases.provision import Among, provision
from orchestrator.leases.waiting import CapacityWait
from orchestrator.ledger import Lease
from orchestrator.ledger.events import DeleteIntent
from orchestrator.model import LeaseStatus, Machine, Place, Progress
from orchestrator.model.beside import Beside
from orchestrator.model.counted import counted
from orchestrator.model.progress import Labelled, notice
from orchestrator.profile import Profile, load
from orchestrator.providers import open_provider
from orchestrator.runs.known import profile_of
from orchestrator.runs.lint_check import check_project
from orchestrator.session.machines import end_and_prove, machines_of, note_ends, serving
from orchestrator.session.project import Project
from orchestrator.session.session import Session, open_session
from orchestrator.session.turns import changing

_NEVER_TOGETHER = frozenset({"ORC210"})
"""Lint rules of what several machines cannot do: it fails after they were paid for."""
_POLL_S = 0.1


@dataclass(frozen=True)
class _Call:
    """One call of `provision_all`; see provision. `wanted` waits for no capacity: the whole gang does."""

    project: Project
    wanted: Profile
    overrides: tuple[str, ...]
    approve: Approve | None
    strict: bool
    tell: Progress
    for_run: str | None
    keep: bool
    agreed: float | None

    @property
    def first(self) -> Lease | None:
        return self.project.open_lease_of(self.wanted.name)


def provision_all(
    project: Project,
    wanted: Profile,
    *,
    overrides: Sequence[str],
    approve: Approve | None,
    strict: bool,
    tell: Progress,
    for_run: str | None,
    keep: bool,
    agreed: float | None = None,
    avoid: frozenset[Place] | None = None,
) -> LeaseStatus:
    """Like `provision`, for all machines of the profile, which reach each other then. Returns the status of
    the first.

    If one cannot be created, the others are deleted, and all are created in the next zone.
    """
    _require_as_many(project, wanted)
    count = wanted.resources.nodes
    if count == 1:
        return provision(
            project,
            wanted,
            overrides=overrides,
            approve=approve,
            strict=strict,
            tell=tell,
            for_run=for_run,
            keep=keep,
            agreed=agreed,
            avoid=avoid,
        )
    _require_distributable(wanted)
    left = keep or for_run is not None or project.open_lease_of(wanted.name) is not None
    alone = replace(wanted, wait=None)
    call = _Call(project, alone, tuple(overrides), approve, strict, tell, for_run, left, agreed)
    with _ended_if_not_whole(call):
        return _in_some_zone(call, CapacityWait(wanted.wait, tell), avoid)


def _of_all(approve: Approve | None, count: int) -> Approve | None:
    """Return an approval that is asked about all machines, where it gets the plan of one."""
    return approve and (lambda plan: approve(plan if plan.keeps else replace(plan, nodes=count)))


def _require_as_many(project: Project, wanted: Profile) -> None:
    """Refuse a profile that asks for fewer machines than there are: deleting some needs the user's word."""
    lease = project.open_lease_of(wanted.name)
    there = 1 + len(project.gang_of(lease)) if lease else 0
    if there > max(wanted.resources.nodes, 1):
        raise UsageError(
            f"{wanted.name} has {counted(there, 'machine')}, and resources.nodes is now "
            f"{wanted.resources.nodes}. Nothing was changed.",
            next_command=f"orch down && orch up {shlex.quote(str(wanted.path))}",
        )


def _require_distributable(wanted: Profile) -> None:
    """Raise LintRefused for a script that several machines cannot train."""
    found = check_project(wanted)
    never = [one for one in (found.findings if found else ()) if one.rule in _NEVER_TOGETHER]
    if never:
        raise LintRefused(
            "\n".join(f"{one.place} {one.rule} {one.message}" for one in never),
            exists="Nothing was created.",
            next_command=f"orch explain {never[0].rule}",
        )


# ---------------------------------------------------------------- where


def _in_some_zone(call: _Call, waiting: CapacityWait, avoid: frozenset[Place] | None) -> LeaseStatus:
    """Create all machines in the first zone that has them."""
    tried: frozenset[Place] = frozenset()
    while True:
        try:
            return _in_one_zone(call, (avoid or frozenset()) | tried if avoid or tried else avoid)
        except ProviderError as error:
            if not leads_on(error):
                raise
            place = _place(call) or _place_of_others(call)
            where = f" in {place.zone}" if place else ""
            notice(
                call.tell,
                f"Not all of {counted(call.wanted.resources.nodes, 'machine')} are to be had{where}",
            )
            call = replace(call, agreed=_agreed(call))
            _end_machines(call)
            if place is not None and place not in tried:
                tried |= {place}
            elif waiting.again():
                tried = frozenset()
            else:
                raise


def _agreed(call: _Call) -> float | None:
    """US dollars an hour that were approved for each machine, once one was created."""
    prices = [holding.price for holding in call.first.holdings] if call.first else []
    return max([*prices, *([call.agreed] if call.agreed is not None else [])], default=None)


def _place(call: _Call) -> Place | None:
    """Where the first machine is."""
    lease = call.first
    machine = lease.machine if lease and lease.holding and lease.holding.ended_at is None else None
    if machine is None:
        return None
    return Place(machine.get("provider") or "", machine.get("instance_type") or "", machine.get("zone") or "")


def _in_one_zone(call: _Call, avoid: frozenset[Place] | None) -> LeaseStatus:
    """Create what is missing of the machines where one of them is, or where the first one is offered."""
    before = _place(call)
    status = provision(
        call.project,
        call.wanted,
        overrides=call.overrides,
        approve=_of_all(call.approve, call.wanted.resources.nodes),
        strict=call.strict,
        tell=call.tell,
        for_run=call.for_run,
        keep=call.keep,
        agreed=call.agreed,
        avoid=avoid,
        among=Among(only=before or _place_of_others(call)),
    )
    place = _place(call)
    assert place is not None, "a machine that is ready is somewhere"
    if before:
        _require_approval(call, place)
    others = range(1, call.wanted.resources.nodes)
    _all_or_first_error(call, [Beside(functools.partial(_member, call, status, k, place)) for k in others])
    with sessions_of(call.project, call.project.ledger(status.lease).lease(), call.tell) as sessions:
        leases = [session.ledger.lease() for session in sessions]
        joining.require_met(sessions, joining.addresses_of(call.project, leases))
    call.tell.say(f"{counted(call.wanted.resources.nodes, 'machine')} of {status.lease} reach each other")
    return status


def _require_approval(call: _Call, place: Place) -> None:
    """Ask about machines that are missing beside the first one, which is there and was not asked about."""
    lease, approve = call.first, call.approve
    there = 1 + len(call.project.gang_of(lease)) if lease else 0
    missing = call.wanted.resources.nodes - there
    if missing <= 0 or approve is None or call.agreed is not None:
        return
    planned = planned_of(call.wanted, open_provider(place.cloud), (), only=place)
    if not approve(replace(planned, nodes=missing)):
        raise UsageError("Not approved; nothing was created.")


def _all_or_first_error(call: _Call, begun: Sequence[Beside[LeaseStatus]]) -> None:
    """Wait for all. After an error the others are ended, too, and it is raised; one after which another zone
    may do before others.
    """
    left, errors = list(begun), list[Exception]()
    try:
        while left and not errors:
            left, ended = [one for one in left if one.goes_on], [one for one in left if not one.goes_on]
            errors += _errors(ended)
            time.sleep(_POLL_S)
    except KeyboardInterrupt:
        _end_others(call)
        _errors(left)
        raise
    if errors:
        _end_others(call)
        errors += _errors(left)
        raise min(errors, key=lambda error: not (isinstance(error, ProviderError) and leads_on(error)))


def _errors(begun: Sequence[Beside[LeaseStatus]]) -> list[Exception]:
    """Wait for them, and return what they raised."""
    found = []
    for each in begun:
        try:
            each.result()
        except Exception as error:
            found.append(error)
    return found


def _place_of_others(call: _Call) -> Place | None:
    """Where the other machines are, if the first one is gone."""
    lease = call.first
    provider = open_provider(lease.profile["cloud"]) if lease else None
    for one in call.project.gang_of(lease) if lease else ():
        machine = serving(provider, one) if provider else None
        if machine is not None:
            return Place(machine.provider, machine.instance_type, machine.zone)
    return None


def _member(call: _Call, first: LeaseStatus, rank: int, place: Place) -> LeaseStatus:
    overrides = (*call.overrides, f"name={member_name(call.wanted.name, rank)}", f"cloud={first.cloud}")
    wanted = replace(load(call.wanted.path, overrides=overrides, files=True), wait=None)
    return provision(
        call.project,
        wanted,
        overrides=overrides,
        approve=call.approve,
        strict=False,
        tell=Labelled(f"node {rank}", call.tell),
        for_run=call.for_run,
        keep=True,
        agreed=max(first.price, call.agreed or 0.0),
        avoid=frozenset(),
        among=Among(first.lease, rank, place),
    )


def member_name(name: str, rank: int) -> str:
    """Return the name of the profile of a machine beside the first."""
    return f"{name[:36].rstrip('-')}-n{rank}"


# ---------------------------------------------------------------- all of them


def leases_of(project: Project, first: Lease) -> list[Lease]:
    """The leases of all machines, by rank. Raises UsageError if some are missing."""
    leases = [first, *project.gang_of(first)]
    count = profile_of(first, ()).resources.nodes
    if [lease.rank for lease in leases] != list(range(count)):
        raise UsageError(
            f"{first.id} has {counted(len(leases), 'machine')}, and its profile asks for {count}.",
            next_command=f"{first.up_command}    # creates the others",
        )
    return leases


@contextmanager
def sessions_of(project: Project, first: Lease, tell: Progress) -> Iterator[list[Session]]:
    """Open the machines of a gang, by rank."""
    with ExitStack() as stack:
        yield [
            stack.enter_context(
                open_session(project, project.ledger(lease.id), profile_of(lease, ()), progress=tell)
            )
            for lease in leases_of(project, first)
        ]


# ---------------------------------------------------------------- none of them


def _end_others(call: _Call) -> None:
    """Delete all machines but the first, and close their leases."""
    lease = call.first
    for one in call.project.gang_of(lease) if lease else ():
        down(one.id, folder=call.project.root, discard=True, progress=call.tell)


def _end_machines(call: _Call) -> None:
    """Delete the machines of a gang that is not whole. The first lease stays: runs may belong to it."""
    lease = call.first
    if lease is None:
        return
    _end_others(call)
    provider, ledger = open_provider(lease.profile["cloud"]), call.project.ledger(lease.id)
    with changing(call.project, lease.id, "up", call.tell):
        machines: Sequence[Machine] = machines_of(provider, lease)
        if machines:
            notice(call.tell, f"Deleting {', '.join(machine.id for machine in machines)}")
            ledger.record(DeleteIntent(tuple(machine.id for machine in machines)))
            end_and_prove(provider, machines, None, call.tell)
        note_ends(ledger, provider, ledger.lease(), ())


@contextmanager
def _ended_if_not_whole(call: _Call) -> Iterator[None]:
    """If the block fails, delete the machines, unless they are to be kept; the error says so."""
    try:
        yield
    except (OrchError, KeyboardInterrupt) as error:
        lease = call.first
        if call.keep or lease is None:
            raise
        told, again = _ended(call, lease), shlex.join(["orch", "up", str(call.wanted.path)])
        if isinstance(error, KeyboardInterrupt):
            raise Interrupted(told, again) from None
        error.exists, error.next_command = told, error.next_command or again
        raise


def _ended(call: _Call, lease: Lease) -> str:
    try:
        report = down(lease.id, folder=call.project.root, discard=True, progress=call.tell)
    except (OrchError, OSError) as error:
        why = error.message if isinstance(error, OrchError) else str(error)
        return f"The machines of {lease.id} could not all be deleted: {why} Next: orch down {lease.id}"
    if not report.proven_gone:
        raise CleanupUnproven(f"It is not certain that all machines of {lease.id} are gone.")
    deleted = counted(len(report.machines), "machine")
    return f"{deleted} that this call created were deleted. Nothing is running; nothing costs money."
