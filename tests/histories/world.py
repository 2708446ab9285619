"""A project and a cloud in this process, on which verbs really act; what a guest does is told by a few words.

Real: leases, ledgers, plans, settling, `up`, `run`, `down`, `status`, `gc`. Not real: the guest, its packages
and its jobs. A verb can be killed at any of its ledger's lines and calls of the cloud.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

import pytest

from orchestrator.api import awaiting, collect, ending, gc, held, lease, whole
from orchestrator.api.folder import Folder
from orchestrator.api.settle import record_of
from orchestrator.api.standing import status
from orchestrator.api.verdict import judged
from orchestrator.errors import OrchError
from orchestrator.ledger import Ledger
from orchestrator.model import Exit, RunRecord
from orchestrator.providers.memory import MemoryProvider
from tests.unit.memory_cloud import opened, serve

T = TypeVar("T")

DRAFT: dict[str, Any] = {"stack": {}, "data": {}, "parity": None, "timings": {}}
PROFILE = """version: 1
name: tiny
cloud: memory
resources: {cpus: 2, memory: 4 GiB}
max_duration: 30m
stack: {lock: requirements.lock}
train: {command: python train.py}
"""


class Killed(BaseException):
    """The process of a verb ended here, without any of its clean-up that writes or calls."""


class Clock:
    """Seconds since the epoch, turned by tests."""

    def __init__(self, now: float) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


class World:
    """One project; `clock` is the cloud's."""

    def __init__(self, root: Path, patch: pytest.MonkeyPatch, clock: Clock) -> None:
        self.place = Folder.at(root)
        self.clock = clock
        self.cloud = MemoryProvider(clock=clock)
        self.cloud.list_lag_s = 0.001  # its lists may lag behind: one empty answer proves nothing
        self._left: int | None = None
        self._dead = False
        (root / "orch.yaml").write_text(PROFILE)
        (root / "train.py").write_text("")
        (root / "requirements.lock").write_text("six==1.17.0 --hash=sha256:" + "4" * 64 + "\n")
        serve(self.cloud, patch)
        _replace_the_guest(patch)
        _count_effects(patch, self)

    @property
    def profile(self) -> Path:
        return self.place.root / "orch.yaml"

    def ledger(self) -> Ledger | None:
        """That of the open lease."""
        leases = self.place.open_leases()
        return self.place.ledger(leases[-1].id) if leases else None

    def killed_at(self, effect: int | None, verb: Callable[[], T]) -> T | OrchError | Killed:
        """What a verb returns or refuses; with `effect`, it is killed before that effect, from 1."""
        self._left, self._dead = effect, False
        try:
            return verb()
        except (OrchError, Killed) as error:
            return error
        finally:
            self._left, self._dead = None, False

    def up(self) -> Any:
        return lease.up(self.profile, folder=self.place.root)

    def run(self, run_id: str) -> RunRecord:
        return whole.run(self.profile, run_id=run_id, folder=self.place.root)

    def down(self, *, discard: bool = False) -> Any:
        return ending.down(folder=self.place.root, discard=discard)

    def status(self) -> Any:
        return status(ask=True, folder=self.place.root)

    def gc(self) -> Any:
        return gc.gc(("memory",), opened=lambda _: opened(), now=None)

    def effect(self) -> None:
        """Called before each effect of a verb. A process that was killed has no more of them."""
        if self._dead:
            raise Killed
        if self._left is not None:
            self._left -= 1
            if self._left <= 0:
                self._dead = True
                raise Killed


def started(ledger: Ledger, run_id: str) -> None:
    ledger.append("run.started", run_id=run_id, draft=DRAFT)


def fetched(place: Folder, ledger: Ledger, run_id: str, reason: str = "completed") -> RunRecord:
    """Bring a run home, as far as its record and the ledger are concerned."""
    exit_ = Exit(0 if reason == "completed" else 1, None, reason, "So it ended.")
    ledger.append("run.ended", run_id=run_id, reason=reason)
    record = record_of(place, ledger.lease(), run_id, DRAFT, exit=collect.exit_json(exit_))
    collect.write(record)
    ledger.append("run.collected", run_id=run_id, left=[])
    return record


def _replace_the_guest(patch: pytest.MonkeyPatch) -> None:
    """What installs and trains: nothing here, beyond what the ledger and the records then hold."""
    patch.setattr(lease, "local_stack", lambda *_: None)
    patch.setattr(lease, "foreseen", SimpleNamespace(refuse=lambda *_: None, sentences=lambda _: ()))
    patch.setattr(lease, "look", lambda *_, **__: None)
    patch.setattr(lease, "tell_once", lambda *_: None)
    patch.setattr(lease, "require_gpus", lambda _: None)
    patch.setattr(lease, "_installed", lambda *_: None)
    patch.setattr(lease, "open_session", _no_session)
    patch.setattr(whole, "one_run", _one_run)
    patch.setattr(held, "_POLL_SECONDS", 0.0)
    patch.setattr(held, "_LIST_SECONDS", 0.0)
    patch.setattr(held, "_GONE_LIMIT", 0.2)
    patch.setattr(held, "_CALL_SECONDS", 0.0)
    patch.setattr(awaiting, "_POLL_SECONDS", 0.0)
    patch.setattr(gc, "_POLL_S", 0.0)
    patch.setattr(gc, "_GONE_LIMIT_S", 0.2)


@contextmanager
def _no_session(*_: Any, reached: Any = None, **__: Any) -> Iterator[Any]:
    yield SimpleNamespace(machine=reached.machine, watch_idleness=lambda: None, confine=lambda: None)


def _one_run(place: Folder, held_: Any, profile: Any, name: str, *_: Any) -> RunRecord:
    """A job that succeeds unless its id says otherwise, and comes home."""
    del profile
    ledger = place.ledger(held_.id)
    if not any(run.run_id == name for run in ledger.lease().uncollected):
        started(ledger, name)
    record = fetched(place, ledger, name, "failed" if name.startswith("bad") else "completed")
    return judged(record, "orch.yaml")


def _count_effects(patch: pytest.MonkeyPatch, world: World) -> None:
    append, answer = Ledger.append, world.cloud._answer

    def counted_append(ledger: Ledger, event: str, **data: Any) -> None:
        world.effect()
        append(ledger, event, **data)

    def counted_answer(operation: str, effect: Callable[[], T]) -> T:
        world.effect()
        answered = answer(operation, effect)
        world.effect()
        return answered

    patch.setattr(Ledger, "append", counted_append)
    patch.setattr(world.cloud, "_answer", counted_answer)
