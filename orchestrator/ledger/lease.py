"""Fold the events of a ledger into one lease with its machines and runs."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar, cast

from orchestrator.ledger import clock
from orchestrator.ledger.draft import Draft
from orchestrator.ledger.events import (
    CreateAccepted,
    CreateIntent,
    CreateRefused,
    JoinIntent,
    LeaseClosed,
    LeaseKept,
    LeaseOpened,
    LedgerEvent,
    LeftBehind,
    MachineArmed,
    MachineEnded,
    ProfileChanged,
    Ran,
    RunCollected,
    RunEnded,
    RunFound,
    RunLost,
    RunReleased,
    RunResumed,
    RunStarted,
    RunSuperseded,
    StackInstalled,
    decode,
)
from orchestrator.ledger.holding import Holding
from orchestrator.ledger.journal import Event
from orchestrator.model import MachineFacts, StackFacts

E = TypeVar("E", bound=LedgerEvent)


@dataclass(frozen=True)
class Resumed:
    """The checkpoint from which an attempt continues: copy `seq` of an earlier attempt, made at
    `taken_at`.
    """

    attempt: int
    seq: int
    taken_at: float


@dataclass(frozen=True)
class LeasedRun:
    """A run as the ledger knows it. `exit_reason` is None until it was seen to end.

    `lost`: why its results can never be fetched, if they went with its machine. `released`: its machine was
    told that the results were fetched. `left`: files that stayed on the machine. `draft`: what was known of
    it when it started. `found`: the machine reported this run, whose start cannot be read in the ledger. In a
    team's ledger `by` is the client that started it, and `home` the client that has its results.
    """

    run_id: str
    started_at: float
    collected: bool = False
    exit_reason: str | None = None
    lost: str | None = None
    released: bool = False
    left: tuple[LeftBehind, ...] = ()
    draft: Draft = field(default_factory=Draft)
    found: bool = False
    resumed: Resumed | None = None
    by: str = ""
    home: str = ""

    @property
    def untold(self) -> bool:
        """Whether its machine must still be told that the results were fetched, so that it may count as
        idle.
        """
        return self.collected and not self.released and not any(each.can_come for each in self.left)

    @property
    def attempt(self) -> int:
        """Which attempt at its run id this is, from 1."""
        return self.draft.attempt.number

    @property
    def inherited(self) -> dict[str, str]:
        """The variables that it inherited from the user's shell."""
        return dict((self.draft.stack or {}).get("inherited") or {})


@dataclass(frozen=True)
class Attempt:
    """One create call.

    `outcome`: intended (the machine may exist), accepted, or the fault with which it was refused.
    `undecided`: it was refused after it may have taken effect.
    """

    number: int
    instance_type: str
    zone: str
    price: float
    deadline: float
    outcome: str = "intended"
    message: str = ""
    lasts: float | None = None
    undecided: bool = False

    @property
    def settled(self) -> bool:
        """Whether the result is known; if not, the machine may have been created."""
        return not self.undecided and self.outcome not in ("intended", "transient", "unknown")

    @property
    def refused(self) -> bool:
        """Whether it is known that no machine was created."""
        return self.settled and self.outcome != "accepted"


@dataclass(frozen=True)
class Lease:
    """One lease, from `up` to `down`, as its events add up. `whole`: every line of its ledger could be read.

    `for_run`: the run for which `orch run` opened the lease, which it closes again; None for `orch up`.
    `started`: see ledger.clock.now. `owner`: the client that opened it, in a team's ledger. `problem`: why
    the store of its ledger could not be read; the other fields are then as they were last read. `gang`: the
    lease of the first machine, if this lease has another one of several that train one model; `rank`: its
    number among them, from 0. `joined`: a network between them may exist.
    """

    id: str
    opened_at: float
    profile: Mapping[str, Any]
    for_run: str | None = None
    spec_id: str = ""
    attempts: tuple[Attempt, ...] = ()
    attempted_at: float | None = None
    machine: MachineFacts | None = None
    created_at: float | None = None
    deadline: float | None = None
    price: float = 0.0
    holdings: tuple[Holding, ...] = ()
    agent: Mapping[str, str] | None = None
    stack: StackFacts | None = None
    runs: Mapping[str, LeasedRun] = field(default_factory=dict)
    ran: tuple[Ran, ...] = ()
    closed_at: float | None = None
    whole: bool = True
    started: Mapping[str, float] = field(default_factory=dict)
    owner: str = ""
    problem: str = ""
    gang: str = ""
    rank: int = 0
    joined: bool = False

    def now(self) -> float:
        """Return Unix seconds by the clock of this ledger."""
        return clock.now(self.started)

    def seen(self, machine: str, age: float | None) -> Lease:
        """Return the lease, corrected by the machine's age in seconds as the cloud reports it now."""
        if age is None:
            return self
        now = self.now()
        holdings = tuple(h.seen(age, now) if h.id == machine else h for h in self.holdings)
        changed = replace(self, holdings=holdings)
        return replace(changed, deadline=changed.holding.deadline) if changed.holding else changed

    @property
    def flaw(self) -> str:
        """What is wrong with a ledger that is not whole, as the end of a sentence."""
        return f"cannot be read ({self.problem.rstrip('.')})" if self.problem else "is damaged"

    @property
    def up_command(self) -> str:
        """The `orch up` that leases this machine, with the overrides that were typed. Values that are stored
        nowhere are "…".
        """
        sets = [f"--set {shlex.quote(each)}" for each in self.profile.get("overrides", ())]
        hidden = [f"--set {key}=…" for key in self.profile.get("withheld", ())]
        return " ".join(("orch up", shlex.quote(str(self.profile["path"])), *sets, *hidden))

    @property
    def open(self) -> bool:
        return self.closed_at is None

    @property
    def uncollected(self) -> tuple[LeasedRun, ...]:
        """The runs whose results are on the machine only. Lost runs are not among them."""
        return tuple(run for run in self.runs.values() if not run.collected and run.lost is None)

    @property
    def active(self) -> tuple[str, ...]:
        """The ids of runs that were not seen to end."""
        return tuple(run.run_id for run in self.uncollected if run.exit_reason is None)

    @property
    def untold(self) -> tuple[LeasedRun, ...]:
        """The fetched runs whose machine must still be told that they were fetched."""
        return tuple(run for run in self.runs.values() if run.untold)

    @property
    def holding(self) -> Holding | None:
        """The machine that is in use, or was last; None if none was accepted."""
        known = (self.machine or {}).get("id")
        return next((holding for holding in self.holdings if holding.id == known), None)

    def cost(self, now: float) -> float:
        """Return the cost so far in US dollars, of every machine of the lease, at the recorded prices, by
        the second.
        """
        until = self.closed_at or now
        return sum(holding.seconds(until) / 3600 * holding.usd_hour for holding in self.holdings)

    def seconds(self, now: float) -> float:
        """Return how long machines ran, in total, each from its creation to its end."""
        return sum(holding.seconds(self.closed_at or now) for holding in self.holdings)


def fold(events: Sequence[Event], name: str = "") -> Lease:
    """Fold events into a lease. Invalid events are skipped, and the lease is then not `whole`.

    `name`: the lease's id if its opening event cannot be read.
    """
    started: dict[str, float] = {}
    events = [_timed(event, started) for event in events]
    lease = replace(_opened(events, name), started=started)
    for event in events:
        try:
            lease = _step(lease, decode(event.event, event.data), event)
        except (KeyError, ValueError):  # KeyError: an event of a run whose start cannot be read
            lease = replace(lease, whole=False)
    return lease


def _timed(event: Event, started: dict[str, float]) -> Event:
    """Return the event with its time by the ledger's clock."""
    if event.tick is None:
        return event
    begun = started.setdefault(event.tick.boot, event.time - event.tick.up)
    return replace(event, time=begun + event.tick.up)


def _opened(events: Sequence[Event], name: str) -> Lease:
    """Return the lease as it was opened; reconstructed from other events if its opening event cannot be
    read.
    """
    for event, opened in _sound(events, LeaseOpened):
        return Lease(
            opened.lease,
            event.time,
            opened.profile,
            for_run=opened.for_run,
            owner=event.by,
            gang=opened.gang,
            rank=opened.rank,
        )
    machines = [accepted.machine for _, accepted in _sound(events, CreateAccepted)]
    profile = {
        "name": name.rpartition("-")[0] or name,
        "cloud": machines[0].get("provider", "") if machines else "",
        "path": "PROFILE.yaml",
        "overrides": [],
        "digest": "",
    }
    return Lease(id=name, opened_at=events[0].time if events else 0.0, profile=profile, whole=False)


def _sound(events: Sequence[Event], shape: type[E]) -> Iterator[tuple[Event, E]]:
    """Yield the events of one kind that can be read."""
    for event in events:
        if event.event == shape.kind:
            with suppress(ValueError):
                yield event, cast(E, decode(event.event, event.data))


def _step(lease: Lease, told: LedgerEvent | None, event: Event) -> Lease:
    match told:
        case LeaseKept():
            return replace(lease, for_run=None)
        case ProfileChanged(profile):
            return replace(lease, profile=profile)
        case CreateIntent():
            attempts = _intended(lease.attempts, told)
            return replace(
                lease, spec_id=told.spec_id, attempts=attempts, attempted_at=event.time, closed_at=None
            )
        case CreateRefused():
            return replace(_refused(lease, told), attempted_at=event.time)
        case CreateAccepted():
            return replace(
                lease,
                attempts=_settle(lease.attempts, told.attempt, outcome="accepted"),
                machine=told.machine,
                created_at=told.created_at,
                deadline=told.deadline,
                price=told.price,
                holdings=_held(lease, told, event),
                closed_at=None,
                agent=None,
                stack=None,
            )
        case JoinIntent():
            return replace(lease, joined=True)
        case MachineArmed(machine):
            return replace(lease, holdings=_armed(lease.holdings, machine))
        case MachineEnded(machine, at):
            return replace(lease, holdings=_ended(lease.holdings, machine, at))
        case StackInstalled(agent, stack):
            return replace(lease, agent=agent, stack=cast(StackFacts, stack))
        case LeaseClosed():
            return replace(lease, closed_at=event.time)
    return _run_step(lease, told, event)


def _run_step(lease: Lease, told: LedgerEvent | None, event: Event) -> Lease:
    match told:
        case RunStarted(run_id, draft):
            return _with_run(lease, LeasedRun(run_id, event.time, draft=draft, by=event.by))
        case RunFound(run_id, draft):
            return _with_run(lease, LeasedRun(run_id, event.time, draft=draft, found=True, by=event.by))
        case RunResumed(run_id):
            from_ = Resumed(told.attempt, told.copy, told.taken_at)
            return _with_run(lease, replace(lease.runs[run_id], resumed=from_))
        case RunEnded(run_id, reason):
            return _with_run(lease, replace(lease.runs[run_id], exit_reason=reason))
        case RunCollected(run_id, left, ran):
            home = replace(lease.runs[run_id], collected=True, lost=None, left=left, home=event.by)
            return _with_run(_charged(lease, ran), home)
        case RunReleased(run_id):
            return _with_run(lease, replace(lease.runs[run_id], released=True))
        case RunSuperseded(run_id):
            return _with_run(lease, replace(lease.runs[run_id], left=()))
        case RunLost(run_id, reason, detail, ran):
            lost = replace(lease.runs[run_id], exit_reason=reason, lost=detail)
            return _with_run(_charged(lease, ran), lost)
    return lease  # an event without effect here, or one of a later version


def _charged(lease: Lease, ran: Ran | None) -> Lease:
    """Return the lease with the times and cost of a run's job, if they are known."""
    if ran is None:
        return lease
    others = (each for each in lease.ran if not each.is_of(ran.run_id, ran.attempt))
    return replace(lease, ran=(*others, ran))


def _refused(lease: Lease, told: CreateRefused) -> Lease:
    """Note a refusal. If it comes after the machine was accepted, that machine never became reachable and
    costs nothing.
    """
    attempts = _settle(
        lease.attempts, told.attempt, outcome=told.fault, message=told.message, undecided=told.undecided
    )
    if not any(a.number == told.attempt and a.outcome == "accepted" for a in lease.attempts):
        return replace(lease, attempts=attempts)
    known = (lease.machine or {}).get("id")
    holdings = tuple(replace(h, price=0.0, disk_price=0.0) if h.id == known else h for h in lease.holdings)
    return replace(
        lease, attempts=attempts, holdings=holdings, machine=None, created_at=None, deadline=None, price=0.0
    )


def _held(lease: Lease, told: CreateAccepted, event: Event) -> tuple[Holding, ...]:
    """Return the holdings with the new machine, which replaces its earlier entry if it was found again."""
    facts = (told.machine, told.created_at, event.time, told.deadline, told.price)
    new = Holding(lease.id, *facts, age=told.age, disk_price=told.disk_usd_hour, by=event.by)
    return (*(held for held in lease.holdings if held.id != new.id), new)


def _armed(holdings: tuple[Holding, ...], machine: str) -> tuple[Holding, ...]:
    return tuple(replace(h, armed=True) if h.id == machine else h for h in holdings)


def _ended(holdings: tuple[Holding, ...], machine: str, at: float) -> tuple[Holding, ...]:
    """Note the end of a machine. The first end that was seen counts."""
    return tuple(replace(h, ended_at=at) if h.id == machine and h.ended_at is None else h for h in holdings)


def _intended(attempts: tuple[Attempt, ...], told: CreateIntent) -> tuple[Attempt, ...]:
    """Return the attempts with the new one. An attempt that is continued after a kill keeps its number."""
    facts = (told.attempt, told.instance_type, told.zone, told.price, told.deadline)
    attempt = Attempt(*facts, lasts=told.lasts)
    return (*(a for a in attempts if a.number != attempt.number), attempt)


def _settle(
    attempts: tuple[Attempt, ...], number: int, *, outcome: str, message: str = "", undecided: bool = False
) -> tuple[Attempt, ...]:
    told = {"outcome": outcome, "message": message, "undecided": undecided}
    return tuple(replace(a, **told) if a.number == number else a for a in attempts)  # type: ignore[arg-type]


def _with_run(lease: Lease, run: LeasedRun) -> Lease:
    return replace(lease, runs={**lease.runs, run.run_id: run})
