"""Several equal machines that train one model: all of them in one zone, or none.

Each has a lease of its own. The lease of the first machine, rank 0, is that of the profile; the others refer
to it.
"""

from __future__ import annotations

import functools
import shlex
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace

from orchestrator.errors import Busy, Interrupted, LintRefused, OrchError, ProviderError, UsageError
from orchestrator.leases import joining
from orchestrator.leases.consent import Approve
from orchestrator.leases.down import down
from orchestrator.leases.left_out import leads_on
from orchestrator.leases.offered import planned_of
from orchestrator.leases.provision import Among, LeaseRequest, provision
from orchestrator.leases.waiting import CapacityWait
from orchestrator.ledger import Lease
from orchestrator.ledger.events import DeleteIntent
from orchestrator.model import LeaseStatus, Place, Progress
from orchestrator.model.beside import Beside
from orchestrator.model.counted import counted
from orchestrator.model.progress import Labelled, notice
from orchestrator.profile import Profile, load
from orchestrator.providers import open_provider
from orchestrator.runs.find_run import profile_of
from orchestrator.runs.lint_check import check_project
from orchestrator.session.machines import end_and_prove, machines_of, note_ends, serving
from orchestrator.session.project import Project
from orchestrator.session.session import Session, open_session
from orchestrator.session.work_locks import changing

_NEVER_TOGETHER = frozenset({"ORC210"})
"""Lint rules for what fails on several machines, after they were paid for."""
_POLL_S = 0.1


def provision_all(asked: LeaseRequest) -> LeaseStatus:
    """Provision all machines of the profile and open the network between them. Returns the status of the
    first.

    If one cannot be created, the others are deleted, and all are created in the next zone. Machines that
    existed before, and whose runs were not pulled, stay.
    """
    project, wanted = asked.project, asked.wanted
    _require_as_many(project, wanted)
    if wanted.resources.nodes == 1:
        return provision(asked)
    _require_distributable(wanted)
    keep = asked.keep or asked.for_run is not None or _first(asked) is not None
    gang = replace(asked, wanted=replace(wanted, wait=None), keep=keep)
    with _ended_if_not_whole(gang):
        return _in_some_zone(gang, CapacityWait(wanted.wait, asked.tell))


def _require_as_many(project: Project, wanted: Profile) -> None:
    """Refuse a profile that asks for fewer machines than exist: only the user may delete some."""
    lease = project.open_lease_of(wanted.name)
    there = 1 + len(project.gang_of(lease)) if lease else 0
    if lease and there > wanted.resources.nodes:
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


def _in_some_zone(asked: LeaseRequest, waiting: CapacityWait) -> LeaseStatus:
    """Create all machines in the first zone that has them."""
    tried: frozenset[Place] = frozenset()
    avoid = asked.avoid or frozenset()
    while True:
        before = _place(asked)
        try:
            return _in_one_zone(replace(asked, avoid=avoid | tried or asked.avoid), before)
        except ProviderError as error:
            if not leads_on(error):
                raise
            place = _place(asked) or before
            asked = replace(asked, agreed=_agreed(asked))
            _give_up_zone(asked, place)
            if place is not None and place not in tried:
                tried |= {place}
            elif waiting.again():
                tried = frozenset()
            else:
                raise


def _in_one_zone(asked: LeaseRequest, before: Place | None) -> LeaseStatus:
    """Create the missing machines in the zone `before` of those that exist, or where the first is offered."""
    count = asked.wanted.resources.nodes
    known = {lease.id for lease in _others(asked)}
    first = replace(asked, approve=_of_all(asked.approve, count), among=Among(only=before))
    status = provision(first)
    place = _place(asked)
    assert place is not None, "a machine that is ready has a zone"
    if before:
        _require_approval(asked, place)
    begun = [Beside(functools.partial(_other, asked, status, rank, place)) for rank in range(1, count)]
    _all_or_first_error(asked, begun, known)
    with sessions_of(asked.project, asked.project.ledger(status.lease).lease(), asked.tell) as sessions:
        leases = [session.ledger.lease() for session in sessions]
        joining.require_met(sessions, joining.addresses_of(asked.project, leases))
    asked.tell.say(f"{counted(count, 'machine')} of {status.lease} reach each other")
    return status


def _other(asked: LeaseRequest, first: LeaseStatus, rank: int, place: Place) -> LeaseStatus:
    """Provision the machine of `rank` beside the first."""
    overrides = (*asked.overrides, f"name={member_name(asked.wanted.name, rank)}", f"cloud={first.cloud}")
    return provision(
        replace(
            asked,
            wanted=replace(load(asked.wanted.path, overrides=overrides, files=True), wait=None),
            overrides=overrides,
            strict=False,
            tell=Labelled(f"node {rank}", asked.tell),
            keep=True,
            agreed=max(first.price, asked.agreed or 0.0),
            avoid=frozenset(),
            among=Among(first.lease, rank, place),
        )
    )


def member_name(name: str, rank: int) -> str:
    """Return the name of the profile of a machine beside the first."""
    return f"{name[:36].rstrip('-')}-n{rank}"


def _place(asked: LeaseRequest) -> Place | None:
    """Return the zone and type of the first machine, or of another one if the first is gone."""
    lease = _first(asked)
    if lease is None:
        return None
    machine = lease.machine if lease.holding and lease.holding.ended_at is None else None
    if machine is not None:
        where = (machine.get("provider"), machine.get("instance_type"), machine.get("zone"))
        return Place(*(name or "" for name in where))
    provider = open_provider(lease.profile["cloud"])
    for one in _others(asked):
        if (found := serving(provider, one)) is not None:
            return Place(found.provider, found.instance_type, found.zone)
    return None


# ---------------------------------------------------------------- approval


def _of_all(approve: Approve | None, count: int) -> Approve | None:
    """Return an approval that asks about `count` machines when it gets the plan of one."""
    return approve and (lambda plan: approve(plan if plan.keeps else replace(plan, nodes=count)))


def _require_approval(asked: LeaseRequest, place: Place) -> None:
    """Ask for approval of the missing machines. The first one exists, so its plan was not asked about."""
    missing = asked.wanted.resources.nodes - 1 - len(_others(asked))
    if missing <= 0 or asked.approve is None or asked.agreed is not None:
        return
    planned = planned_of(asked.wanted, open_provider(place.cloud), (), only=place)
    if not asked.approve(replace(planned, nodes=missing)):
        raise UsageError("Not approved; nothing was created.")


def _agreed(asked: LeaseRequest) -> float | None:
    """Return the US dollars an hour that were approved for each machine, once one was created."""
    lease = _first(asked)
    prices = [holding.price for holding in lease.holdings] if lease else []
    return max([*prices, *([asked.agreed] if asked.agreed is not None else [])], default=None)


# ---------------------------------------------------------------- all of them


def leases_of(project: Project, first: Lease) -> list[Lease]:
    """Return the leases of all machines, by rank. Raises UsageError if some are missing."""
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
    """Open a session on each machine, by rank."""
    with ExitStack() as stack:
        yield [
            stack.enter_context(
                open_session(project, project.ledger(lease.id), profile_of(lease, ()), progress=tell)
            )
            for lease in leases_of(project, first)
        ]


def _first(asked: LeaseRequest) -> Lease | None:
    return asked.project.open_lease_of(asked.wanted.name)


def _others(asked: LeaseRequest) -> list[Lease]:
    lease = _first(asked)
    return asked.project.gang_of(lease) if lease else []


def _all_or_first_error(
    asked: LeaseRequest, begun: Sequence[Beside[LeaseStatus]], known: Collection[str]
) -> None:
    """Wait for all. If one fails, delete the machines whose leases are not in `known`, and raise its error;
    if several fail, an error after which another zone may succeed.
    """
    left, errors = list(begun), list[Exception]()
    try:
        while left and not errors:
            ended = [one for one in left if not one.goes_on]
            left = [one for one in left if one not in ended]
            errors += _errors(ended)
            time.sleep(_POLL_S)
    except KeyboardInterrupt:
        _end_created(asked, known)
        _errors(left)
        raise
    if errors:
        _end_created(asked, known)
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


# ---------------------------------------------------------------- none of them


def _end_created(asked: LeaseRequest, known: Collection[str]) -> None:
    """Delete the machines beside the first whose leases are not in `known`: this call created them."""
    for one in _others(asked):
        if one.id not in known:
            down(one.id, folder=asked.project.root, discard=True, progress=asked.tell)


def _give_up_zone(asked: LeaseRequest, place: Place | None) -> None:
    """Delete the machines of a gang that is not whole. The first lease stays: runs may belong to it.

    Raises Busy if a machine has results that were not pulled.
    """
    lease, count = _first(asked), counted(asked.wanted.resources.nodes, "machine")
    if lease is None:
        return
    where = f" in {place.zone}" if place else ""
    notice(asked.tell, f"{count} are not available together{where}; deleting those that were created")
    _require_pulled(lease)
    for one in _others(asked):
        down(one.id, folder=asked.project.root, progress=asked.tell)
    provider, ledger = open_provider(lease.profile["cloud"]), asked.project.ledger(lease.id)
    with changing(asked.project, lease.id, "up", asked.tell):
        machines = machines_of(provider, lease)
        if machines:
            ledger.record(DeleteIntent(tuple(machine.id for machine in machines)))
        end_and_prove(provider, machines, None, asked.tell)
        note_ends(ledger, provider, ledger.lease(), ())


def _require_pulled(lease: Lease) -> None:
    if lease.uncollected:
        raise Busy(
            f"A machine is missing beside {lease.id}, and there is none in its zone. Its own cannot be "
            f"replaced: results of {lease.uncollected[0].run_id} were not pulled from it.",
            exists=f"It is still running, at ${lease.price:.2f}/h.",
            next_command=f"orch pull --all --lease {lease.id}    # then {lease.up_command}",
        )


@contextmanager
def _ended_if_not_whole(asked: LeaseRequest) -> Iterator[None]:
    """If the block fails, delete the machines, unless they are to be kept; the error says so."""
    try:
        yield
    except (OrchError, KeyboardInterrupt) as error:
        lease = _first(asked)
        if asked.keep or lease is None:
            raise
        told, again = _ended(asked, lease), lease.up_command
        if isinstance(error, KeyboardInterrupt):
            raise Interrupted(told, again) from None
        error.exists, error.next_command = told, error.once_ended or error.next_command or again
        raise


def _ended(asked: LeaseRequest, lease: Lease) -> str:
    """Close all leases; returns what became of the machines."""
    try:
        down(lease.id, folder=asked.project.root, discard=True, progress=asked.tell)
    except (OrchError, OSError) as error:
        why = error.message if isinstance(error, OrchError) else str(error)
        return f"The machines of {lease.id} could not all be deleted: {why} Next: orch down {lease.id}"
    return "All machines that this call created were deleted. Nothing is running; nothing costs money."
