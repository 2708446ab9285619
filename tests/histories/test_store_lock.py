"""Histories of two to four computers and one lock in a store: stalls, kills, lost replies, lagging reads.

Each computer has a clock of its own, set anywhere and up to a tenth too fast or too slow.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.errors import Corrupt, LockHeld, LockLost, StorageUnreachable
from orchestrator.model.stores import Store, Stored
from orchestrator.storage.files import FileStore
from orchestrator.storage.lock import StoreLock, parse
from orchestrator.storage.memory import MemoryStore

LASTS = 60.0
KEY = "locks/up-digits.json"


@dataclass
class Network:
    """What becomes of the next requests, and the time that every clock here is made of."""

    now: float = 0.0
    fates: list[str] = field(default_factory=list)

    def carry(self, act: Callable[[], Any]) -> Any:
        fate = self.fates.pop(0) if self.fates else "sound"
        if fate == "cut":
            raise StorageUnreachable.__new__(StorageUnreachable)
        if fate == "slow":
            self.now += LASTS * 0.9
        elif fate == "stalled":
            self.now += LASTS * 3
        done = act()
        if fate == "lost":
            raise StorageUnreachable.__new__(StorageUnreachable)
        if fate == "late":
            self.now += LASTS * 3
        return done


class Reached:
    """A store as one computer reaches it. Its first look after a write of another may be behind."""

    def __init__(self, store: Store, network: Network) -> None:
        self._store, self._network = store, network
        self._last: Stored | None = None
        self.url, self.lag = store.url, False

    def head(self, key: str) -> Stored | None:
        found: Stored | None = self._network.carry(lambda: self._store.head(key))
        if self.lag:
            self.lag = False
            return self._last
        self._last = found
        return found

    def get(self, key: str, version: str | None = None) -> bytes:
        return bytes(self._network.carry(lambda: self._store.get(key, version)))

    def put_if(self, key: str, content: bytes, expected: str | None) -> Stored:
        stored: Stored = self._network.carry(lambda: self._store.put_if(key, content, expected))
        return stored


@dataclass
class Computer:
    network: Network
    reached: Reached
    rate: float
    offset: float
    lock: StoreLock = field(init=False)

    def __post_init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        self.lock = StoreLock(
            cast(Store, self.reached),
            KEY,
            "somebody",
            LASTS,
            clock=self.clock,
            sleep=lambda _: None,
        )

    def clock(self) -> float:
        return self.offset + self.network.now * self.rate

    def holds(self) -> bool:
        try:
            self.lock.require()
        except LockLost:
            return False
        return True


STEP = st.tuples(
    st.integers(0, 3),
    st.sampled_from(("acquire", "acquire", "acquire", "renew", "renew", "release", "kill", "lag")),
    st.lists(st.sampled_from(("sound", "sound", "cut", "lost", "slow", "stalled", "late")), max_size=3),
    st.sampled_from((0.0, 1.0, 20.0, LASTS, LASTS * 1.3, LASTS * 2)),
)
CLOCKS = st.lists(
    st.tuples(st.floats(0.9, 1.1), st.sampled_from((0.0, 1e6, -1e6, 1.7e9))), min_size=2, max_size=4
)


@settings(max_examples=200, deadline=None)
@given(CLOCKS, st.lists(STEP, min_size=4, max_size=25))
def test_one_holder_at_a_time_whatever_is_lost_or_stalled(
    clocks: list[tuple[float, float]], steps: list[tuple[int, str, list[str], float]]
) -> None:
    network, store = Network(), MemoryStore("memory://locks")
    computers = [Computer(network, Reached(store, network), rate, at) for rate, at in clocks]
    fences: list[int] = [0]
    for who, action, fates, passes in steps:
        computer = computers[who % len(computers)]
        before = computer.holds()
        network.fates = list(fates)
        _do(computer, action)
        network.fates = []
        holders = [one for one in computers if one.holds()]
        assert len(holders) <= 1
        if holders == [computer] and not before:
            assert computer.lock.fence > fences[-1]
            fences.append(computer.lock.fence)
        network.now += passes
    _, last = network.now, computers[-1]
    _end(computers)
    last.restart()
    with contextlib.suppress(LockHeld):
        last.lock.acquire()
    network.now += LASTS * 1.5
    last.lock.acquire()  # nobody is locked out for ever
    assert last.holds()


def _do(computer: Computer, action: str) -> None:
    with contextlib.suppress(LockHeld, LockLost, StorageUnreachable):
        match action:
            case "acquire" if not computer.holds():
                computer.lock.acquire()
            case "renew":
                computer.lock.renew()
            case "release":
                computer.lock.release()
            case "kill":
                computer.restart()
            case "lag":
                computer.reached.lag = True


def _end(computers: list[Computer]) -> None:
    for computer in computers:
        computer.reached.lag = False
        computer.restart()


@pytest.fixture(params=["memory", "file"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    yield MemoryStore("memory://lock") if request.param == "memory" else FileStore(tmp_path)


def test_who_waits_is_told_the_owner_and_gets_the_lock_when_it_is_given_back(store: Store) -> None:
    waited: list[str] = []
    first = StoreLock(store, KEY, "anna@desk")
    second = StoreLock(store, KEY, "ben@lab", sleep=lambda _: first.release())
    first.acquire()
    with pytest.raises(LockHeld) as refused:
        StoreLock(store, KEY, "ben@lab").acquire()
    assert refused.value.owner == "anna@desk"
    second.acquire(10.0, waited.append)
    assert waited == ["anna@desk"]
    assert second.fence > 1
    first.release()  # given back before: nothing happens
    second.require()


def test_a_holder_that_was_overtaken_learns_it_before_its_next_effect(store: Store) -> None:
    times = [0.0]
    slow = StoreLock(store, KEY, "slow", LASTS, clock=lambda: times[0])
    next_ = StoreLock(store, KEY, "next", LASTS, clock=lambda: times[0])
    slow.acquire()
    with pytest.raises(LockHeld):
        next_.acquire()
    times[0] = LASTS * 1.3
    with pytest.raises(LockLost):
        slow.require()
    next_.acquire()
    with pytest.raises(LockLost):
        slow.renew()
    slow.release()
    next_.renew()


def test_a_slow_clock_and_a_fast_one_do_not_hold_it_at_once() -> None:
    network, store = Network(), MemoryStore("memory://clocks")
    slow, fast = (Computer(network, Reached(store, network), rate, 0.0) for rate in (0.9, 1.1))
    slow.lock.acquire()
    for network.now in (0.0, LASTS * 0.95, LASTS * 1.05, LASTS * 1.1):
        _do(fast, "acquire")
        assert slow.holds() != fast.holds()
    network.now = LASTS * 1.2
    _do(fast, "acquire")
    assert not slow.holds()
    assert fast.holds()


def test_the_seconds_count_from_before_an_answer_that_came_late() -> None:
    network, store = Network(), MemoryStore("memory://late")
    slow, other = (Computer(network, Reached(store, network), 1.0, 0.0) for _ in range(2))
    network.fates = ["sound", "late"]
    slow.lock.acquire()
    assert not slow.holds()
    _do(other, "acquire")
    assert not other.holds()  # it has seen the lock for the first time
    network.now += LASTS * 1.3
    _do(other, "acquire")
    assert other.holds()


def test_a_block_holds_the_lock_longer_than_it_lasts_and_frees_it(store: Store) -> None:
    with StoreLock(store, KEY, "anna", 0.2).held() as lock:
        first = store.get(KEY)
        while store.get(KEY) == first:
            lock.require()
    found = parse(store.get(KEY))
    assert found is not None
    assert found.nonce == ""
    StoreLock(store, KEY, "ben").acquire()


@pytest.mark.parametrize(
    "content", [b"", b"{}", b"[" * 5000, b'{"owner":1}', b"\xff" * 100, b"[" * 4000, b"7" * 4000]
)
def test_what_is_no_lock_is_named(content: bytes) -> None:
    store = MemoryStore("memory://damage")
    store.put(KEY, content)
    with pytest.raises(Corrupt, match="not a lock of orch"):
        StoreLock(store, KEY, "anna").acquire()
