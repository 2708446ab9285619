"""Any order of verbs, kills and accidents, also two verbs at once: what is promised holds after every step.

The suite tries the same 200 orders each time; `ORCH_HISTORIES=2000` as many new ones (`scripts/crashtest`),
which prints how often each step was made.
"""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from orchestrator.errors import Fault, OrchError
from orchestrator.providers.memory import Mishap
from tests.histories.clients import Killed, Verb
from tests.histories.guest import GuestRun
from tests.histories.promises import Promises
from tests.histories.world import LASTS, World

EFFECTS = st.sampled_from([None] * 20 + list(range(1, 31)))
WHO = st.sampled_from([0, 0, 1])
NAMES = st.sampled_from(["good-1", "bad-1", "torn-1", "good-2", "bad-2"])
OPERATIONS = st.sampled_from(["create", "list", "find", "delete", "endpoint"])
FAULTS = st.sampled_from([Fault.TRANSIENT, Fault.UNKNOWN, Fault.AUTH, Fault.CAPACITY])
NOISE = st.sampled_from([b"\0" * 64 + b"\n", b"<<<<<<< HEAD\n", b'{"v": 1, "seq"\n', b"\xff\xfe"])
VERBS = st.sampled_from(
    ["up", "train", "detach", "run", "pull", "cancel", "down", "down_all", "status", "gc"]
)

MEMORY = next((place for place in ("/dev/shm",) if os.access(place, os.W_OK)), None)
"""A folder in memory, where nothing waits for a disk: a file that is written is there for all to read."""

MADE: Counter[str] = Counter()
"""How often each step was made, and how often it came to something."""


class Histories(RuleBasedStateMachine):
    @initialize(leased=st.sampled_from([(0,), (0, 1), ()]))
    def begin(self, leased: tuple[int, ...]) -> None:
        self.folder = tempfile.TemporaryDirectory(dir=MEMORY)
        self._seen: list[int] | None = None
        self.patch = pytest.MonkeyPatch()
        self.patch.setenv("XDG_STATE_HOME", f"{self.folder.name}/state")
        self.patch.setenv("ORCH_STATE_HOME", f"{self.folder.name}/machines")
        self.world = World(Path(self.folder.name), self.patch)
        self.promises = Promises(self.world)
        for who in leased:
            self.up(who=who, effect=None)

    # ------------------------------------------------------------ verbs, which may be killed

    @rule(who=WHO, effect=EFFECTS)
    def up(self, who: int, effect: int | None) -> None:
        self._alone("up", lambda: self.world.up(who), effect)

    @precondition(lambda self: self._leased())
    @rule(who=WHO, name=NAMES, effect=EFFECTS, parallel=st.booleans(), retry=st.booleans())
    def train(self, who: int, name: str, effect: int | None, parallel: bool, retry: bool) -> None:
        wishes = {"parallel": parallel, "retry_failed": retry}
        self._trained(
            "train",
            self._holder(who),
            name,
            lambda: self.world.train(self._holder(who), name, **wishes),
            effect,
        )

    @precondition(lambda self: self._leased())
    @rule(who=WHO, name=NAMES, effect=EFFECTS, parallel=st.booleans())
    def train_detached(self, who: int, name: str, effect: int | None, parallel: bool) -> None:
        wishes = {"parallel": parallel, "retry_failed": True, "detach": True}
        before, beside_before = self._running(), self._running_beside()
        if parallel:
            name = next(
                (f"good-{n}" for n in (1, 2, 3) if f"good-{n}" not in {run.job for run in before}), name
            )
        verb = "train --detach --parallel" if parallel else "train --detach"
        self._alone(verb, lambda: self.world.train(self._holder(who), name, **wishes), effect)
        beside = self._running_beside()
        MADE["runs beside each other"] += beside
        unknown = bool(self.promises.damaged)  # a run whose line cannot be read is not known to be beside
        assert parallel or beside_before or unknown or not beside, "it runs beside another one"

    @rule(who=WHO, name=NAMES, effect=EFFECTS, retry=st.booleans())
    def run(self, who: int, name: str, effect: int | None, retry: bool) -> None:
        self._trained("run", who, name, lambda: self.world.run(who, name, retry_failed=retry), effect)

    def _trained(self, verb: str, who: int, name: str, act: Callable[[], Any], effect: int | None) -> None:
        came = self._alone(verb, act, effect)
        if not isinstance(came, OrchError | Killed):
            assert came.succeeded
            assert (self.world.places[who].run(name) / "run.json").is_file()

    @precondition(lambda self: self._leased())
    @rule(who=WHO, name=st.none() | NAMES, effect=EFFECTS, again=st.booleans())
    def pull(self, who: int, name: str | None, effect: int | None, again: bool) -> None:
        self._alone("pull", lambda: self.world.pull(self._holder(who), name, again=again), effect)

    @precondition(lambda self: self._leased())
    @rule(who=WHO, name=st.none() | NAMES, effect=EFFECTS)
    def cancel(self, who: int, name: str | None, effect: int | None) -> None:
        self._alone("cancel", lambda: self.world.cancel(self._holder(who), name), effect)

    @rule(who=WHO, effect=EFFECTS, discard=st.booleans(), everything=st.booleans())
    def down(self, who: int, effect: int | None, discard: bool, everything: bool) -> None:
        if everything:
            self._down_all(who, effect, discard)
            return
        before = self.promises.before_down(who, discard)
        came = self._alone("down --discard" if discard else "down", lambda: self._down(who, discard), effect)
        if not isinstance(came, OrchError | Killed):
            before.held(came)

    def _down(self, who: int, discard: bool) -> Any:
        return self.world.down(who, discard=discard)

    def _down_all(self, who: int, effect: int | None, discard: bool) -> None:
        """From either folder: it ends what was leased in both, and nothing of anybody else."""
        if discard:
            self.promises.discard(0)
            self.promises.discard(1)
        came = self._alone("down --all", lambda: self.world.down_all(who, discard=discard), effect)
        if not isinstance(came, OrchError | Killed):
            mine = [one for one in self.world.cloud.alive() if one.id not in self.promises.foreign]
            assert not mine, "a machine of this user is left"

    @rule(who=WHO, effect=EFFECTS)
    def status_and_gc(self, who: int, effect: int | None) -> None:
        self._alone("status", lambda: self.world.status(who), None)
        before = {machine.id for machine in self.world.cloud.alive()}
        kept = self.promises.not_for_gc()
        came = self._alone("gc", lambda: self.world.gc(0), effect)
        left = {machine.id for machine in self.world.cloud.alive()}
        MADE["gc ended a machine"] += len(before - left)
        MADE["gc kept a machine for its results"] += len(
            kept & self.world.cloud.stuck - self.promises.foreign
        )
        assert kept <= left, "gc ended what it must not"
        if not isinstance(came, OrchError | Killed) and came.proven and came.machines:
            kept |= self.promises.made_again()
            assert not left & self.world.cloud.stuck - kept, "gc left what outlived its deadline"

    # ------------------------------------------------------------ two verbs at once

    @rule(
        verbs=st.tuples(VERBS, VERBS),
        who=st.tuples(WHO, WHO),
        names=st.tuples(NAMES, NAMES),
        same=st.booleans(),
        kills=st.tuples(EFFECTS, EFFECTS),
        switches=st.lists(st.integers(1, 12), max_size=8),
    )
    def two_at_once(
        self,
        verbs: tuple[str, str],
        who: tuple[int, int],
        names: tuple[str, str],
        same: bool,
        kills: tuple[int | None, int | None],
        switches: list[int],
    ) -> None:
        """In one folder or in two; `same`: with one run id, in the first folder."""
        if same:
            one = self._holder(who[0]) if self._leased() else who[0]
            who, names = (one, one), (names[0], names[0])
        acts = [self._act(verb, client, name) for verb, client, name in zip(verbs, who, names, strict=True)]
        first, second = (Verb(act, kill) for act, kill in zip(acts, kills, strict=True))
        came = self.world.at_once(first, second, switches)
        for verb, each in zip(verbs, came, strict=True):
            _count(f"2x {verb}", each)
        together = {verbs[0], verbs[1]} <= {"train", "run"} and same
        if together and not any(isinstance(each, OrchError | Killed) for each in came):
            assert came[0].attempts == came[1].attempts, "one run id came to two runs"

    def _act(self, verb: str, who: int, name: str) -> Callable[[], Any]:
        world = self.world
        match verb:
            case "train":
                return lambda: world.train(who, name, retry_failed=True)
            case "detach":
                return lambda: world.train(who, name, detach=True)
            case "run":
                return lambda: world.run(who, name)
            case "pull":
                return lambda: world.pull(who)
            case "cancel":
                return lambda: world.cancel(who)
        return lambda: getattr(world, verb)(who)

    # ------------------------------------------------------------ the world goes on

    @precondition(lambda self: self._running())
    @rule()
    def a_job_ends(self) -> None:
        self._running()[0].end()
        MADE["a job ends"] += 1

    def _idle(self) -> None:
        """The watcher of each machine powers it off where nobody wants anything of it."""
        for machine in self.world.cloud.alive():
            if not self.world.guests.is_used(machine.id):
                self.world.cloud.kill(machine)
                self.promises.ended(machine.id)
                MADE["idle power-off"] += 1

    @precondition(lambda self: self.world.cloud.alive())
    @rule(
        accident=st.sampled_from(["idle", "taken back", "deadline", "deadline passes", "deadline passes, gc"])
    )
    def machines_end_themselves(self, accident: str) -> None:
        if accident == "idle":
            self._idle()
        elif accident == "taken back":
            self._taken_back()
        else:
            self._deadline(stuck=accident != "deadline")
        if accident.endswith("gc"):
            self.status_and_gc(who=0, effect=None)

    def _taken_back(self) -> None:
        for machine in self.world.cloud.alive():
            self.world.cloud.kill(machine)
            self.promises.ended(machine.id)
            MADE["preempted"] += 1

    def _deadline(self, *, stuck: bool) -> None:
        """`stuck`: machines that should end themselves do not; gc is for these."""
        for machine in self.world.cloud.alive():
            unfetched = any(
                run.exit and not run.fetched for run in self.world.guests.runs(machine.id).values()
            )
            MADE[f"deadline{' passes' if stuck else ''}{', results unfetched' if unfetched else ''}"] += 1
            if stuck:
                self.world.cloud.stuck.add(machine.id)
            self.promises.ended(machine.id)
        self.world.clock.ahead += LASTS + 700

    @rule(answers=st.integers(0, 2), operation=st.none() | OPERATIONS, fault=FAULTS, late=st.booleans())
    def the_cloud_misbehaves(self, answers: int, operation: str | None, fault: Fault, late: bool) -> None:
        """Its lists are stale, for shorter than a cloud may lag: where no id is known, nothing but lists can
        tell of a machine. A call of `operation` fails, before it did its work or after."""
        MADE["stale list"] += answers > 0
        self.world.cloud.list_nothing(answers)
        if operation is not None:
            MADE["call fails"] += 1
            refused = fault in (Fault.AUTH, Fault.CAPACITY)  # such an answer says that nothing was done
            self.world.cloud.fail_next(operation, Mishap(fault, after_effect=late and not refused))

    @precondition(lambda self: self._leased())
    @rule(who=WHO, noise=st.none() | NOISE, where=st.integers(0, 40))
    def the_ledger_is_damaged(self, who: int, noise: bytes | None, where: int) -> None:
        """Noise is added, or one line is damaged behind the first, which tells the cloud."""
        ledger = self.world.ledger(self._holder(who))
        assert ledger is not None
        if noise is not None:
            MADE["damaged ledger: noise"] += 1
            with ledger.path.open("ab") as file:
                file.write(noise)
            return
        first, *lines = ledger.path.read_bytes().splitlines(keepends=True)
        if lines:
            MADE["damaged ledger: a line"] += 1
            at = where % len(lines)
            lines[at] = b"#" + lines[at][1:]
            ledger.path.write_bytes(first + b"".join(lines))
            self.promises.line_damaged(ledger.lease(), ledger.path)

    @rule(busy=st.booleans())
    def somebody_else_leases(self, busy: bool) -> None:
        """On the same cloud, by another user."""
        world = self.world
        if not self.promises.foreign:
            world.by_somebody_else(lambda: world.up(2))
            for lease in world.places[2].open_leases():
                self.promises.foreign |= {machine.id for machine in world.machines(lease.id)}
            MADE["somebody else"] += bool(self.promises.foreign)
            if busy:
                world.by_somebody_else(lambda: world.train(2, "good-1", detach=True, parallel=True))

    # ------------------------------------------------------------ what always holds

    @invariant()
    def promises_hold(self) -> None:
        self._seen = None
        self.promises.hold()

    def teardown(self) -> None:
        world = self.world
        world.cloud.script_nothing()
        try:
            for who in (0, 1):
                self.promises.discard(who)
                came = world.alone(partial(world.down, who, discard=True))
                assert not isinstance(came, OrchError | Killed), came
                assert not world.places[who].open_leases()
            left = {machine.id for machine in world.cloud.alive()}
            assert left <= self.promises.foreign, "a machine is left that no lease knows"
            self.promises.hold()
            MADE["orders"] += 1
            told = [run for place in world.places for lease in place.leases() for run in lease.runs.values()]
            MADE["runs: fetched"] += sum(run.collected for run in told)
            MADE["runs: lost, and told"] += sum(run.lost is not None for run in told)
            MADE["runs: replaced on their machine"] += world.guests.replaced()
        finally:
            self.patch.undo()
            self.folder.cleanup()

    def _alone(self, verb: str, act: Callable[[], Any], effect: int | None) -> Any:
        came = self.world.alone(act, effect)
        _count(verb, came)
        return came

    def _leased(self) -> list[int]:
        """The folders that hold a machine; where none does, those with an open lease.

        Looked up once between two steps, where every rule asks for it.
        """
        if self._seen is None:
            self._seen = self._look()
        return self._seen

    def _look(self) -> list[int]:
        open_ = {who: self.world.places[who].open_leases() for who in (0, 1)}
        serve = [who for who, leases in open_.items() if any(self.world.machines(one.id) for one in leases)]
        return serve or [who for who, leases in open_.items() if leases]

    def _holder(self, who: int) -> int:
        """That folder, or the other one where only that will do."""
        return who if who in self._leased() else self._leased()[0]

    def _running_beside(self) -> bool:
        runs = (self.world.guests.runs(machine.id) for machine in self.world.cloud.alive())
        return any(sum(run.exit is None for run in each.values()) > 1 for each in runs)

    def _running(self) -> list[GuestRun]:
        return [
            run
            for machine in self.world.cloud.alive()
            for run in self.world.guests.runs(machine.id).values()
            if run.exit is None
        ]


def _count(verb: str, came: Any) -> None:
    if isinstance(came, Killed):
        MADE[f"{verb}: killed"] += 1
    elif isinstance(came, OrchError):
        MADE[f"{verb}: {type(came).__name__}"] += 1
    else:
        MADE[f"{verb}: done"] += 1


@pytest.fixture(scope="module", autouse=True)
def counted() -> Any:
    yield
    if "ORCH_HISTORIES" in os.environ:
        print("\n" + "\n".join(f"{count:7}  {step}" for step, count in sorted(MADE.items())))


TestHistories: Any = Histories.TestCase
TestHistories.settings = settings(
    max_examples=int(os.environ.get("ORCH_HISTORIES", "200")),
    stateful_step_count=20,
    derandomize="ORCH_HISTORIES" not in os.environ,
    print_blob=True,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
