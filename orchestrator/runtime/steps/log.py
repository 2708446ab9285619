"""Summarise what the step clock measured, and append it to the run's trace from time to time."""

from __future__ import annotations

import json
import os
import time
from threading import get_ident
from time import perf_counter, thread_time
from typing import Any, Dict, List, Optional, Tuple

from ..cadence import Cadence

_KEPT = 4096
"""Maximum number of single times that are stored between two lines, for medians."""


class Window:
    """The steps of one kind since the last line."""

    def __init__(self) -> None:
        self.steps = 0
        self.calls = 0
        self.wall = 0.0
        self.periods: List[float] = []
        self.gaps: List[float] = []
        self.probed = 0
        self.probed_wall = 0.0
        self.wait = 0.0
        self.squares = [0.0, 0.0, 0.0]
        self.opening = 0.0
        self.opened = 0

    def probe(self, wait: float, took: float) -> None:
        """Note that a call of `took` seconds was probed, and waited `wait` of them."""
        self.probed += 1
        self.probed_wall += took
        self.wait += wait
        for place, product in enumerate((wait * wait, wait * took, took * took)):
            self.squares[place] += product

    def line(self) -> Dict[str, Any]:
        """Return the line, in seconds. `period`: from one call's start to the next; `gap`: between two calls.

        `squares`: sums over the probed calls of wait², wait × wall and wall², for the share's error.
        `opening`: the part of `wall` taken by the first calls on a new iterator; `opened`: their number.
        """
        return {
            "n": self.steps,
            "calls": self.calls,
            "wall": round(self.wall, 6),
            "period_p50": _quantile(self.periods, 0.5),
            "period_p95": _quantile(self.periods, 0.95),
            "gap_p50": _quantile(self.gaps, 0.5),
            "probed": self.probed,
            "probed_wall": round(self.probed_wall, 6),
            "wait": round(self.wait, 6),
            "squares": [float(f"{value:.4g}") for value in self.squares],
            "opening": round(self.opening, 6),
            "opened": self.opened,
        }


class StepLog:
    """Collect steps and pulls; `steps` and `pulls` lines cover the time since the line before, and `total`
    all steps of that source so far.
    """

    def __init__(self, trace: str) -> None:
        self._trace = trace
        self._pid = os.getpid()
        self._cadence = Cadence()
        self._size = 0
        self._due = perf_counter() + self._cadence.next()
        self._windows: Dict[str, Window] = {}
        self._totals: Dict[str, int] = {}
        self._last: Dict[str, Tuple[float, float]] = {}
        self._pulls = 0
        self._pull_wait = 0.0
        self._pulled_since: Optional[float] = None
        self._last_pull = 0.0
        self._pauses: Dict[str, float] = {}
        self._since: Dict[str, float] = {}
        self._active = perf_counter()
        self._thread = _Thread()

    def step(
        self,
        source: str,
        began: float,
        took: Optional[float],
        steps: int,
        wait: Optional[float],
        *,
        first: bool = False,
        opening: bool = False,
    ) -> None:
        """Note a call of `steps` steps that began at `began` (perf_counter) and took `took` seconds, None if
        unknown.

        `wait`: seconds of it spent waiting for input, None if not probed. The `first` call of a function is
        written separately: graphs are traced and libraries warm up in it. `opening`: it pulls the first batch
        of its iterator, for which buffers are filled.
        """
        self._totals[source] = self._totals.get(source, 0) + steps
        self._active = began + (took or 0.0)
        if first:
            self._write({"event": "first_step", "source": source, "n": steps, "wall": round(took or 0.0, 6)})
            self._last.pop(source, None)
            self._since.clear()
            self._thread = _Thread()
            self._due = perf_counter() + self._cadence.next()
            return
        for kind, spent in self._since.items():
            self._pauses[kind] = self._pauses.get(kind, 0.0) + spent
        self._since.clear()
        window = self._windows.setdefault(source, Window())
        window.steps += steps
        window.calls += 1
        window.wall += took or 0.0
        if opening:
            window.opening += took or 0.0
            window.opened += 1
        last = self._last.get(source)
        self._last[source] = (began, began + (took or 0.0))
        if last is not None and len(window.periods) < _KEPT:
            window.periods.append((began - last[0]) / steps)
            window.gaps.append(max(0.0, began - last[1]))
        if wait is not None and took is not None:
            window.probe(wait, took)
        if perf_counter() >= self._due:
            self.flush()

    def total(self, source: str) -> int:
        """Return all steps of a source so far."""
        return self._totals.get(source, 0)

    def pause(self, kind: str, took: float) -> None:
        """Note seconds of the training that are no step: validation, callbacks, a loop's first batches (which
        are counted as "opened"). What follows the last step is not reported.
        """
        self._since[kind] = self._since.get(kind, 0.0) + took

    def pull(self, began: float, took: float, *, opening: bool = False) -> None:
        """Note that Python code pulled a batch and waited `took` seconds for it."""
        if opening:
            self.pause("opening", took)
            self.pause("opened", 1)
        if self._pulled_since is None:
            self._pulled_since = began
        self._pulls += 1
        self._pull_wait += took
        self._last_pull = self._active = began + took
        if perf_counter() >= self._due:
            self.flush()

    def flush(self) -> None:
        """Write what was collected. In a forked child it does nothing: the measurement is its parent's."""
        if os.getpid() != self._pid:
            return
        anything = bool(self._windows or self._pulls or self._pauses)
        last = time.time() - max(0.0, perf_counter() - self._active)
        for source, window in self._windows.items():
            told = {"event": "steps", "source": source, "total": self._totals[source], **window.line()}
            self._write(told, last)
        self._windows = {}
        if self._pulls and self._pulled_since is not None:
            span = round(self._last_pull - self._pulled_since, 6)
            wait = round(self._pull_wait, 6)
            self._write({"event": "pulls", "n": self._pulls, "wait": wait, "span": span}, last)
            self._pulls, self._pull_wait = 0, 0.0
            self._pulled_since = self._last_pull
        if self._totals and anything:
            spent = {kind: round(seconds, 6) for kind, seconds in self._pauses.items()}
            self._write({"event": "pauses", **spent, **self._thread.grown()})
        self._pauses = {}
        self._due = perf_counter() + self._cadence.next(size=self._size)

    def note(self, line: Dict[str, Any]) -> int:
        """Write a line of another kind, unless this is a forked child; returns the size of the trace in
        bytes.
        """
        if os.getpid() == self._pid:
            self._write(line)
        return self._size

    def _write(self, line: Dict[str, Any], at: Optional[float] = None) -> None:
        """Write a line. `at`: its time, if not now: a script may do much after its last step."""
        line = {"t": round(time.time() if at is None else at, 3), "pid": self._pid, **line}
        text = json.dumps(line, separators=(",", ":")) + "\n"
        try:
            file = os.open(self._trace, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
            try:
                os.write(file, text.encode())
                self._size = os.fstat(file).st_size
            finally:
                os.close(file)
        except OSError:  # the disk is full: the job reports that, not orch
            pass


class _Thread:
    """How long the training thread had a core, or waited for one, since the last call."""

    def __init__(self) -> None:
        self._ident = get_ident()
        self._last = _running()

    def grown(self) -> Dict[str, float]:
        """Return {span, ran, queued} in seconds; {} if another thread asks, or Linux does not report it."""
        now, before = _running(), self._last
        if now is None or before is None or get_ident() != self._ident:
            return {}
        self._last = now
        span, ran, queued = (now[place] - before[place] for place in range(3))
        ran = min(ran, span)
        queued = min(queued, span - ran)
        return {"span": round(span, 6), "ran": round(ran, 6), "queued": round(queued, 6)}


def _running() -> Optional[Tuple[float, float, float]]:
    """Return the time, the CPU time of this thread and its time on a run queue, in seconds.

    The kernel's "ran" of schedstat may be a tick old, so that it grows by more than the elapsed time.
    """
    try:
        with open("/proc/thread-self/schedstat", encoding="ascii") as file:
            _, queued, _ = file.read().split()
        return perf_counter(), thread_time(), int(queued) / 1e9
    except (OSError, ValueError):
        return None


def _quantile(values: List[float], share: float) -> Optional[float]:
    if not values:
        return None
    ordered = sorted(values)
    return round(ordered[min(len(ordered) - 1, int(share * len(ordered)))], 6)
