"""A machine that is ready for runs: created or found, connected, with its stack installed and verified."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace

from orchestrator.errors import ProviderError, UsageError
from orchestrator.leases import data_ready, foreseen, store_ready
from orchestrator.leases.budget import require_planned
from orchestrator.leases.consent import Approve, Consent
from orchestrator.leases.egress import transfer_warnings
from orchestrator.leases.gpu_lock import require_gpu_lock
from orchestrator.leases.gpu_ready import require_driver, require_listed
from orchestrator.leases.images import Images, images_for
from orchestrator.leases.lease_status import lease_status
from orchestrator.leases.machine import machine_of
from orchestrator.leases.offered import avoiding, narrowed, one_cloud, open_lease_of, planned_of
from orchestrator.leases.ready import require_ready
from orchestrator.leases.remains import describe_remains
from orchestrator.leases.tier import describe_tier
from orchestrator.leases.unprepared import end_unprepared
from orchestrator.ledger import Lease, Ledger
from orchestrator.ledger.events import LeaseClosed, LeaseKept, LeaseOpened, ProfileChanged, StackInstalled
from orchestrator.lint import Checked
from orchestrator.model import LeaseStatus, Machine, Place, Progress, Provider, clouds
from orchestrator.plan import Plan
from orchestrator.profile import Profile
from orchestrator.providers import open_provider
from orchestrator.runs import space
from orchestrator.runs.lint_check import check_project, report_once
from orchestrator.runs.parameters import report_unused
from orchestrator.runs.program import require_program
from orchestrator.runs.spec import profile_facts
from orchestrator.session.gpu_check import require_gpus
from orchestrator.session.machines import await_existing, await_interruption
from orchestrator.session.owner import forget_folder, note_folder
from orchestrator.session.project import Project
from orchestrator.session.reach import require_seen
from orchestrator.session.session import Session, local_stack, open_session, read_lock, stack_facts
from orchestrator.session.work_locks import one_at_a_time
from orchestrator.stack import Installed

PREPARING_S = 1800.0
"""Idle seconds that a machine tolerates while it is prepared: a download here is not visible there."""

_NOBODY_WAS_ASKED = frozenset(("DefaultCredentialsError", "NoCredentialsError", "PartialCredentialsError"))
"""Errors of the cloud clients without credentials: nothing was sent, so nothing was created."""


@dataclass(frozen=True)
class Among:
    """A machine of several that train one model: see LeaseOpened, and `only` of planned_of."""

    gang: str = ""
    rank: int = 0
    only: Place | None = None


@dataclass(frozen=True)
class LeaseRequest:
    """A request for a machine, or for all machines of a profile.

    `overrides`: those with which `wanted` was read. `approve`: gets the plan before anything that costs money
    is created. `strict`: lint errors stop the call. `for_run`: see LeaseOpened. `keep`: a machine that was
    created and could not be set up stays. `agreed`: US dollars per hour for each machine that were approved
    before; only a more expensive one needs approval. `avoid`: zones where a machine was lost, tried last;
    None: the run is not retried. `for_image`: an image is to be made of the machine: it boots none itself,
    and its user keeps the right to become root.
    """

    project: Project
    wanted: Profile
    overrides: Sequence[str]
    approve: Approve | None
    tell: Progress
    strict: bool = False
    for_run: str | None = None
    keep: bool = False
    agreed: float | None = None
    avoid: frozenset[Place] | None = None
    among: Among = Among()
    for_image: bool = False


def provision(asked: LeaseRequest) -> LeaseStatus:
    """Like `up` for one machine, after its profile was read. `run` deletes the machine that it created."""
    project, tell, among, avoid = asked.project, asked.tell, asked.among, asked.avoid or frozenset()
    project.share(asked.wanted.ledger)
    wanted, overrides = one_cloud(project, asked.wanted, asked.overrides, avoid)
    space.require_records(project, "This call created nothing.", f"orch up {shlex.quote(str(wanted.path))}")
    hazards = _checked(project, wanted, asked.strict)
    provider = open_provider(wanted.cloud)
    with _turn(project, wanted, "run" if asked.for_run else "up", tell):
        lease = open_lease_of(project, wanted)
        with describe_remains(project.ledger(lease.id) if lease else None, wanted.path):
            if lease:
                require_seen(provider, lease)
            machines = _existing(provider, lease, asked.for_run if asked.avoid is not None else None, tell)
            planned = _planned(project, wanted, provider, machines, avoid, among)
            images = Images(wanted) if asked.for_image or planned.keeps else images_for(provider, wanted)
            planned = images.shown_in(planned)
        if not machines and clouds.is_here(wanted.cloud):
            describe_tier(tell)
        if asked.approve and asked.agreed is None and not asked.approve(planned):
            raise UsageError("Not approved; nothing was created.")
        with describe_remains(_ledger_at_hand(project, wanted), wanted.path):
            local = local_stack(wanted, tell)  # may take minutes and fail
            if not machines:
                require_program(wanted, local.python)
                foreseen.refuse_foreseen(wanted, local)
                store_ready.require_store(wanted)
        opened = LeaseOpened("", profile_facts(wanted, overrides), asked.for_run, among.gang, among.rank)
        ledger = _ledger_for(project, lease, wanted, opened)
        report_once(hazards, wanted, project.state, tell)
        report_unused(wanted, tell)
        left = asked.keep or asked.for_run is not None
        with end_unprepared(project, ledger, keep=left, tell=tell), describe_remains(ledger):
            with _telling_attempts(project, ledger, first=lease is None):
                consent = Consent(asked.approve, wanted, asked.agreed, up=ledger.lease().up_command)
                job = (ledger, provider, planned, wanted, project, tell, consent)
                reached = machine_of(*job, asked.avoid, among.only, images)
            with open_session(project, ledger, wanted, progress=tell, reached=reached) as session:
                _prepare(session, tell, confined=not asked.for_image)
    return lease_status(ledger.lease(), session.machine)


def _checked(project: Project, wanted: Profile, strict: bool) -> Checked | None:
    """Refuse what cannot be installed before anything is created; returns the hazards of the script."""
    with describe_remains(_ledger_at_hand(project, wanted), wanted.path):
        read_lock(wanted)
        require_gpu_lock(wanted)
        require_program(wanted)
        return check_project(wanted, strict=strict)


def _existing(
    provider: Provider, lease: Lease | None, again: str | None, tell: Progress
) -> tuple[Machine, ...]:
    """The machines of the lease. `again`: the run that may continue elsewhere."""
    if lease is None:
        return ()
    machines = await_existing(provider, lease, tell)
    return await_interruption(provider, lease, machines, again, tell) if again else machines


@contextmanager
def _turn(project: Project, wanted: Profile, verb: str, tell: Progress) -> Iterator[None]:
    """One call at a time. If the team's store cannot be locked, the error names what exists."""
    with ExitStack() as turn:
        with describe_remains(_ledger_at_hand(project, wanted), wanted.path):
            turn.enter_context(one_at_a_time(project, wanted.name, verb, tell))
        yield


def _planned(
    project: Project,
    wanted: Profile,
    provider: Provider,
    machines: Sequence[Machine],
    avoid: frozenset[Place],
    among: Among,
) -> Plan:
    """The plan, within the budget for all machines. Raises ProviderError."""
    count = 1 if among.rank else wanted.resources.nodes
    planned = planned_of(wanted, provider, machines, avoid, among.only)
    require_planned(project, wanted, planned, count)
    if not machines:
        planned = avoiding(_ready_plan(wanted, planned), avoid)
        require_planned(project, wanted, planned, count)
    return planned


def _ready_plan(wanted: Profile, planned: Plan) -> Plan:
    """The plan without offers that are known to exceed a quota, with warnings about readiness and data."""
    ready = require_ready(wanted, planned.offers)
    if ready.offers != planned.offers:
        planned = narrowed(wanted, planned, ready.offers)
    data = transfer_warnings(data_ready.require_data(wanted), next(iter(planned.offers), None))
    return replace(planned, warnings=(*planned.warnings, *ready.warnings, *data))


@contextmanager
def _telling_attempts(project: Project, ledger: Ledger, *, first: bool) -> Iterator[None]:
    """Add the create calls to a refusal. `first`: the lease is new, and closed if no cloud was called."""
    try:
        yield
    except ProviderError as error:
        error.attempts = [asdict(attempt) for attempt in ledger.lease().attempts]
        if first and error.code in _NOBODY_WAS_ASKED:
            _forget_unmade(project, ledger)
        raise


def _prepare(session: Session, tell: Progress, *, confined: bool) -> None:
    if session.ledger.lease().stack is None:  # whatever happens next, the machine ends itself
        session.watch_idleness(at_least=PREPARING_S)
    require_gpus(session)
    require_driver(session)
    require_listed(session, _installed(session, tell))
    session.watch_idleness()
    if confined:
        session.confine()


def _ledger_at_hand(project: Project, wanted: Profile) -> Ledger | None:
    """The ledger of the open lease: its machine continues to cost whatever is refused here."""
    lease = open_lease_of(project, wanted)
    return project.ledger(lease.id) if lease else None


def _ledger_for(project: Project, lease: Lease | None, wanted: Profile, opened: LeaseOpened) -> Ledger:
    """The ledger of the lease, which is opened as `opened` if there is none."""
    if lease is None:
        project.ignore_runs()
        ledger = project.new_ledger(wanted.name)
        name = ledger.path.parent.name
        note_folder(name, project.root)
        ledger.record(replace(opened, lease=name))
        return ledger
    ledger = project.ledger(lease.id)
    if lease.for_run and opened.for_run is None:
        ledger.record(LeaseKept())
    if lease.profile != opened.profile:
        ledger.record(ProfileChanged(opened.profile))
    return ledger


def _forget_unmade(project: Project, ledger: Ledger) -> None:
    """Close a lease that never had a machine: without credentials, `down` could not even ask for one."""
    lease = ledger.lease()
    if all(attempt.settled and attempt.outcome != "accepted" for attempt in lease.attempts):
        project.identity(lease.id).unlink(missing_ok=True)
        ledger.record(LeaseClosed())
        forget_folder(lease.id)


def _installed(session: Session, tell: Progress) -> Installed:
    begun = time.monotonic()
    stack = session.install()
    seconds = time.monotonic() - begun
    facts = {**stack_facts(stack), "seconds": round(seconds, 3)}
    session.ledger.record(StackInstalled(asdict(session.agent), facts))
    tell.say("Stack: " + ("already there" if stack.skipped else f"installed in {seconds:.0f} s"))
    return stack
