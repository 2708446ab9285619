"""Fold the events of a ledger into one lease. Each event costs the same, however many came before it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeVar, cast

from orchestrator.ledger.events import (
    CreateAccepted,
    CreateIntent,
    CreateRefused,
    ImageDeleted,
    ImageIntent,
    ImageMade,
    JoinIntent,
    LeaseClosed,
    LeaseKept,
    LeaseOpened,
    LedgerEvent,
    MachineArmed,
    MachineEnded,
    ProfileChanged,
    Ran,
    RunBegan,
    RunCollected,
    RunEnded,
    RunFound,
    RunLost,
    RunQueued,
    RunRefused,
    RunReleased,
    RunResumed,
    RunStarted,
    RunSuperseded,
    StackInstalled,
    decode,
)
from orchestrator.ledger.holding import Holding
from orchestrator.ledger.lease import Attempt, Lease, LeasedRun, Resumed
from orchestrator.ledger.lines import Event, collection_paused

E = TypeVar("E", bound=LedgerEvent)


def fold(events: Sequence[Event], name: str = "") -> Lease:
    """Fold events into a lease. Invalid events are skipped, and the lease is then not `whole`.

    `name`: the lease's id if its opening event cannot be read.
    """
    with collection_paused():
        return _folded(events, name)


def _folded(events: Sequence[Event], name: str) -> Lease:
    started: dict[str, float] = {}
    times = [_time(event, started) for event in events]
    total = Sum(replace(_opened(events, times, name), started=started))
    for event, time in zip(events, times, strict=True):
        try:
            told = decode(event.event, event.data)
            if told is not None:  # else an event of a later version
                total.add(told, time, event.by)
        except (KeyError, ValueError):  # KeyError: an event of a run whose start cannot be read
            total.facts["whole"] = False
    return total.lease()


def _time(event: Event, started: dict[str, float]) -> float:
    """Return the event's time by the ledger's clock."""
    if event.tick is None:
        return event.time
    boot, up = event.tick.boot, event.tick.up
    if boot not in started:
        started[boot] = event.time - up
    return started[boot] + up


def _opened(events: Sequence[Event], times: Sequence[float], name: str) -> Lease:
    """Return the lease as it was opened; reconstructed from other events if its opening event cannot be
    read.
    """
    for number, opened in _sound(events, LeaseOpened):
        by = events[number].by
        return Lease(
            opened.lease,
            times[number],
            opened.profile,
            for_run=opened.for_run,
            owner=by,
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
    return Lease(id=name, opened_at=times[0] if times else 0.0, profile=profile, whole=False)


def _sound(events: Sequence[Event], shape: type[E]) -> Iterator[tuple[int, E]]:
    """Yield the position and content of the events of one kind that can be read."""
    for number, event in enumerate(events):
        if event.event == shape.kind:
            with suppress(ValueError):
                yield number, cast(E, decode(event.event, event.data))


class Sum:
    """What the events so far add up to. Parts that grow are changed in place.

    `facts`: other fields of the lease that differ from when it was opened. `runs`: the fields of each run.
    """

    def __init__(self, opened: Lease) -> None:
        self._opened = opened
        self.facts: dict[str, Any] = {}
        self._attempts: dict[int, Attempt] = {}
        self._holdings: dict[str, Holding] = {}
        self._runs: dict[str, dict[str, Any]] = {}
        self._ran: dict[tuple[str, int], Ran] = {}

    def lease(self) -> Lease:
        return replace(
            self._opened,
            attempts=tuple(self._attempts.values()),
            holdings=tuple(self._holdings.values()),
            runs={run_id: LeasedRun(**fields) for run_id, fields in self._runs.items()},
            ran=tuple(self._ran.values()),
            **self.facts,
        )

    def add(self, told: LedgerEvent, time: float, by: str) -> None:
        """Add an event of `time`, that client `by` wrote. Raise KeyError if the start of its run is missing;
        nothing is then changed.
        """
        match told:
            case RunEnded(run_id, reason):
                self._runs[run_id].update(exit_reason=reason)
            case RunCollected(run_id, left, ran):
                self._runs[run_id].update(collected=True, lost=None, left=left, home=by)
                self._charge(ran)
            case RunReleased(run_id):
                self._runs[run_id].update(released=True)
            case RunStarted(run_id, draft):
                self._runs[run_id] = {"run_id": run_id, "started_at": time, "draft": draft, "by": by}
            case RunFound(run_id, draft):
                found = {"run_id": run_id, "started_at": time, "draft": draft, "by": by, "found": True}
                self._runs[run_id] = found
            case RunRefused(run_id):
                self._runs.pop(run_id, None)
            case RunQueued(run_id):
                self._runs[run_id].update(queued=True)
            case RunBegan(run_id):
                self._runs[run_id].update(began=True)
            case RunResumed(run_id):
                self._runs[run_id].update(resumed=Resumed(told.attempt, told.copy, told.taken_at))
            case RunSuperseded(run_id):
                self._runs[run_id].update(left=())
            case RunLost(run_id, reason, detail, ran):
                self._runs[run_id].update(exit_reason=reason, lost=detail)
                self._charge(ran)
            case _:
                self._add_to_lease(told, time, by)

    def _add_to_lease(self, told: LedgerEvent, time: float, by: str) -> None:
        match told:
            case LeaseKept():
                self.facts.update(for_run=None)
            case ProfileChanged(profile):
                self.facts.update(profile=profile)
            case CreateIntent():
                self._intend(told)
                self.facts.update(spec_id=told.spec_id, attempted_at=time, closed_at=None)
            case CreateRefused():
                self._refuse(told)
                self.facts.update(attempted_at=time)
            case CreateAccepted():
                self._accept(told, time, by)
            case ImageIntent(name):
                self.facts.update(baking=name)
            case ImageMade():
                self.facts.update(image=told)
            case ImageDeleted(name):
                self._forget_image(name)
            case JoinIntent():
                self.facts.update(joined=True)
            case MachineArmed(machine):
                self._change_holding(machine, armed=True)
            case MachineEnded(machine, at):
                held = self._holdings.get(machine)
                if held and held.ended_at is None:  # the first end that was seen counts
                    self._change_holding(machine, ended_at=at)
            case StackInstalled(agent, stack):
                self.facts.update(agent=agent, stack=stack)
            case LeaseClosed():
                self.facts.update(closed_at=time)
                self._discard()

    def _discard(self) -> None:
        """Note of runs whose results did not come that these went with the machine."""
        machine = next(reversed(self._holdings), "its machine")
        for run in self._runs.values():
            if not run.get("collected") and run.get("lost") is None:
                run.update(discarded=machine)

    def _forget_image(self, name: str) -> None:
        made = self.facts.get("image")
        if made is not None and made.name == name:
            self.facts.update(image=None, baking="")

    def _charge(self, ran: Ran | None) -> None:
        """Note the times and cost of a run's job, if they are known."""
        if ran is not None:
            key = (ran.run_id, ran.attempt)
            self._ran.pop(key, None)
            self._ran[key] = ran

    def _intend(self, told: CreateIntent) -> None:
        """Note a create call. An attempt that is continued after a kill keeps its number."""
        facts = (told.attempt, told.instance_type, told.zone, told.price, told.deadline)
        self._attempts.pop(told.attempt, None)
        self._attempts[told.attempt] = Attempt(*facts, lasts=told.lasts, group=told.group)
        if told.group and told.group == self._opened.id:
            self.facts.update(joined=True)

    def _settle(self, number: int, outcome: str, *, message: str = "", undecided: bool = False) -> bool:
        """Note the outcome of an attempt. Return whether it was accepted before."""
        attempt = self._attempts.get(number)
        if attempt is None:
            return False
        self._attempts[number] = replace(attempt, outcome=outcome, message=message, undecided=undecided)
        return attempt.outcome == "accepted"

    def _refuse(self, told: CreateRefused) -> None:
        """Note a refusal. If it comes after the machine was accepted, that machine never became reachable and
        costs nothing.
        """
        if self._settle(told.attempt, told.fault, message=told.message, undecided=told.undecided):
            known = (self.facts["machine"] or {}).get("id")
            self._change_holding(known, price=0.0, disk_price=0.0)
            self.facts.update(machine=None, created_at=None, deadline=None, price=0.0)

    def _accept(self, told: CreateAccepted, time: float, by: str) -> None:
        """Note a machine. It replaces its earlier entry if it was found again."""
        self._settle(told.attempt, "accepted")
        facts = (told.machine, told.created_at, time, told.deadline, told.price)
        new = Holding(self._opened.id, *facts, age=told.age, disk_price=told.disk_usd_hour, by=by)
        self._holdings.pop(new.id, None)
        self._holdings[new.id] = new
        found = {"machine": told.machine, "created_at": told.created_at, "deadline": told.deadline}
        self.facts.update(**found, price=told.price, closed_at=None, agent=None, stack=None)

    def _change_holding(self, machine: str | None, **changes: Any) -> None:
        if machine is not None and machine in self._holdings:
            self._holdings[machine] = replace(self._holdings[machine], **changes)
