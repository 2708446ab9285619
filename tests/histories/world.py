"""Projects and a cloud in this process, on which verbs really act; what a guest does is in guest.py.

Real: leases, ledgers, plans, locks, attempts, fetching, settling, and every verb. Not real: the guest, its
packages and its jobs. A verb can be killed at any of its ledger's lines and calls of the cloud or a guest.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from datetime import datetime, tzinfo
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

import pytest

from orchestrator.api import cancelling, lease, pulling, run_job, training
from orchestrator.leases import down as ending
from orchestrator.leases import gc, offered, provision, specs
from orchestrator.leases.status import status
from orchestrator.ledger import Ledger, lines
from orchestrator.model import LABEL_LEASE, Machine
from orchestrator.providers.memory import MemoryProvider
from orchestrator.session import machines as machines_
from orchestrator.session import reach, work_locks
from orchestrator.session.project import Project
from tests.histories.clients import Clients, Killed, Verb
from tests.histories.guest import Guests, place_guests
from tests.unit.memory_cloud import opened, serve

__all__ = ["Clock", "Killed", "World"]

T = TypeVar("T")

PROFILE = """version: 1
name: tiny
cloud: memory
resources: {cpus: 2, memory: 4 GiB}
max_duration: 30m
stack: {lock: requirements.lock}
train: {command: python train.py, outputs: [out]}
"""
LASTS = 1800.0


class Clock:
    """Seconds since the epoch, which tests can turn on; for everybody the same."""

    def __init__(self) -> None:
        self._real = time.time
        self.ahead = 0.0

    def __call__(self) -> float:
        return self._real() + self.ahead


class Cloud(MemoryProvider):
    """`stuck`: ids of machines that do not end themselves at their deadline."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock=clock)
        self.stuck: set[str] = set()
        self.list_lag_s = 0.001  # its lists may lag behind: one empty answer proves nothing

    def _enforce_deadlines(self) -> None:
        for name, made in self._made.items():
            due = made.made_at + LASTS
            if made.ended_at is None and name not in self.stuck and self._clock() >= due:
                made.ended_at = due

    def ended_at(self, machine: str) -> float | None:
        return self._made[machine].ended_at

    def script_nothing(self) -> None:
        """From now on it answers as it should."""
        for operation in self._script.values():
            operation.clear()
        self.list_nothing(0)


class World:
    """Folders 0 and 1 are one user's: a project and a clone of it. Folder 2 is somebody else's."""

    def __init__(self, root: Path, patch: pytest.MonkeyPatch) -> None:
        self.root = root
        self.clock = Clock()
        self.cloud = Cloud(self.clock)
        self.guests = Guests(self.cloud, lambda: self.clients.effect())
        self.clients = Clients(patch)
        self.places = tuple(_project(root / name) for name in ("project", "clone", "theirs"))
        serve(self.cloud, patch, "memory", "local")
        _turn_clocks(patch, self.clock)
        _hurry(patch)
        place_guests(patch, self.guests)
        _count_effects(patch, self)

    def ledger(self, who: int) -> Ledger | None:
        """That of the open lease."""
        leases = self.places[who].open_leases()
        return self.places[who].ledger(leases[-1].id) if leases else None

    def alone(self, act: Callable[[], T], effect: int | None = None) -> Any:
        """Call a verb; return its result or refusal. With `effect` (from 1), kill it before that effect."""
        return self.clients.alone(Verb(act, effect))

    def at_once(self, first: Verb, second: Verb, switches: Sequence[int]) -> tuple[Any, Any]:
        return self.clients.at_once(first, second, switches)

    def machines(self, lease_id: str) -> list[Machine]:
        return [one for one in self.cloud.alive() if one.labels.get(LABEL_LEASE) == lease_id]

    # ------------------------------------------------------------ verbs

    def up(self, who: int = 0) -> Any:
        return lease.up(self._profile(who), folder=self.places[who].root)

    def run(self, who: int, run_id: str, **wishes: Any) -> Any:
        return run_job.run(self._profile(who), run_id=run_id, folder=self.places[who].root, **wishes)

    def train(self, who: int, run_id: str, **wishes: Any) -> Any:
        return training.train(run_id=run_id, folder=self.places[who].root, **wishes)

    def pull(self, who: int, run_id: str | None = None, *, again: bool = False) -> Any:
        return pulling.pull(run_id, again=again, folder=self.places[who].root)

    def cancel(self, who: int, run_id: str | None = None) -> Any:
        return cancelling.cancel(run_id, folder=self.places[who].root)

    def down(self, who: int, *, discard: bool = False) -> Any:
        return ending.down(folder=self.places[who].root, discard=discard)

    def down_all(self, who: int, *, discard: bool = False) -> Any:
        return ending.down(folder=self.places[who].root, everything=True, discard=discard, clouds=("memory",))

    def status(self, who: int) -> Any:
        return status(ask=True, folder=self.places[who].root)

    def gc(self, who: int) -> Any:
        del who
        return gc.gc(("memory",), opened=lambda _: opened())

    def by_somebody_else(self, act: Callable[[], T]) -> Any:
        """As another user on the same cloud, with a state folder of their own."""
        mine = os.environ["ORCH_STATE_HOME"]
        os.environ["ORCH_STATE_HOME"] = f"{self.root}/their-state"
        try:
            return self.alone(act)
        finally:
            os.environ["ORCH_STATE_HOME"] = mine

    def _profile(self, who: int) -> Path:
        return self.places[who].root / "orch.yaml"


def _project(root: Path) -> Project:
    root.mkdir(parents=True)
    (root / "orch.yaml").write_text(PROFILE)
    (root / "train.py").write_text("")
    (root / "requirements.lock").write_text("six==1.17.0 --hash=sha256:" + "4" * 64 + "\n")
    return Project(root)


def _turn_clocks(patch: pytest.MonkeyPatch, clock: Clock) -> None:
    class Turned(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Turned:
            return cls.fromtimestamp(clock(), tz)

    patch.setattr(time, "time", clock)
    for module in (specs, offered):
        patch.setattr(module, "datetime", Turned)
    patch.setattr(gc, "datetime", Turned)
    patch.setattr(lines, "_now", clock)
    patch.setattr(lines.clock, "tick", lambda: None)


def _hurry(patch: pytest.MonkeyPatch) -> None:
    """No waiting, and nothing that needs the packages of a project."""
    patch.setattr(provision, "local_stack", lambda *_: SimpleNamespace(python=sys.executable))
    for module in (offered, provision):
        patch.setattr(
            module,
            "foreseen",
            SimpleNamespace(refuse_foreseen=lambda *_: None, foreseen_problems=lambda _: ()),
        )
    patch.setattr(provision, "require_gpus", lambda _: None)
    patch.setattr(provision, "_installed", lambda *_: None)
    patch.setattr(machines_, "_POLL_SECONDS", 0.0)
    patch.setattr(machines_, "_LIST_SECONDS", 0.0)
    patch.setattr(machines_, "_GONE_LIMIT", 0.2)
    patch.setattr(machines_, "_CALL_SECONDS", 0.0)
    patch.setattr(work_locks, "_GRACE_SECONDS", 0.0)
    patch.setattr(reach, "_POLL_SECONDS", 0.0)
    patch.setattr(reach, "_TOLD_AFTER", (0.0,))
    patch.setattr(gc, "_POLL_S", 0.0)
    patch.setattr(gc, "_GONE_LIMIT_S", 0.2)


def _count_effects(patch: pytest.MonkeyPatch, world: World) -> None:
    append, answer = Ledger.append, world.cloud._answer

    def counted_append(ledger: Ledger, event: str, **data: Any) -> None:
        world.clients.effect()
        append(ledger, event, **data)

    def counted_answer(operation: str, effect: Callable[[], T]) -> T:
        world.clients.effect()
        answered = answer(operation, effect)
        world.clients.effect()
        return answered

    patch.setattr(Ledger, "append", counted_append)
    patch.setattr(world.cloud, "_answer", counted_answer)
