"""Run a function in the background while the caller waits for something else."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Beside(Generic[T]):
    """Call a function on a daemon thread. Only `result` waits for it; `waited`: how many seconds it did."""

    def __init__(self, function: Callable[[], T]) -> None:
        self._function = function
        self._made: list[T] = []
        self._error: BaseException | None = None
        self.waited = 0.0
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._made.append(self._function())
        except BaseException as error:
            self._error = error

    @property
    def goes_on(self) -> bool:
        return self._thread.is_alive()

    def result(self) -> T:
        """Wait for the function and return what it returned. Raises what it raised."""
        begun = time.monotonic()
        self._thread.join()
        self.waited += time.monotonic() - begun
        if self._error is not None:
            raise self._error
        return self._made[0]
