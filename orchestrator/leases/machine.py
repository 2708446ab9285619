"""The machine of a lease: kept, or created from the best available offer, and answering."""

from __future__ import annotations

import shlex
import time
from collections.abc import Sequence
from dataclasses import replace

from orchestrator.errors import (
    NOTHING_CREATED,
    NOTHING_RUNS,
    Busy,
    Fault,
    LockLost,
    ProviderError,
    UsageError,
)
from orchestrator.hosts.identity import public_key
from orchestrator.leases import budget
from orchestrator.leases.consent import Consent
from orchestrator.leases.images import Images
from orchestrator.leases.lease_status import machine_facts
from orchestrator.leases.left_out import LeftOut, is_lasting, leads_apart, leads_on
from orchestrator.leases.offered import avoiding, planned_of
from orchestrator.leases.settle import settle
from orchestrator.leases.specs import made_for_others, specs_of
from orchestrator.leases.waiting import CapacityWait
from orchestrator.ledger import Lease, Ledger
from orchestrator.ledger.events import CreateAccepted, CreateIntent, CreateRefused, DeleteIntent
from orchestrator.model import Machine, MachineSpec, Place, Progress, Provider
from orchestrator.model.machines import since_start
from orchestrator.model.progress import notice
from orchestrator.plan import Delete, Keep, Plan, disk_cost
from orchestrator.profile import Profile
from orchestrator.providers import undecided
from orchestrator.runs.retries import failed_places
from orchestrator.session import team, unrecorded
from orchestrator.session.machines import end_and_prove, note_ends
from orchestrator.session.owner import owner
from orchestrator.session.project import Project
from orchestrator.session.reach import MachineGone, Reached, ending_of_machine, wait_until_reachable
from orchestrator.session.work_locks import changing


def machine_of(
    ledger: Ledger,
    provider: Provider,
    planned: Plan,
    wanted: Profile,
    project: Project,
    tell: Progress,
    consent: Consent,
    avoid: frozenset[Place] | None = None,
    only: Place | None = None,
    images: Images | None = None,
) -> Reached:
    """Carry out the plan: keep the lease's machine, or create it from the best available offer.

    Returns when it answers, because a cloud may accept a machine and preempt it before it runs. `avoid`:
    zones to try last, such as that of a lost machine; None for `up`, whose plan was shown. `only`: see
    planned_of. `images`: those that a new machine may boot.
    """
    lease = ledger.lease()
    for action in planned.actions:
        if isinstance(action, Delete):
            known = unrecorded.require(project, ledger.lease(), provider, (action.machine,))
            _delete(ledger, known, provider, action, tell)
    kept = next((action.machine for action in planned.actions if isinstance(action, Keep)), None)
    if kept:
        _require_key(project, lease, kept.id, f"{kept.id} is still running, at ${kept.price:.2f}/h.")
        with changing(project, lease.id, "up", tell):
            _require_open(ledger)
            _adopt(ledger, lease, provider, kept, wanted, tell)
        try:
            return wait_until_reachable(provider, ledger.lease(), tell)
        except MachineGone as gone:
            _note_gone(ledger, provider, kept, gone, tell)
        planned = planned_of(wanted, provider, (), avoid or frozenset(), only)
    for lost in settle(project, ledger, ending_of_machine(provider, lease)):
        notice(tell, f"{lost.run_id}: {lost.exit['detail']}")
        if avoid is not None:
            avoid = avoid | failed_places(lost)
            planned = avoiding(planned, avoid)
    images = images or Images(wanted)
    return _create(
        ledger, provider, planned, wanted, project, tell, consent, avoid or frozenset(), only, images
    )


def _delete(ledger: Ledger, lease: Lease, provider: Provider, action: Delete, tell: Progress) -> None:
    if lease.uncollected and lease.machine and lease.machine["id"] == action.machine.id:
        raise Busy(
            f"The machine {action.machine.id} cannot be used any more ({action.reason}), and results of "
            f"{lease.uncollected[0].run_id} were not pulled from it.",
            exists=f"It still exists, at ${action.machine.price:.2f}/h.",
            next_command="orch down --discard    # those results are lost then",
        )
    tell.say(f"Deleting {action.machine.id}: {action.reason}")
    ledger.record(DeleteIntent((action.machine.id,)))
    provider.delete(action.machine)


def _adopt(
    ledger: Ledger, lease: Lease, provider: Provider, machine: Machine, wanted: Profile, tell: Progress
) -> None:
    """Adopt a machine whose create call has no recorded end; the last effects of that call are repeated."""
    if refusal := made_for_others(lease, machine, wanted):
        raise refusal
    if lease.machine is None or lease.machine["id"] != machine.id:
        number = lease.attempts[-1].number if lease.attempts else 0
        guarded = provider.guard(machine, max(0.0, wanted.max_duration - (machine.age_now or 0.0)))
        ledger.record(receipt(number, guarded, wanted))
        _say_unguarded(guarded, tell)


def _create(
    ledger: Ledger,
    provider: Provider,
    planned: Plan,
    wanted: Profile,
    project: Project,
    tell: Progress,
    consent: Consent,
    avoid: frozenset[Place],
    only: Place | None,
    images: Images,
) -> Reached:
    waiting, left_out = CapacityWait(wanted.wait, tell), LeftOut()
    while True:
        found = _served(ledger, provider, planned, wanted, project, tell, consent, left_out, images)
        if isinstance(found, Reached):
            return found
        refusals = found
        if not left_out.others(planned.offers) or not waiting.again():
            break
        planned = planned_of(wanted, provider, (), avoid, only)
    raise _refused(planned, refusals, wanted)


def _refused(planned: Plan, refusals: Sequence[ProviderError], wanted: Profile) -> ProviderError:
    """Return the error if no offer was available: with the fault of the first refusal if waiting cannot
    help.
    """
    tried = "; ".join(error.message for error in refusals) or planned.refusal or "nothing is offered"
    first = next(iter(refusals), None)
    lasting = first if first and all(map(is_lasting, refusals)) else None
    return ProviderError(
        lasting.fault if lasting else Fault.CAPACITY,
        f"No machine could be created. {tried}",
        code=lasting.code if lasting else "",
        exists=NOTHING_CREATED,
        next_command=(lasting and lasting.next_command) or f"orch plan {shlex.quote(str(wanted.path))}",
    )


def _served(
    ledger: Ledger,
    provider: Provider,
    planned: Plan,
    wanted: Profile,
    project: Project,
    tell: Progress,
    consent: Consent,
    left_out: LeftOut,
    images: Images,
) -> Reached | list[ProviderError]:
    """Create the machine from the first available offer, or raise with the reason for each."""
    refusals: list[ProviderError] = []
    for spec in specs_of(ledger.lease(), planned.offers, wanted, owner(provider), images):
        if left_out.has(spec.offer):
            continue
        consent.require(planned, spec.offer)
        with changing(project, ledger.lease().id, "up", tell):
            _require_open(ledger)
            machine = _made(ledger, provider, spec, wanted, project, tell)
        if isinstance(machine, ProviderError):
            refusal = machine
        else:
            try:
                return wait_until_reachable(provider, ledger.lease(), tell)
            except MachineGone as gone:
                refusal = _taken_back(ledger, provider, machine, gone)
                tell.say(refusal.message)
        if spec.group:
            notice(tell, f"Not placed close to the other machines: {refusal.message}")
            continue
        refusals.append(refusal)
        left_out.note(spec.offer, refusal, tell)
    return refusals


def _require_key(project: Project, lease: Lease, machine: str, exists: str) -> None:
    """Refuse a machine that another computer of the team created, or may have created: its key is there."""
    if team.is_key_elsewhere(project.identity(lease.id), lease):
        advice = team.KEY_ADVICE.format(lease=lease.id)
        at_work = lease.for_run is not None or lease.uncollected
        refusal = Busy if at_work else UsageError
        raise refusal(team.key_elsewhere(lease, machine), exists=exists, next_command=advice)


def _require_open(ledger: Ledger) -> None:
    """Refuse to create or adopt a machine for a lease that `down` has closed since this call started."""
    lease = ledger.lease()
    if lease.open:
        return
    raise Busy(
        f"The lease {lease.id} was ended by another call before its machine was ready.",
        exists=NOTHING_RUNS,
        next_command=lease.up_command,
    )


def _made(
    ledger: Ledger, provider: Provider, spec: MachineSpec, wanted: Profile, project: Project, tell: Progress
) -> Machine | ProviderError:
    """Make one create call. Returns the machine, or the refusal if another offer may succeed.

    The lease's key is created here, and again if an interrupted `down` deleted it.
    """
    lease, offer = ledger.lease(), spec.offer
    repeated = any(attempt.number == spec.attempt for attempt in lease.attempts)
    if repeated:
        _require_key(project, lease, spec.id, f"{spec.id} may have been created, at ${offer.price:.2f}/h.")
    key = public_key(project.identity(lease.id), f"orch-{lease.id}")
    tell.say(f"Creating {offer.instance_type} in {offer.zone or offer.region} at ${offer.price:.2f}/h")
    with budget.alone():
        budget.require_budget(project, wanted, budget.worst_case(offer, wanted))
        ledger.record(_intent(spec))
    asked = time.monotonic()
    try:
        machine = provider.create(replace(spec, ssh_public_key=key))
    except ProviderError as error:
        if repeated:
            undecided.note_repeated(error)
        _note_refusal(ledger, spec.attempt, error)
        if not leads_on(error) and not (spec.group and leads_apart(error)):
            raise
        return error
    if machine.age is None:
        made = provider.find(machine) if repeated else None
        age = made.age_now if made else time.monotonic() - asked
        machine = replace(machine, age=age, told=since_start())
    _accept(ledger, provider, spec, machine, wanted)
    _say_unguarded(machine, tell)
    return machine


def _say_unguarded(machine: Machine, tell: Progress) -> None:
    if machine.detail.get("no_alarm"):
        notice(
            tell,
            "If the machine cannot end itself, its cloud will not end it either: "
            f"{machine.detail['no_alarm']}",
        )


def _accept(ledger: Ledger, provider: Provider, spec: MachineSpec, machine: Machine, wanted: Profile) -> None:
    """Record the machine.

    If another computer continued with the lease meanwhile, delete it: a lease never has two running machines.
    """
    try:
        ledger.record(receipt(spec.attempt, machine, wanted))
    except LockLost as lost:
        now = ledger.lease()
        if now.open and any(a.number == spec.attempt and not a.refused for a in now.attempts):
            raise  # the next call finds it by its label, and keeps it
        provider.delete(machine)
        lost.exists = f"{machine.id} was created too late and is being deleted."
        raise


def _note_gone(
    ledger: Ledger, provider: Provider, machine: Machine, gone: MachineGone, tell: Progress
) -> None:
    """Record that the lease's machine was preempted.

    If it has answered before, the create call is not recorded as refused: the machine cost money, and its
    runs remain.
    """
    served = any(held.id == machine.id and held.armed for held in ledger.lease().holdings)
    if not served:
        _taken_back(ledger, provider, machine, gone)
        return
    if gone.ending is None or gone.ending.fault is None:
        raise gone
    notice(tell, gone.ending.message)
    ledger.record(DeleteIntent((machine.id,)))
    end_and_prove(provider, (machine,), None, tell)
    note_ends(ledger, provider, ledger.lease(), ())


def _taken_back(ledger: Ledger, provider: Provider, machine: Machine, gone: MachineGone) -> ProviderError:
    """The reason why an accepted machine never answered, recorded as the refusal of its attempt.

    Raises it if another offer would not help, and `gone` if no provider refused.
    """
    ending = gone.ending
    if ending is None or ending.fault is None:
        raise gone
    provider.delete(machine)  # some clouds leave a disk
    error = ProviderError(ending.fault, ending.message, code=ending.code, next_command=ending.next_command)
    accepted = (a.number for a in ledger.lease().attempts if a.outcome == "accepted")
    _note_refusal(ledger, max(accepted, default=0), error)
    if not leads_on(error) and ending.fault is not Fault.TRANSIENT:
        error.exists = NOTHING_RUNS
        raise error from gone
    return error


def _note_refusal(ledger: Ledger, attempt: int, error: ProviderError) -> None:
    ledger.record(
        CreateRefused(attempt, str(error.fault), error.code, error.message, undecided=error.undecided)
    )


def _intent(spec: MachineSpec) -> CreateIntent:
    offer = spec.offer
    deadline = spec.deadline.timestamp()
    return CreateIntent(
        spec.attempt, spec.id, offer.instance_type, offer.zone, offer.price, deadline, spec.lasts, spec.group
    )


def receipt(number: int, machine: Machine, wanted: Profile | None = None) -> CreateAccepted:
    need = wanted.need() if wanted else None
    disk = disk_cost(machine.provider, machine.instance_type, need.disk, need.volume) if need else None
    return CreateAccepted(
        number,
        machine_facts(machine),
        created_at=machine.created_at.timestamp(),
        deadline=machine.deadline.timestamp() if machine.deadline else None,
        price=machine.price,
        disk_usd_hour=disk.usd_hour if disk else 0.0,
        age=machine.age,
    )
