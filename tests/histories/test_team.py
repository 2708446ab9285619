"""Two computers of one team, with no disk in common: whatever is killed, cut off or stalled, one machine.

Both have a folder of their own and meet in the store only. Kills strike between any two effects: calls of
the cloud and writes to the store. A stalled computer loses its locks, and goes on later.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orchestrator.api import history, status
from orchestrator.errors import LockLost, OrchError, StorageFault, StorageUnreachable, UsageError
from orchestrator.ledger import Event, fold
from orchestrator.ledger.lines import parse
from orchestrator.model.history import Where
from orchestrator.model.stores import Store, Stored
from orchestrator.providers.memory import MemoryProvider
from orchestrator.report.team import team_text
from orchestrator.session import team, team_url
from orchestrator.session.machines import RegionUnseen
from orchestrator.session.reach import require_seen
from orchestrator.storage.files import FileStore
from orchestrator.storage.lock import StoreLock
from orchestrator.storage.memory import MemoryStore
from tests.histories.clients import Clients, Killed, Verb
from tests.histories.world import World
from tests.nightly import NIGHTLY


@dataclass
class Watched:
    """A store whose writes are effects. `cut`: it does not answer. `lost`: the next answer is lost."""

    inner: Store
    clients: Clients
    cut: bool = False
    lost: bool = False

    @property
    def url(self) -> str:
        return self.inner.url

    def put_if(self, key: str, content: bytes, expected: str | None) -> Stored:
        self.clients.effect()
        self._answers()
        stored = self.inner.put_if(key, content, expected)
        if self.lost:
            self.lost = False
            raise _unreachable()
        return stored

    def get(self, key: str, version: str | None = None) -> bytes:
        self._answers()
        return self.inner.get(key, version)

    def head(self, key: str) -> Stored | None:
        self._answers()
        return self.inner.head(key)

    def list(self, prefix: str = "") -> Iterator[Stored]:
        self._answers()
        return self.inner.list(prefix)

    def _answers(self) -> None:
        if self.cut:
            raise _unreachable()


def _unreachable() -> StorageUnreachable:
    return StorageUnreachable(StorageFault.UNREACHABLE, "The store does not answer.")


@dataclass
class Team:
    world: World
    store: Watched
    stalls: bool = False
    now: float = 0.0
    lines: dict[str, bytes] = field(default_factory=dict)

    def wait(self, seconds: float) -> None:
        """Who waits for a lock lets the other go on; if that is dead or stalled, time passes."""
        clients = self.world.clients
        pair, who = clients._pairs.get(threading.get_ident(), (None, 0))
        if pair is not None:
            pair.refused += 1
        if pair is None or self.stalls or pair.verbs[1 - who].done or pair.refused > 3:
            self.now += seconds  # both wait for one that was killed before
        if pair is not None and not self.stalls:
            pair.change(who)

    def act(self, who: int, verb: str, effect: int | None = None) -> Verb:
        acts = {
            "up": lambda: self.world.up(who),
            "run": lambda: self.world.run(who, "good-1", retry_failed=True),
            "down": lambda: self.world.down(who),
            "discard": lambda: self.world.down(who, discard=True),
            "status": lambda: self.world.status(who),
        }
        return Verb(acts[verb], effect)

    def alone(self, who: int, verb: str, effect: int | None = None) -> Any:
        made = self.act(who, verb, effect)
        return self.world.alone(made.act, effect)

    def hold(self) -> None:
        """One machine at most, of an open lease; no line of a ledger was ever lost or written twice."""
        alive = self.world.cloud.alive()
        assert len(alive) <= 1, alive
        for listed in self.store.inner.list("ledgers/"):
            text = self.store.inner.get(listed.key)
            assert text.startswith(self.lines.get(listed.key, b"")), "a line was lost"
            self.lines[listed.key] = text
            known = parse(text)
            assert known.whole
            assert [event.seq for event in known.events] == list(range(len(known.events)))
        held = {lease.id for lease in self.world.places[0].open_leases()}
        assert {str(one.labels["orch-lease"]) for one in alive} <= held, "a machine of no open lease runs"
        assert held == {lease.id for lease in self.world.places[1].open_leases()}, "they see different leases"

    def end(self) -> None:
        """Either one can end everything, and both see that."""
        self.store.lost = False
        came = self.alone(1, "discard")
        assert not isinstance(came, OrchError | Killed), came
        assert not self.world.cloud.alive()
        assert not [lease for place in self.world.places for lease in place.open_leases()]
        assert not list(self.world.places[0].state.glob("*/identity")), "the key of a machine that is gone"


@contextmanager
def made(root: Path, inner: Store, *, stalls: bool = False) -> Iterator[Team]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(root / "state"))
        patch.setenv("ORCH_STATE_HOME", str(root / "machines"))
        patch.setenv(team_url.ENVIRONMENT, inner.url)
        world = World(root, patch)
        made_ = Team(world, Watched(inner, world.clients), stalls)
        patch.setattr(team, "open_store", lambda _: cast(Store, made_.store))
        locks = partial(StoreLock, clock=lambda: made_.now, sleep=made_.wait)
        patch.setattr(team, "StoreLock", locks)
        yield made_


WHO = st.integers(0, 1)
VERB = st.sampled_from(("up", "up", "up", "run", "down", "discard", "status"))
KILL = st.sampled_from([None] * 3 + list(range(1, 16)))
STEPS = st.lists(
    st.one_of(
        st.tuples(WHO, VERB, KILL, st.booleans()),
        st.tuples(VERB, VERB, KILL, KILL, st.lists(st.integers(1, 10), max_size=6)),
    ),
    min_size=1,
    max_size=6,
)


@settings(
    max_examples=200 if NIGHTLY else 60,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
    print_blob=True,
)
@given(STEPS)
def test_two_computers_have_one_machine(steps: Sequence[tuple[Any, ...]]) -> None:
    with TemporaryDirectory() as root, made(Path(root), MemoryStore("memory://team")) as two:
        for step in steps:
            if len(step) == 4:
                who, verb, kill, lost = step
                two.store.lost = lost
                two.alone(who, verb, kill)
            else:
                first, second, kill, other, switches = step
                two.world.at_once(two.act(0, first, kill), two.act(1, second, other), switches)
            two.store.lost = False
            two.hold()
        two.end()


@pytest.mark.parametrize("second", ["up", "discard"])
@pytest.mark.parametrize("first", range(1, 14))
def test_a_stalled_computer_makes_no_second_machine(tmp_path: Path, first: int, second: str) -> None:
    """It stands still before its effect number `first` for longer than its locks last."""
    with made(tmp_path, MemoryStore("memory://stalled"), stalls=True) as two:
        up, other = two.act(0, "up"), two.act(1, second)
        two.world.at_once(up, other, [first, 1000])
        two.hold()
        two.end()


@pytest.fixture(params=["memory", "file"])
def two(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Team]:
    inner: Store = MemoryStore("memory://two") if request.param == "memory" else FileStore(tmp_path / "disk")
    with made(tmp_path, inner) as team_:
        yield team_


def test_each_sees_what_the_other_leased_and_may_end_it(two: Team) -> None:
    mine = two.alone(0, "up")
    (seen,) = two.alone(1, "status")
    assert (seen.lease, seen.machine, seen.owner) == (mine.lease, mine.machine, team.writer())
    refused = two.alone(1, "up")  # the machine is there already; its key is not
    assert "not on this one" in refused.message
    assert f"orch down {mine.lease}" in refused.next_command
    assert two.alone(1, "down").machines == (mine.machine,)
    assert two.alone(0, "status") == ()
    assert two.alone(0, "up").lease != mine.lease
    two.hold()
    two.end()


def test_without_the_store_nothing_is_rented(two: Team) -> None:
    two.store.cut = True
    refused = two.alone(0, "up")
    assert isinstance(refused, StorageUnreachable)
    assert refused.exists == "Nothing was created; nothing costs money."
    assert not two.world.cloud.alive()


def test_each_sees_the_leases_and_runs_of_the_other_also_later(
    two: Team, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(team, "writer", lambda: "alice@laptop")
    mine = two.alone(0, "run")
    held = two.alone(0, "up")
    monkeypatch.setattr(team, "writer", lambda: "bob@desk")
    root = two.world.places[1].root
    (newer, older) = status(team=True, folder=root)
    assert (newer.lease, newer.state, newer.machine) == (held.lease, "unknown", held.machine)
    assert (older.state, older.owner) == ("closed", "alice@laptop")
    assert [(run["run_id"], run["owner"]) for run in older.runs] == [("good-1", "alice@laptop")]
    (run,) = history(folder=root).runs
    assert (run.run_id, run.reason, run.owner) == ("good-1", "completed", "alice@laptop")
    assert (run.where, run.place) == (Where.ELSEWHERE, "alice@laptop")
    (run,) = history(folder=two.world.places[0].root).runs
    assert (run.where, run.place) == (Where.HERE, mine.path)
    text = team_text((newer, older), "orch up")
    assert max(map(len, text.splitlines())) <= 100
    assert [line.split()[0] for line in text.splitlines()[1:3]] == [newer.lease, older.lease]
    two.end()


@pytest.mark.parametrize(
    ("by", "lasts", "refused"),
    [("alice@elsewhere", 60.0, True), ("alice@elsewhere", -3600.0, False), (team.writer(), 60.0, False)],
)
def test_a_local_machine_of_another_computer_is_not_gone(by: str, lasts: float, refused: bool) -> None:
    now = time.time()
    facts = {"name": "tiny", "cloud": "local", "path": "p.yaml", "overrides": [], "digest": "d"}
    made_ = {"attempt": 0, "machine": {"id": "m-1"}, "created_at": now, "deadline": now + lasts, "price": 0.0}
    lease = fold(
        [
            Event(0, now, "lease.opened", {"lease": "tiny-000000", "profile": facts}, by=team.writer()),
            Event(1, now, "create.accepted", made_, by=by),
        ]
    )
    with pytest.raises(RegionUnseen, match=by) if refused else nullcontext():
        require_seen(MemoryProvider(), lease)


def test_status_of_no_team_says_what_to_set(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as told:
        status(team=True, folder=tmp_path)
    assert "ORCH_LEDGER" in told.value.next_command


def test_without_the_store_down_ends_the_machine_and_says_what_it_could_not_note(two: Team) -> None:
    mine = two.alone(0, "up")
    two.store.cut = True
    (shown,) = two.alone(0, "status")
    assert "does not answer" in shown.stale
    ended = two.alone(0, "discard")
    assert ended.machines == (mine.machine,)
    assert ended.proven_gone
    assert any("does not answer" in one for one in ended.unnoted)
    assert not two.world.cloud.alive()
    two.store.cut = False
    two.end()


def test_a_copy_that_was_damaged_here_is_read_again_and_never_sent(two: Team) -> None:
    mine = two.alone(0, "up")
    path = two.world.places[0].ledger(mine.lease).path
    path.write_bytes(path.read_bytes()[:100] + b"\0garbage")
    two.hold()
    assert two.alone(0, "down").machines == (mine.machine,)
    two.hold()


def test_a_ledger_that_somebody_removed_is_written_again_from_the_copy(two: Team) -> None:
    mine = two.alone(0, "up")
    key = team.key_of(mine.lease)
    before = two.store.inner.get(key)
    two.store.inner.delete(key)
    (shown,) = two.alone(0, "status")
    assert "any more" in shown.stale
    assert two.alone(0, "discard").machines == (mine.machine,)
    assert two.store.inner.get(key).startswith(before)


@pytest.mark.parametrize("key", ["ledgers/x/../../y", "ledgers/here/ledger.jsonl", "ledgers/a/b-000000/x"])
def test_what_else_lies_in_the_store_makes_no_folder_here(two: Team, key: str) -> None:
    if ".." not in key:
        two.store.inner.put(key, b"anything")
    two.alone(0, "status")
    assert not list(two.world.places[0].state.glob("*/shared.json"))


def test_a_lock_that_was_lost_stops_the_next_line(tmp_path: Path) -> None:
    with made(tmp_path, MemoryStore("memory://lost")) as two:
        state = tmp_path / ".orch"
        shared = team.Team(two.store.url, state)
        with shared.lock("up-tiny", cast(Any, None), ""):
            shared.join("tiny-000000")
            ledger = team.ledger_of(state / "tiny-000000")
            assert ledger
            ledger.append("lease.kept")
            two.now += 61.0
            with pytest.raises(LockLost):
                ledger.append("lease.kept")
        ledger.append("lease.kept")
        assert [event.by for event in ledger.events()] == [team.writer()] * 2
