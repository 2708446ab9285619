"""Repeat questions that fail for a moment: for those who ask a cloud's client without a provider."""

from __future__ import annotations

import random as _random
import time as _time
from collections.abc import Callable
from typing import Any, TypeVar

R = TypeVar("R")

Passes = Callable[[Exception], bool]

_TRIES = 4
_PAUSE_S = 0.5


class Patience:
    """So many seconds for all repetitions together: a cloud that is not there is not waited for at each call.

    `passes` says which failures may pass. What is asked must change nothing.
    """

    def __init__(
        self,
        passes: Passes,
        seconds: float = 20.0,
        *,
        clock: Callable[[], float] = _time.monotonic,
        sleep: Callable[[float], None] = _time.sleep,
        random: Callable[[], float] = _random.random,
    ) -> None:
        self._passes = passes
        self._left = seconds
        self._clock = clock
        self._sleep = sleep
        self._random = random

    def ask(self, question: Callable[[], R]) -> R:
        """The answer. The last error is raised as it came."""
        for number in range(_TRIES):
            begun = self._clock()
            try:
                return question()
            except Exception as error:
                if number == _TRIES - 1 or self._left <= 0 or not self._passes(error):
                    raise
                self._sleep(self._random() * _PAUSE_S * 2**number)
                self._left -= self._clock() - begun
        raise AssertionError("the last try returns or raises")

    def client(self, inner: Any) -> Any:
        """That client of a cloud's library, with each of its calls asked patiently."""
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
