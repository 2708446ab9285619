"""Decide which batch sizes are tried, how often, and when to stop. The caller reports each step."""

from __future__ import annotations

import re
from time import perf_counter
from typing import Any, Callable, Dict, Generator, List, NamedTuple, Optional, Tuple

STEPS = 24
"""Steps measured for each size: threads run in another order in each step, so the peak varies."""

ENOUGH = 8
"""Steps measured for each size, if steps are slow."""

FEWEST = 2
"""Minimum number of sizes, and of measured steps of each, whatever the budget."""

_SLOW = 2.0
"""Seconds for all steps of a size; if they take longer, steps count as slow."""

_SAFETY = 1.3
"""A larger batch is tried only if this many times its expected memory is free."""


_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_FRAMES = ("File ", "Detected at", "in user code", "<frozen", "[[{{", "Stack trace", "Graph execution error")
_LONGEST = 300


def describe_error(error: BaseException) -> str:
    """Return one line on an error: of the many that frameworks print, those that name the cause."""
    text = _COLOURS.sub("", str(error)).split("Arguments received by")[0]
    lines = [line.strip() for line in text.splitlines()]
    telling = [line for line in lines if line and not line.startswith(_FRAMES)]
    return " ".join(telling or [line for line in lines if line])[:_LONGEST]


class Options(NamedTuple):
    """The requested trials. `out`: the file for the result; `batch`: the size that matters (None: the
    program's own); `sizes`: what to try (empty: a quarter and half of it, and itself); `budget`: seconds.
    """

    out: str
    batch: Optional[int] = None
    sizes: Tuple[int, ...] = ()
    steps: int = STEPS
    budget: float = 120.0


class Course:
    """The trials of one process. `sizes` has what was measured, `notes` what was not tried, and why."""

    def __init__(self, wish: Options, available: Callable[[], int], save: Callable[[], None]) -> None:
        self._wish = wish
        self._available = available
        self._save = save
        self._until = perf_counter() + wish.budget
        self.sizes: List[Dict[str, Any]] = []
        self.notes: List[Dict[str, Any]] = []

    def run(self, own: int) -> Generator[int, Dict[str, Any], None]:
        """Yield the number of examples of the next step, and receive what that step took."""
        for rows in planned(self._wish, own):
            if self._may(rows):
                yield from self._try(rows)
        rows = self.sizes[0]["batch"] if self.sizes else own
        while len(self.sizes) < FEWEST and rows > 1:
            rows //= 2
            yield from self._try(rows)

    def only(self, rows: int) -> Generator[int, Dict[str, Any], None]:
        """Like `run`, for one size: the program accepts no other."""
        yield from self._try(rows)

    def failed(self, rows: int, error: BaseException) -> None:
        """Note that a step with this many examples failed."""
        if self.notes and self.notes[-1]["why"] == "began":
            self.notes.pop()
        self.notes.append(
            {"batch": rows, "why": "failed", "error": type(error).__name__, "detail": describe_error(error)}
        )
        self._save()

    def _try(self, rows: int) -> Generator[int, Dict[str, Any], None]:
        """Run one step to trace and warm up, then those that count."""
        self.notes.append({"batch": rows, "why": "began"})
        self._save()
        first = yield rows
        steps: List[Dict[str, Any]] = []
        began = perf_counter()
        while not self._enough(steps, began):
            steps.append((yield rows))
        self.notes.pop()
        self.sizes.append({"batch": rows, "first": first, "steps": steps})
        self.sizes.sort(key=lambda size: int(size["batch"]))
        self._save()

    def _enough(self, steps: List[Dict[str, Any]], began: float) -> bool:
        if len(steps) < FEWEST:
            return False
        now = perf_counter()
        slow = len(steps) >= ENOUGH and now - began > _SLOW
        return slow or len(steps) >= self._wish.steps or now + steps[-1]["seconds"] > self._until

    def _may(self, rows: int) -> bool:
        """Whether there is room for such a batch, judging by the largest so far; the first one is always
        allowed.
        """
        if not self.sizes:
            return True
        last = self.sizes[-1]
        ratio = rows / last["batch"]
        seconds = (
            ratio * min(step["seconds"] for step in last["steps"]) * (1 + FEWEST) + last["first"]["seconds"]
        )
        if perf_counter() + seconds > self._until:
            self.notes.append({"batch": rows, "why": "time", "seconds": round(seconds, 1)})
            return False
        known = [step["peak"] for step in last["steps"] if step["peak"] is not None]
        need = int(max(known) * ratio * _SAFETY) if known else 0
        if need > self._available():
            self.notes.append({"batch": rows, "why": "memory", "bytes": need})
            return False
        return True


def planned(wish: Options, own: int) -> List[int]:
    """Return the sizes to try, ascending."""
    if wish.sizes:
        return sorted(set(wish.sizes))
    wanted = max(wish.batch or own, 4)
    return sorted({wanted // 4, wanted // 2, wanted})
