"""Several processes in one: each can be killed at any of its effects, and two can act at once.

Two verbs at once run in two threads, of which one goes on at a time: they change over where the test says,
and where one waits for a lock that the other holds. So an order of their effects can be tried again.
"""

from __future__ import annotations

import fcntl
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from orchestrator.errors import OrchError

_PATIENCE = 200
"""So often in a row is a lock refused to each of two that wait for each other."""


class Killed(BaseException):
    """The process of a verb ended here, without any of its clean-up that writes or calls."""


@dataclass
class Verb:
    """The call of one process, killed before its effect number `effect` (from 1) if one is given."""

    act: Callable[[], Any]
    effect: int | None = None
    came: Any = None
    failure: BaseException | None = None
    dead: bool = False
    done: bool = False

    def run(self) -> None:
        try:
            self.came = self.act()
        except (OrchError, Killed) as error:
            self.came = error
        except BaseException as error:
            self.failure = error
        finally:
            self.done = True

    def count(self) -> None:
        """A process that was killed has no more effects."""
        if self.dead:
            raise Killed
        if self.effect is not None:
            self.effect -= 1
            self.dead = self.effect <= 0
        if self.dead:
            raise Killed


@dataclass
class Pair:
    """Two verbs of which one acts at a time. `switches`: after how many effects each change comes."""

    verbs: tuple[Verb, Verb]
    switches: list[int]
    acting: int = 0
    refused: int = 0
    turn: threading.Condition = field(default_factory=threading.Condition)

    def acted(self, who: int) -> None:
        self.refused = 0
        if self.switches:
            self.switches[0] -= 1
            if self.switches[0] <= 0:
                self.switches.pop(0)
                self.change(who)

    def blocked(self, who: int) -> None:
        self.refused += 1
        assert self.refused < _PATIENCE, "two verbs wait for each other for ever"
        assert not self.verbs[1 - who].done, "a lock was left by a process that ended"
        self.change(who)

    def change(self, who: int) -> None:
        with self.turn:
            if self.verbs[1 - who].done:
                return
            self.acting = 1 - who
            self.turn.notify_all()
            self.turn.wait_for(lambda: self.acting == who)

    def end(self, who: int) -> None:
        with self.turn:
            self.acting = 1 - who
            self.turn.notify_all()

    def begin(self, who: int) -> None:
        with self.turn:
            self.turn.wait_for(lambda: self.acting == who)


class Clients:
    """Who acts now, in which thread."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._verbs: dict[int, Verb] = {}
        self._pairs: dict[int, tuple[Pair, int]] = {}
        self._flock = fcntl.flock
        patch.setattr(fcntl, "flock", self._lock)

    def effect(self) -> None:
        """Called before each effect of a verb."""
        me = threading.get_ident()
        if me in self._pairs:
            pair, who = self._pairs[me]
            pair.acted(who)
        if me in self._verbs:
            self._verbs[me].count()

    def alone(self, verb: Verb) -> Any:
        """Return its result or its refusal, or Killed."""
        me = threading.get_ident()
        self._verbs[me] = verb
        try:
            verb.run()
        finally:
            del self._verbs[me]
        return _came(verb)

    def at_once(self, first: Verb, second: Verb, switches: Sequence[int]) -> tuple[Any, Any]:
        pair = Pair((first, second), list(switches))
        threads = [threading.Thread(target=self._beside, args=(pair, who), daemon=True) for who in (0, 1)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return _came(first), _came(second)

    def _beside(self, pair: Pair, who: int) -> None:
        me = threading.get_ident()
        pair.begin(who)
        self._verbs[me], self._pairs[me] = pair.verbs[who], (pair, who)
        try:
            pair.verbs[who].run()
        finally:
            del self._verbs[me], self._pairs[me]
            pair.end(who)

    def _lock(self, handle: Any, operation: int) -> None:
        """As flock; who waits for a lock in a pair lets the other go on."""
        me = self._pairs.get(threading.get_ident())
        if me is None or operation & (fcntl.LOCK_NB | fcntl.LOCK_UN):
            self._flock(handle, operation)
            return
        pair, who = me
        while True:
            try:
                self._flock(handle, operation | fcntl.LOCK_NB)
            except BlockingIOError:
                pair.blocked(who)
            else:
                return


def _came(verb: Verb) -> Any:
    if verb.failure is not None:
        raise verb.failure
    return verb.came
