"""How a run is doing, from the last lines of its trace."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace

from orchestrator.model.progress import Pace
from orchestrator.profiling.steps import steps_of
from orchestrator.profiling.trace import Line, Trace, amount, number, parse
from orchestrator.profiling.usage import usage_of

RECENT_S = 15.0
"""Seconds before the last line over which rates are measured."""

_KEPT = 1 << 19
"""Bytes of the last lines that are kept: about 800 samples."""
_LONGEST = 1 << 16
"""Maximum bytes of a line; longer ones are skipped."""


_LEAST_SHARE = 0.005
_LEAST_S = 5.0
"""How much of a training must have been seen done before the rest is estimated."""


class Remaining:
    """Estimates how long a training goes on, from the shares of it that were seen done."""

    def __init__(self) -> None:
        self._first: tuple[float, float] | None = None
        self._last: tuple[float, float] | None = None

    def add(self, done: float, at: float) -> None:
        """`done`: the share (0..1) that was done after `at` seconds. A share that shrinks begins anew."""
        if self._last is None or done < self._last[1]:
            self._first = (at, done)
        if self._last is None or done != self._last[1]:
            self._last = (at, done)

    def seconds(self, now: float) -> float | None:
        """Return the seconds left after `now` seconds; None if too little is known."""
        if self._first is None or self._last is None:
            return None
        took, done = self._last[0] - self._first[0], self._last[1] - self._first[1]
        if took < _LEAST_S or done < _LEAST_SHARE:
            return None
        return max(0.0, (1 - self._last[1]) * took / done - (now - self._last[0]))


class PaceMeter:
    """Reads a trace as it grows, and remembers only what the pace needs."""

    def __init__(self) -> None:
        self._header: list[bytes] = []
        self._model: list[bytes] = []
        self._last: deque[bytes] = deque()
        self._size = 0
        self._torn = b""

    def add(self, data: bytes) -> None:
        """Read the next bytes. A line that is not complete waits for its end."""
        *lines, torn = (self._torn + data).split(b"\n")
        self._torn = torn if len(torn) <= _LONGEST else b""
        for line in lines:
            if len(line) <= _LONGEST:
                self._keep(line)

    def _keep(self, line: bytes) -> None:
        if b'"event":"header"' in line and not self._header:
            self._header = [line]
        elif b'"event":"model"' in line:
            self._model = [line]
        else:
            self._last.append(line)
            self._size += len(line) + 1
            while self._size > _KEPT:
                self._size -= len(self._last.popleft()) + 1

    def skip(self) -> None:
        """Forget a line that is not complete, because the bytes that follow are not read."""
        self._torn = b""

    def pace(self) -> Pace:
        trace = parse([*self._header, *self._model, *self._last])
        steps, last = steps_of(trace), trace.samples[-1] if trace.samples else {}
        recent = _recent(trace)
        speed, usage = steps_of(recent), usage_of(recent, None, None)
        epoch, epochs, whole = _planned(trace.models, steps.count or 0)
        memory = number(last, "rss")
        return Pace(
            seconds=trace.wall,
            steps=steps.count,
            all_steps=whole,
            epoch=epoch,
            epochs=epochs,
            steps_per_s=speed.per_second,
            input_wait=steps.input_wait if speed.per_second else None,
            busy=usage.busy,
            cores=usage.cores,
            gpu=usage.gpu,
            memory=None if memory is None else int(memory),
        )


def _recent(trace: Trace) -> Trace:
    """The part of the trace that was written in the last seconds."""
    times = [amount(line, "t") for line in (*trace.samples, *trace.clock)]
    since = max(times, default=0.0) - RECENT_S
    return replace(
        trace,
        samples=[line for line in trace.samples if amount(line, "t") >= since],
        clock=[line for line in trace.clock if amount(line, "t") >= since],
    )


def _planned(models: Sequence[Line], steps: int) -> tuple[int | None, int | None, int | None]:
    """Return (this epoch, number of epochs, steps of all epochs), as `fit` was told. None if it was not, or
    if more steps were already made than one call of `fit` makes.
    """
    model = models[-1] if models else {}
    of_epoch, epochs = number(model, "epoch_steps"), number(model, "epochs")
    if not of_epoch or not epochs or not 0 < steps <= of_epoch * epochs:
        return None, None, None
    return int((steps - 1) // of_epoch) + 1, int(epochs), int(of_epoch * epochs)
