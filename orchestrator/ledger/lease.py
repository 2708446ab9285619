"""Fold the events of a ledger into one lease with its machines and runs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from orchestrator.ledger import clock
from orchestrator.ledger.draft import Draft
from orchestrator.ledger.holding import Holding
from orchestrator.ledger.journal import Event
from orchestrator.ledger.shapes import is_sound
from orchestrator.model import MachineFacts, StackFacts


@dataclass(frozen=True)
class LeftBehind:
    """A file of a collected run that stayed on its machine. `can_come`: fetching it again may bring it."""

    path: str
    can_come: bool


@dataclass(frozen=True)
class Resumed:
    """The checkpoint from which an attempt goes on: copy `seq` of an earlier attempt, made at `taken_at`."""

    attempt: int
    seq: int
    taken_at: float


@dataclass(frozen=True)
class LeasedRun:
    """A run as the ledger knows it. `exit_reason` is None while nobody saw it end.

    `lost`: why its results will never come, where its machine is gone with them. `released`: its machine was
    told that they are here. `draft` is the part of its record that was known when it started: stack, data,
    parity, timings. `found`: its start cannot be read, and its machine told that it is there.
    In a ledger of a team `by` is the client that started it, and `home` the one that has its results.
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
        """Whether its machine is to be told that its results are here, so that it may count as idle."""
        return self.collected and not self.released and not any(each.can_come for each in self.left)

    @property
    def attempt(self) -> int:
        """Which attempt at its id it is, from 1."""
        return self.draft.attempt.number

    @property
    def inherited(self) -> dict[str, str]:
        """The variables of the user's shell that it got."""
        return dict((self.draft.stack or {}).get("inherited") or {})


@dataclass(frozen=True)
class Ran:
    """When the job of an attempt ran on `machine`, in Unix seconds, and what it cost in US dollars."""

    run_id: str
    attempt: int
    machine: str
    begun: float
    ended: float
    usd: float = 0.0

    def is_of(self, run_id: str, attempt: int) -> bool:
        return (self.run_id, self.attempt) == (run_id, attempt)


@dataclass(frozen=True)
class Attempt:
    """One create call. `outcome`: intended (maybe made), accepted, or the fault that refused it; where that
    came after the call may have taken effect, it is `undecided`."""

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
        """Whether it is known what came of it: where not, its machine may have been made."""
        return not self.undecided and self.outcome not in ("intended", "transient", "unknown")

    @property
    def refused(self) -> bool:
        """Whether it is known that it made no machine."""
        return self.settled and self.outcome != "accepted"


@dataclass(frozen=True)
class Lease:
    """One `up` … `down`, as its events add up. `whole`: every line of its ledger could be read.

    `for_run`: the run for which `run` made the lease, and ends it; None where somebody called `up`.
    `started`: see ledger.clock.now. `owner`: the client that opened it, in a ledger of a team. `problem`: why
    the store of its ledger could not be read; the rest is as it was when it was read last.
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

    def now(self) -> float:
        """Unix seconds by the clock of its ledger."""
        return clock.now(self.started)

    def seen(self, machine: str, age: float | None) -> Lease:
        """As the cloud tells the machine's age now."""
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
    def open(self) -> bool:
        return self.closed_at is None

    @property
    def uncollected(self) -> tuple[LeasedRun, ...]:
        """The runs whose results are on the machine only. A lost run has none to collect any more."""
        return tuple(run for run in self.runs.values() if not run.collected and run.lost is None)

    @property
    def untold(self) -> tuple[LeasedRun, ...]:
        """The fetched runs of which their machine was not told."""
        return tuple(run for run in self.runs.values() if run.untold)

    @property
    def holding(self) -> Holding | None:
        """The machine that serves, or served last; None where none was accepted."""
        known = (self.machine or {}).get("id")
        return next((holding for holding in self.holdings if holding.id == known), None)

    def cost(self, now: float) -> float:
        """US dollars so far, of every machine that the lease had, at the recorded prices, by the second."""
        until = self.closed_at or now
        return sum(holding.seconds(until) / 3600 * holding.usd_hour for holding in self.holdings)

    def seconds(self, now: float) -> float:
        """For how long machines ran, each counted from its creation to its end."""
        return sum(holding.seconds(self.closed_at or now) for holding in self.holdings)


def fold(events: Sequence[Event], name: str = "") -> Lease:
    """Fold events into a lease. Unsound events are left out, and the lease is then not `whole`.

    `name`: the lease's id where its opening cannot be read.
    """
    started: dict[str, float] = {}
    events = [_timed(event, started) for event in events]
    lease = replace(_opened(events, name), started=started)
    for event in events:
        if event.event == "lease.opened":
            continue
        try:
            lease = _step(lease, event) if is_sound(event) else replace(lease, whole=False)
        except (KeyError, TypeError, ValueError):  # or it speaks of a run whose start cannot be read
            lease = replace(lease, whole=False)
    return lease


def _timed(event: Event, started: dict[str, float]) -> Event:
    """The event with its time by the ledger's clock."""
    if event.tick is None:
        return event
    begun = started.setdefault(event.tick.boot, event.time - event.tick.up)
    return replace(event, time=begun + event.tick.up)


def _opened(events: Sequence[Event], name: str) -> Lease:
    """The lease as it was opened; made of what else is known where its opening cannot be read."""
    opened = next((one for one in events if one.event == "lease.opened" and is_sound(one)), None)
    if opened is not None:
        return Lease(
            id=opened.data["lease"],
            opened_at=opened.time,
            profile=opened.data["profile"],
            for_run=opened.data.get("for_run"),
            owner=opened.by,
        )
    makers = (e.data["machine"] for e in events if e.event == "create.accepted" and is_sound(e))
    cloud = next((str(machine.get("provider", "")) for machine in makers), "")
    profile = {
        "name": name.rpartition("-")[0] or name,
        "cloud": cloud,
        "path": "PROFILE.yaml",
        "overrides": [],
        "digest": "",
    }
    return Lease(id=name, opened_at=events[0].time if events else 0.0, profile=profile, whole=False)


def _step(lease: Lease, event: Event) -> Lease:
    data = event.data
    match event.event:
        case "lease.kept":
            return replace(lease, for_run=None)
        case "profile.changed":
            return replace(lease, profile=data["profile"])
        case "create.intent":
            attempts = _intended(lease.attempts, data)
            return replace(
                lease, spec_id=data["spec_id"], attempts=attempts, attempted_at=event.time, closed_at=None
            )
        case "create.refused":
            return replace(_refused(lease, data), attempted_at=event.time)
        case "create.accepted":
            return replace(
                lease,
                attempts=_settle(lease.attempts, data["attempt"], "accepted", data),
                machine=data["machine"],
                created_at=data["created_at"],
                deadline=data["deadline"],
                price=data["price"],
                holdings=_held(lease, event),
                closed_at=None,
                agent=None,
                stack=None,
            )
        case "machine.armed":
            return replace(lease, holdings=_armed(lease.holdings, data["machine"]))
        case "machine.ended":
            return replace(lease, holdings=_ended(lease.holdings, data["machine"], data["at"]))
        case "stack.installed":
            return replace(lease, agent=data["agent"], stack=data["stack"])
        case "run.started" | "run.found":
            draft, found = Draft.from_json(data["draft"]), event.event == "run.found"
            return _with_run(
                lease, LeasedRun(data["run_id"], event.time, draft=draft, found=found, by=event.by)
            )
        case "run.resumed":
            from_ = Resumed(data["attempt"], data["copy"], data["taken_at"])
            return _with_run(lease, replace(lease.runs[data["run_id"]], resumed=from_))
        case "run.ended":
            return _with_run(lease, replace(lease.runs[data["run_id"]], exit_reason=data["reason"]))
        case "run.collected":
            return _collected(lease, event)
        case "run.released":
            return _with_run(lease, replace(lease.runs[data["run_id"]], released=True))
        case "run.superseded":  # its id has a new attempt: nothing waits for what the earlier one left
            return _with_run(lease, replace(lease.runs[data["run_id"]], left=()))
        case "run.lost":
            lost = replace(lease.runs[data["run_id"]], exit_reason=data["reason"], lost=data["detail"])
            return _with_run(_charged(lease, data), lost)
        case "lease.closed":
            return replace(lease, closed_at=event.time)
    return lease  # events of a later version inform it, they do not break this one


def _charged(lease: Lease, data: Mapping[str, Any]) -> Lease:
    """With when the run's job ran and what it cost, where the event tells it."""
    if not data.get("ran"):
        return lease
    told = Ran(**data["ran"])
    if not all(math.isfinite(number) for number in (told.begun, told.ended, told.usd)):
        raise ValueError("no number")
    others = (each for each in lease.ran if not each.is_of(told.run_id, told.attempt))
    return replace(lease, ran=(*others, told))


def _collected(lease: Lease, event: Event) -> Lease:
    run = lease.runs[event.data["run_id"]]
    home = replace(run, collected=True, lost=None, left=_left(event.data), home=event.by)
    return _with_run(_charged(lease, event.data), home)


def _left(data: Mapping[str, Any]) -> tuple[LeftBehind, ...]:
    return tuple(LeftBehind(each["path"], each["can_come"]) for each in data.get("left", ()))


def _refused(lease: Lease, data: Mapping[str, Any]) -> Lease:
    """A cloud may refuse a machine after it accepted it: what it accepted never served, and does not cost."""
    number = data["attempt"]
    attempts = _settle(lease.attempts, number, data["fault"], data)
    if not any(a.number == number and a.outcome == "accepted" for a in lease.attempts):
        return replace(lease, attempts=attempts)
    known = (lease.machine or {}).get("id")
    holdings = tuple(replace(h, price=0.0, disk_price=0.0) if h.id == known else h for h in lease.holdings)
    return replace(
        lease, attempts=attempts, holdings=holdings, machine=None, created_at=None, deadline=None, price=0.0
    )


def _held(lease: Lease, event: Event) -> tuple[Holding, ...]:
    """The holdings with one more, or with one that was found again."""
    data = event.data
    facts = (data["machine"], data["created_at"], event.time, data["deadline"], data["price"])
    disk = _price(data.get("disk_usd_hour", 0.0))
    new = Holding(lease.id, *facts, age=data.get("age"), disk_price=disk, by=event.by)
    return (*(held for held in lease.holdings if held.id != new.id), new)


def _price(value: Any) -> float:
    if not math.isfinite(value) or value < 0:
        raise ValueError("no price")
    return float(value)


def _armed(holdings: tuple[Holding, ...], machine: str) -> tuple[Holding, ...]:
    return tuple(replace(h, armed=True) if h.id == machine else h for h in holdings)


def _ended(holdings: tuple[Holding, ...], machine: str, at: float) -> tuple[Holding, ...]:
    """Note the end of a machine. The first end that was seen counts."""
    return tuple(replace(h, ended_at=at) if h.id == machine and h.ended_at is None else h for h in holdings)


def _intended(attempts: tuple[Attempt, ...], data: Mapping[str, Any]) -> tuple[Attempt, ...]:
    """An attempt that is taken up again after a kill keeps its number, and is listed once."""
    facts = (data["attempt"], data["instance_type"], data["zone"], data["price"], data["deadline"])
    attempt = Attempt(*facts, lasts=data.get("lasts"))
    return (*(a for a in attempts if a.number != attempt.number), attempt)


def _settle(
    attempts: tuple[Attempt, ...], number: int, outcome: str, data: Mapping[str, Any]
) -> tuple[Attempt, ...]:
    told = {"message": data.get("message", ""), "undecided": data.get("undecided") is True}
    return tuple(replace(a, outcome=outcome, **told) if a.number == number else a for a in attempts)


def _with_run(lease: Lease, run: LeasedRun) -> Lease:
    return replace(lease, runs={**lease.runs, run.run_id: run})
