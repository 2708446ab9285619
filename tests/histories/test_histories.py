"""Any order of verbs, kills and accidents: at most one machine, none after `down`, no result forgotten.

The suite tries the same 200 orders each time; `ORCH_HISTORIES=2000` as many new ones (`scripts/crashtest`).
"""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from orchestrator.errors import Fault, OrchError
from orchestrator.providers.memory import Mishap
from tests.histories.world import Clock, Killed, World, fetched, started

EFFECTS = st.none() | st.integers(1, 25)
OPERATIONS = st.sampled_from(["create", "list", "find", "delete", "endpoint"])
FAULTS = st.sampled_from([Fault.TRANSIENT, Fault.UNKNOWN, Fault.AUTH, Fault.CAPACITY])


class Histories(RuleBasedStateMachine):
    """`lost_contact`: runs that were started and not fetched, with the lease that holds them."""

    @initialize()
    def begin(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.patch = pytest.MonkeyPatch()
        self.patch.setenv("XDG_STATE_HOME", f"{self.folder.name}/state")
        self.patch.setenv("ORCH_STATE_HOME", f"{self.folder.name}/machines")
        root = Path(self.folder.name) / "project"
        root.mkdir()
        self.world = World(root, self.patch, Clock(time.time()))
        self.runs = 0

    # ------------------------------------------------------------ verbs, which may be killed

    @rule(effect=EFFECTS)
    def up(self, effect: int | None) -> None:
        came = self.world.killed_at(effect, self.world.up)
        if not isinstance(came, OrchError | Killed):
            assert len(self.world.cloud.alive()) == 1

    @rule(effect=EFFECTS, bad=st.booleans())
    def run(self, effect: int | None, bad: bool) -> None:
        self.runs += 1
        name = f"{'bad' if bad else 'good'}-{self.runs}"
        came = self.world.killed_at(effect, lambda: self.world.run(name))
        if not isinstance(came, OrchError | Killed):
            assert came.succeeded
            assert (self.world.place.run(name) / "run.json").is_file()

    @rule(effect=EFFECTS, discard=st.booleans())
    def down(self, effect: int | None, discard: bool) -> None:
        unfetched = self._unfetched() if self.world.cloud.alive() else []
        came = self.world.killed_at(effect, lambda: self.world.down(discard=discard))
        if isinstance(came, OrchError | Killed):
            return
        assert came.proven_gone
        assert not self.world.cloud.alive()
        assert discard or not unfetched, "results went with the machine, and nobody had said so"

    @rule()
    def status(self) -> None:
        self.world.killed_at(None, self.world.status)

    @rule(effect=EFFECTS)
    def gc(self, effect: int | None) -> None:
        before = {machine.id for machine in self.world.cloud.alive()}
        self.world.killed_at(effect, self.world.gc)
        assert {machine.id for machine in self.world.cloud.alive()} == before, "none was past its deadline"

    # ------------------------------------------------------------ jobs

    @precondition(lambda self: self.world.ledger() and self.world.cloud.alive())
    @rule()
    def a_run_starts(self) -> None:
        ledger = self.world.ledger()
        if ledger is not None and ledger.lease().machine is not None:
            self.runs += 1
            started(ledger, f"job-{self.runs}")

    @precondition(lambda self: self._unfetched() and self.world.cloud.alive())
    @rule()
    def a_run_is_fetched(self) -> None:
        ledger = self.world.ledger()
        assert ledger is not None
        fetched(self.world.place, ledger, self._unfetched()[0])

    # ------------------------------------------------------------ accidents

    @rule()
    def the_machine_is_taken_back(self) -> None:
        for machine in self.world.cloud.alive():
            self.world.cloud.kill(machine)

    @rule()
    def the_deadline_comes(self) -> None:
        self.world.clock.now += 1801
        assert not self.world.cloud.alive()

    @rule(answers=st.integers(1, 2))
    def lists_are_stale(self, answers: int) -> None:
        """For shorter than a cloud may lag: where no id is known, nothing but lists can tell of a machine."""
        self.world.cloud.list_nothing(answers)

    @rule(operation=OPERATIONS, fault=FAULTS, late=st.booleans())
    def a_call_fails(self, operation: str, fault: Fault, late: bool) -> None:
        refused = fault in (Fault.AUTH, Fault.CAPACITY)  # such an answer says that nothing was done
        self.world.cloud.fail_next(operation, Mishap(fault, after_effect=late and not refused))

    @rule(noise=st.sampled_from([b"\0" * 64 + b"\n", b"<<<<<<< HEAD\n", b'{"v": 1, "seq"\n', b"\xff\xfe"]))
    def the_ledger_gets_noise(self, noise: bytes) -> None:
        ledger = self.world.ledger()
        if ledger is not None:
            with ledger.path.open("ab") as file:
                file.write(noise)

    # ------------------------------------------------------------ what always holds

    @invariant()
    def there_is_one_machine_at_most(self) -> None:
        alive = self.world.cloud.alive()
        assert len(alive) <= 1, alive

    @invariant()
    def no_machine_runs_without_a_lease(self) -> None:
        if self.world.cloud.alive():
            assert self.world.place.open_leases(), "the lease is closed, and its machine runs"

    @invariant()
    def no_run_is_forgotten(self) -> None:
        """A run of a closed lease was fetched, or its record says what became of it."""
        for lease in self.world.place.leases():
            for run in () if lease.open else lease.runs.values():
                discarded = run in lease.uncollected
                recorded = (self.world.place.run(run.run_id) / "run.json").is_file()
                assert run.collected or discarded or (run.lost and recorded), run

    def teardown(self) -> None:
        cloud = self.world.cloud
        for operation in cloud._script.values():
            operation.clear()
        cloud.list_nothing(0)
        try:
            came = self.world.killed_at(None, lambda: self.world.down(discard=True))
            assert not isinstance(came, OrchError | Killed), came
            assert not cloud.alive()
            assert not self.world.place.open_leases()
        finally:
            self.patch.undo()
            self.folder.cleanup()

    def _unfetched(self) -> list[str]:
        ledger = self.world.ledger()
        return [run.run_id for run in ledger.lease().uncollected] if ledger else []


TestHistories: Any = Histories.TestCase
TestHistories.settings = settings(
    max_examples=int(os.environ.get("ORCH_HISTORIES", "200")),
    stateful_step_count=15,
    derandomize="ORCH_HISTORIES" not in os.environ,
    print_blob=True,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
