"""Wait for capacity: retry with growing pauses until the profile's `wait` is over."""

from __future__ import annotations

import random as _random
import time as _time
from collections.abc import Callable

from orchestrator.model import Progress
from orchestrator.profile.units import show_duration

FIRST_S = 15.0
LONGEST_S = 300.0


class CapacityWait:
    """Pauses between tries. Nothing exists and nothing costs money between them, so an interrupt leaves
    nothing behind.

    Pause k is FIRST_S·2^k, at most LONGEST_S, randomised between half and all of that so that many waiting
    clients do not ask at once. `seconds`: the total time to wait; None: not at all.
    """

    def __init__(
        self,
        seconds: float | None,
        tell: Progress,
        *,
        clock: Callable[[], float] = _time.monotonic,
        sleep: Callable[[float], None] = _time.sleep,
        random: Callable[[], float] = _random.random,
    ) -> None:
        self._end = clock() + (seconds or 0.0)
        self._pause = FIRST_S
        self._tell = tell
        self._clock = clock
        self._sleep = sleep
        self._random = random

    def again(self) -> bool:
        """Pause; returns False if the time is over."""
        left = self._end - self._clock()
        if left <= 0:
            return False
        pause = min(self._pause * (0.5 + self._random() / 2), left)
        self._tell.say(
            f"No capacity now. Retrying in {pause:.0f} s, for {show_duration(round(left))} at most. "
            "Waiting costs nothing."
        )
        self._sleep(pause)
        self._pause = min(2 * self._pause, LONGEST_S)
        return True
