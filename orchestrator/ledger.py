"""The journal of one lease: append-only lines, fsynced, and what they add up to.

`.orch/<lease>/ledger.jsonl` holds one JSON object a line: {"v", "seq", "time", "event", ...}. An event
that announces an effect is written before the effect happens, so that a killed `orch` finds what it
was about to do. Losing the file loses convenience only: machines are found by their labels.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from orchestrator.errors import UsageError

VERSION = 1


@dataclass(frozen=True)
class Event:
    """One line. `data` is what the event carries besides its sequence number and time (Unix seconds)."""

    seq: int
    time: float
    event: str
    data: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class LeftBehind:
    """A file of a collected run that stayed on its machine. `can_come`: fetching it again may bring it."""

    path: str
    can_come: bool


@dataclass(frozen=True)
class LeasedRun:
    """A run as the ledger knows it. `exit_reason` is None while nobody saw it end.

    `lost`: why its results will never come, where its machine is gone with them. `draft` is the part of its
    record that was known when it started: stack, data, parity, timings.
    """

    run_id: str
    started_at: float
    collected: bool = False
    exit_reason: str | None = None
    lost: str | None = None
    left: tuple[LeftBehind, ...] = ()
    draft: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Attempt:
    """One create call. `outcome`: intended (maybe made), accepted, or the fault that refused it."""

    number: int
    instance_type: str
    zone: str
    price: float
    deadline: float
    outcome: str = "intended"
    message: str = ""
    lasts: float | None = None

    @property
    def settled(self) -> bool:
        """Whether it is known what came of it: where not, its machine may have been made."""
        return self.outcome not in ("intended", "transient", "unknown")


@dataclass(frozen=True)
class Holding:
    """One machine that the lease had, or has. Times are Unix seconds.

    `created_at` is by the cloud's clock, `noted_at` by this computer's. `ended_at`: when it stopped to cost;
    None while nobody saw it gone. `machine`: its facts, as the api wrote them.
    """

    lease: str
    machine: Mapping[str, Any]
    created_at: float
    noted_at: float
    deadline: float | None
    price: float
    ended_at: float | None = None

    @property
    def id(self) -> str:
        return str(self.machine["id"])

    def seconds(self, now: float) -> float:
        """How long it ran. It ends itself at its deadline, whether somebody saw that or not."""
        end = now if self.ended_at is None else self.ended_at
        end = end if self.deadline is None else min(end, self.deadline)
        return max(0.0, end - self.created_at)


@dataclass(frozen=True)
class Lease:
    """One `up` … `down`, as its events add up."""

    id: str
    opened_at: float
    profile: Mapping[str, Any]
    spec_id: str = ""
    attempts: tuple[Attempt, ...] = ()
    attempted_at: float | None = None
    machine: Mapping[str, Any] | None = None
    created_at: float | None = None
    deadline: float | None = None
    price: float = 0.0
    holdings: tuple[Holding, ...] = ()
    agent: Mapping[str, str] | None = None
    stack: Mapping[str, Any] | None = None
    runs: Mapping[str, LeasedRun] = field(default_factory=dict)
    closed_at: float | None = None
    whole: bool = True

    @property
    def open(self) -> bool:
        return self.closed_at is None

    @property
    def uncollected(self) -> tuple[LeasedRun, ...]:
        """The runs whose results are on the machine only. A lost run has none to collect any more."""
        return tuple(run for run in self.runs.values() if not run.collected and run.lost is None)

    @property
    def holding(self) -> Holding | None:
        """The machine that serves, or served last; None where none was accepted."""
        known = (self.machine or {}).get("id")
        return next((holding for holding in self.holdings if holding.id == known), None)

    def cost(self, now: float) -> float:
        """US dollars so far, of every machine that the lease had, at the recorded prices, by the second."""
        until = self.closed_at or now
        return sum(holding.seconds(until) / 3600 * holding.price for holding in self.holdings)

    def seconds(self, now: float) -> float:
        """For how long machines ran, each counted from its creation to its end."""
        return sum(holding.seconds(self.closed_at or now) for holding in self.holdings)


def fold(events: Sequence[Event]) -> Lease:
    """What the events add up to. The first must be `lease.opened`."""
    if not events or events[0].event != "lease.opened":
        raise UsageError("This ledger does not begin with the opening of a lease; it is damaged.")
    opened = events[0]
    lease = Lease(id=opened.data["lease"], opened_at=opened.time, profile=opened.data["profile"])
    for event in events[1:]:
        lease = _step(lease, event)
    return lease


def _step(lease: Lease, event: Event) -> Lease:
    data = event.data
    match event.event:
        case "profile.changed":
            return replace(lease, profile=data["profile"])
        case "create.intent":
            attempts = _intended(lease.attempts, data)
            return replace(lease, spec_id=data["spec_id"], attempts=attempts, attempted_at=event.time)
        case "create.refused":
            return _refused(lease, data)
        case "create.accepted":
            return replace(
                lease,
                attempts=_settle(lease.attempts, data["attempt"], "accepted", data),
                machine=data["machine"],
                created_at=data["created_at"],
                deadline=data["deadline"],
                price=data["price"],
                holdings=_held(lease, event),
                agent=None,
                stack=None,
            )
        case "machine.ended":
            return replace(lease, holdings=_ended(lease.holdings, data["machine"], data["at"]))
        case "stack.installed":
            return replace(lease, agent=data["agent"], stack=data["stack"])
        case "run.started":
            return _with_run(lease, LeasedRun(data["run_id"], event.time, draft=data["draft"]))
        case "run.ended":
            return _with_run(lease, replace(lease.runs[data["run_id"]], exit_reason=data["reason"]))
        case "run.collected":
            return _with_run(
                lease, replace(lease.runs[data["run_id"]], collected=True, lost=None, left=_left(data))
            )
        case "run.lost":
            lost = replace(lease.runs[data["run_id"]], exit_reason=data["reason"], lost=data["detail"])
            return _with_run(lease, lost)
        case "lease.closed":
            return replace(lease, closed_at=event.time)
    return lease  # events of a later version inform it, they do not break this one


def _left(data: Mapping[str, Any]) -> tuple[LeftBehind, ...]:
    return tuple(LeftBehind(each["path"], each["can_come"]) for each in data.get("left", ()))


def _refused(lease: Lease, data: Mapping[str, Any]) -> Lease:
    """A cloud may refuse a machine after it accepted it: what it accepted never served, and does not cost."""
    number = data["attempt"]
    attempts = _settle(lease.attempts, number, data["fault"], data)
    if not any(a.number == number and a.outcome == "accepted" for a in lease.attempts):
        return replace(lease, attempts=attempts)
    known = (lease.machine or {}).get("id")
    holdings = tuple(replace(h, price=0.0) if h.id == known else h for h in lease.holdings)
    return replace(
        lease, attempts=attempts, holdings=holdings, machine=None, created_at=None, deadline=None, price=0.0
    )


def _held(lease: Lease, event: Event) -> tuple[Holding, ...]:
    """The holdings with one more, or with one that was found again."""
    data = event.data
    new = Holding(lease.id, data["machine"], data["created_at"], event.time, data["deadline"], data["price"])
    return (*(held for held in lease.holdings if held.id != new.id), new)


def _ended(holdings: tuple[Holding, ...], machine: str, at: float) -> tuple[Holding, ...]:
    """The first end that was seen counts."""
    return tuple(replace(h, ended_at=at) if h.id == machine and h.ended_at is None else h for h in holdings)


def _intended(attempts: tuple[Attempt, ...], data: Mapping[str, Any]) -> tuple[Attempt, ...]:
    """An attempt that is taken up again after a kill keeps its number, and is listed once."""
    facts = (data["attempt"], data["instance_type"], data["zone"], data["price"], data["deadline"])
    attempt = Attempt(*facts, lasts=data.get("lasts"))
    return (*(a for a in attempts if a.number != attempt.number), attempt)


def _settle(
    attempts: tuple[Attempt, ...], number: int, outcome: str, data: Mapping[str, Any]
) -> tuple[Attempt, ...]:
    return tuple(
        replace(a, outcome=outcome, message=data.get("message", "")) if a.number == number else a
        for a in attempts
    )


def _with_run(lease: Lease, run: LeasedRun) -> Lease:
    return replace(lease, runs={**lease.runs, run.run_id: run})


class Ledger:
    """The file. Every append is one write, flushed to the disk before it returns."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, event: str, **data: Any) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self._locked() as handle:
            text = _whole_lines(handle)
            record = {"v": VERSION, "seq": text.count(b"\n"), "time": _now(), "event": event, **data}
            os.write(handle, json.dumps(record, sort_keys=True).encode() + b"\n")
            os.fsync(handle)

    def events(self) -> list[Event]:
        """All whole lines; a torn last line (a write cut by power loss) is left out."""
        if not self.path.exists():
            return []
        whole, _, _ = self.path.read_bytes().rpartition(b"\n")
        return [_event(line) for line in whole.splitlines() if line.strip()]

    def lease(self) -> Lease:
        return fold(self.events())

    @contextmanager
    def _locked(self) -> Iterator[int]:
        handle = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield handle
        finally:
            os.close(handle)


def _whole_lines(handle: int) -> bytes:
    """The file's whole lines; a torn last line is cut off, so that the next append stands alone."""
    text = os.pread(handle, os.fstat(handle).st_size, 0)
    whole = text[: text.rfind(b"\n") + 1]
    if len(whole) != len(text):
        os.ftruncate(handle, len(whole))
    return whole


def _event(line: bytes) -> Event:
    record = json.loads(line)
    data = {key: value for key, value in record.items() if key not in ("v", "seq", "time", "event")}
    return Event(record["seq"], record["time"], record["event"], data)


def _now() -> float:
    return datetime.now(UTC).timestamp()
