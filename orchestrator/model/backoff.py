"""Pauses between the attempts of a call to a provider, a store, or a cloud client that does not retry by
itself.
"""

from __future__ import annotations

import random as _random
import time as _time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

R = TypeVar("R")

_TRIES = 4


@dataclass(frozen=True)
class Backoff:
    """Exponential backoff with full jitter: pause k is uniform in [0, min(`cap_s`, `base_s`·2^k)].

    `clock` is monotonic, `random` uniform in [0, 1).
    """

    base_s: float = 0.5
    cap_s: float = 20.0
    clock: Callable[[], float] = _time.monotonic
    sleep: Callable[[float], None] = _time.sleep
    random: Callable[[], float] = _random.random

    def call(self, ask: Callable[[], R], again: Callable[[Exception, float], bool]) -> R:
        """Call `ask` until it succeeds, or until `again`, given the error and the next pause, returns False.

        Raises the last error unchanged.
        """
        longest = self.base_s
        while True:
            try:
                return ask()
            except Exception as error:
                pause = self.random() * min(longest, self.cap_s)
                if not again(error, pause):
                    raise
                _log_repeated(error, pause)
            self.sleep(pause)
            longest *= 2


def _log_repeated(error: Exception, pause: float) -> None:
    import logging  # seldom needed

    logging.getLogger(__name__).debug("%s; trying again in %.1f s", error, pause)


class Patience:
    """Retry calls within one time budget in `seconds` for all of them, so that a cloud that does not answer
    is not waited for again at each call.

    `passes` returns whether a failure is transient. The calls must change nothing.
    """

    def __init__(
        self, passes: Callable[[Exception], bool], seconds: float = 20.0, backoff: Backoff | None = None
    ) -> None:
        self._passes = passes
        self._left = seconds
        self._backoff = backoff or Backoff()

    def ask(self, question: Callable[[], R]) -> R:
        """Call `question`, with retries, and return its answer. Raises the last error unchanged."""
        tries, begun = 0, self._backoff.clock()

        def again(error: Exception, pause: float) -> bool:
            nonlocal tries, begun
            tries += 1
            if tries == _TRIES or self._left <= 0 or not self._passes(error):
                return False
            now = self._backoff.clock() + pause
            self._left -= now - begun
            begun = now
            return True

        return self._backoff.call(question, again)

    def client(self, inner: Any) -> Any:
        """Wrap a client of a cloud's library so that each of its calls is retried."""
        return _Patient(inner, self)


class _Patient:
    def __init__(self, inner: Any, patience: Patience) -> None:
        self._inner = inner
        self._patience = patience

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if not callable(found) or name == "get_paginator":
            return found
        return lambda *args, **kwargs: self._patience.ask(lambda: found(*args, **kwargs))
