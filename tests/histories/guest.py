"""Guests of the machines in memory, reduced to the runs on them.

Real around it: sessions, attempts, following, fetching, settling, locks. A run's id says how its job ends:
"bad-…" fails, and of "torn-…" one file was changed after its end, so that only a second look brings it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from orchestrator import jobs, stack
from orchestrator.errors import HostError
from orchestrator.leases import provision
from orchestrator.ledger.draft import Draft
from orchestrator.model import Agent, Exit, Job, NotFetched, Refused, Room, RunState
from orchestrator.model.outcomes import ExitReason
from orchestrator.providers.memory import MemoryProvider
from orchestrator.runs import attempts, collect, follow, inputs, other_runs
from orchestrator.session import connect as connecting
from orchestrator.session import session
from orchestrator.training import download, one_run
from orchestrator.training.options import RunOptions

AGENT = Agent("python3", "runtime", "base")
_OK = SimpleNamespace(returncode=0, stdout=b"", stderr=b"")


@dataclass
class GuestRun:
    """One run as its machine knows it. `collected`: the mark that lets the machine count as idle."""

    job: str
    exit: Exit | None = None
    collected: bool = False
    fetched: bool = False

    @property
    def state(self) -> RunState:
        return RunState("running" if self.exit is None else "ended", self.exit, 0, 1.0, 2.0)

    def end(self, reason: str | None = None) -> None:
        if self.exit is None:
            usual = "failed" if self.job.startswith("bad") else "completed"
            why = reason or usual
            self.exit = Exit(0 if why == "completed" else 1, None, ExitReason(why), "So it ended.")


@dataclass
class Guests:
    """`machines`: the runs of each machine that ever was, by the names that they have there."""

    cloud: MemoryProvider
    effect: Callable[[], None]
    machines: dict[str, dict[str, GuestRun]] = field(default_factory=dict)

    def runs(self, machine: str) -> dict[str, GuestRun]:
        return self.machines.setdefault(machine, {})

    def runs_on(self, machine: str) -> bool:
        return any(one.id == machine for one in self.cloud.alive())

    def replaced(self) -> int:
        """How many attempts made room for another one."""
        return sum("@" in name for runs in self.machines.values() for name in runs)

    def is_used(self, machine: str) -> bool:
        """Whether its watcher keeps it on: a run goes on there, or nobody has its results."""
        return any(run.exit is None or not run.collected for run in self.runs(machine).values())


class Door:
    """The way onto one machine; it breaks when the machine ends."""

    name = "guest"

    def __init__(self, guests: Guests, machine: str) -> None:
        self.guests = guests
        self.machine = machine

    def run(self, *_: Any, **__: Any) -> Any:
        self.require()
        return _OK

    def close(self) -> None:
        pass

    def require(self) -> dict[str, GuestRun]:
        self.guests.effect()
        if not self.guests.runs_on(self.machine):
            raise HostError(f"The connection to {self.machine} broke.")
        return self.guests.runs(self.machine)


def place_guests(patch: pytest.MonkeyPatch, guests: Guests) -> None:
    """Let every verb that opens a machine meet `guests` there."""

    def connect(_place: Any, _lease: Any, machine: Any, *_: Any, **__: Any) -> Door:
        return Door(guests, machine.id)

    patch.setattr(
        session, "connect_verified", lambda place, held, _, machine, __: connect(place, held, machine)
    )
    patch.setattr(follow, "connect", connect)
    patch.setattr(connecting, "connect", connect)
    for name in ("start", "state", "follow", "mark_collected", "cancel", "room", "rename", "waiting"):
        patch.setattr(jobs, name, globals()[f"_{name}"])
    patch.setattr(collect, "fetch", _fetch)
    patch.setattr(session, "local_stack", lambda *_: SimpleNamespace(python="python3"))
    patch.setattr(stack, "interpreter", lambda _: None)
    patch.setattr(stack, "bootstrap", lambda *_, **__: AGENT)
    patch.setattr(session.Session, "watch_idleness", lambda *_, **__: None)
    patch.setattr(follow, "_PAUSE_SECONDS", (0.0, 0.0, 0.0))
    patch.setattr(download, "_model_check", lambda *_: None)
    patch.setattr(one_run, "prepared", _prepared)
    for module in (one_run, provision):
        patch.setattr(module, "check_project", lambda *_, **__: None)
        patch.setattr(module, "report_once", lambda *_: None)


def _prepared(opened: session.Session, run_id: str, wish: RunOptions) -> Draft:
    """A run made ready: nothing is installed, sent or compared; its attempt is told as ever."""
    other_runs.require_turn(opened, run_id, wish.parallel, wish.queued)
    attempts.archive_attempt(opened.project, run_id)
    now = inputs.inputs_of(opened.project, opened.profile)
    inputs.keep_inputs(opened.project.run(run_id), now)
    number = attempts.number_of_next(opened.project, run_id, opened.ledger.lease().runs.get(run_id))
    changed = attempts.changed_since(opened.project, run_id, now)
    job = {"run_id": run_id, "argv": ["python", "train.py"], "python": "python3", "trees": []}
    facts = {
        "command": list(now.command),
        "code": {"digest": now.code_digest, "files": len(now.code)},
        "agent": {"python": AGENT.python, "root": AGENT.root, "base": AGENT.base},
        "attempt": {"number": number, "changed": changed, "retried": asdict(wish.retried)},
        "job": job,
    }
    return Draft.from_json(facts)


# ---------------------------------------------------------------- jobs, as a guest answers


def _start(
    host: Door, agent: Agent, job: Job, outputs: Any = (), *, awaited: bool = False, **_: Any
) -> RunState:
    del agent, outputs, _
    assert awaited
    run = host.require().setdefault(job.run_id, GuestRun(job.run_id))
    host.guests.effect()
    return run.state


def _state(host: Door, agent: Agent, run_id: str) -> RunState:
    del agent
    run = host.require().get(run_id)
    return run.state if run else RunState("absent")


def _follow(host: Door, agent: Agent, run_id: str, offset: int, write: Any, *, live: bool = True) -> int:
    """Whoever follows a run sees its end: time is no matter here."""
    del agent, write
    run = host.require().get(run_id)
    if run and live:
        run.end()
    return offset


def _mark_collected(host: Door, agent: Agent, run_id: str) -> None:
    del agent
    run = host.require().get(run_id)
    if run:
        run.collected = True


def _cancel(host: Door, agent: Agent, run_id: str, grace: float = 10.0) -> RunState:
    del grace
    run = host.require().get(run_id)
    if run:
        run.end("cancelled")
    host.guests.effect()
    return _state(host, agent, run_id)


def _room(host: Door, agent: Agent) -> Room:
    del agent
    host.require()
    return Room(2.0, 1.0, 4 << 30, 2 << 30)


def _waiting(host: Door, base: str) -> tuple[jobs.Waiting, ...]:
    del base
    runs = [(name, run) for name, run in host.require().items() if not run.collected and "@" not in name]
    return tuple(jobs.Waiting(name, run.exit.reason if run.exit else None) for name, run in runs)


def _rename(host: Door, agent: Agent, run_id: str, name: str) -> None:
    del agent
    runs = host.require()
    if run_id in runs:
        assert name not in runs, "an attempt would be moved into another one's folder"
        runs[name] = runs.pop(run_id)
    host.guests.effect()


def _fetch(
    host: Door, agent: Agent, run_id: str, folder: Path, progress: Any, *, again: bool = False
) -> collect.Fetched:
    del agent, progress
    run = host.require().get(run_id)
    if run is None or run.exit is None:
        raise HostError(f"{run_id} is not there, or goes on.")
    (folder / collect.OUTPUTS).mkdir(parents=True, exist_ok=True)
    (folder / collect.OUTPUTS / "model.txt").write_text(run_id)
    torn = run.job.startswith("torn") and not again
    run.fetched = True
    host.guests.effect()
    why = NotFetched("out/log.txt", "file", Refused.CHANGED, "it was changed after the run's end")
    return collect.Fetched((), (why,) if torn else ())
