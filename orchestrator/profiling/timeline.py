"""A run's trace over time: how each second was spent, and what was in use. Pure, except for reading one
file.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from orchestrator.profiling.steps import steps_of
from orchestrator.profiling.trace import Line, Trace, amount, number, read

MOST = 240
"""Most points of a series, and most spans: longer traces are averaged."""

_SHORTEST = 1e-3
"""If two samples are fewer seconds apart, no rate is computed."""


@dataclass(frozen=True)
class Shares:
    """How a second was spent, in shares that add up to 1.

    `input`: waiting for the next batch. `compute`: in a training step, without waiting for input. `host`: the
    job's own processes at work outside of a step, or ready but waiting for a core. `idle`: the rest, in which
    they had nothing to do on a core.
    """

    input: float = 0.0
    compute: float = 0.0
    host: float = 0.0
    idle: float = 0.0


@dataclass(frozen=True)
class Span:
    """From `begin` to `end`, seconds since the run's start."""

    begin: float
    end: float
    shares: Shares

    @property
    def seconds(self) -> float:
        return self.end - self.begin


@dataclass(frozen=True)
class Series:
    """Values at `times`, each the mean since the time before it. `limit`: the amount that was available,
    if known.
    """

    name: str
    times: tuple[float, ...]
    values: tuple[float, ...]
    limit: float | None = None


@dataclass(frozen=True)
class Timeline:
    """A run over time. `seconds` of the whole run; `first` and `last`: when training began and ended,
    None if no step was recorded. `input_known`: the wait for input was measured. `series` by name: cpu
    (cores), gpu (share), memory, gpu memory (bytes), disk read, disk written, network (bytes a second);
    only those that were recorded.
    """

    seconds: float
    spans: tuple[Span, ...]
    series: Mapping[str, Series]
    first: float | None = None
    last: float | None = None
    input_known: bool = False

    @property
    def totals(self) -> Shares:
        """Shares of the whole time."""
        return _mean(self.spans)


def timeline(trace: Path, memory: int | None = None) -> Timeline | None:
    """Return the timeline of a trace; None if it has too few samples. `memory`: bytes of its machine."""
    return timeline_of(read(trace), memory)


def timeline_of(lines: Trace, memory: int | None = None) -> Timeline | None:
    samples = [line for line in lines.samples if number(line, "t") is not None]
    if len(samples) < 2:
        return None
    start = amount(samples[0], "t") - amount(samples[0], "up")
    seconds = amount(samples[-1], "up")
    if seconds <= 0:
        return None
    windows = list(_windows(lines, start, seconds))
    spans = tuple(_merged(list(_spans(samples, windows)), MOST))
    found = {one.name: one for one in _series(samples, lines.header, memory)}
    return Timeline(
        seconds,
        spans,
        found,
        windows[0].begin if windows else None,
        windows[-1].end if windows else None,
        any(window.input is not None for window in windows),
    )


# ---------------------------------------------------------------- training, as the clock of steps saw it


@dataclass(frozen=True)
class _Window:
    """The time between two lines of the clock: the share of it in steps, and the share of that waiting
    for input.
    """

    begin: float
    end: float
    inside: float
    input: float | None


def _windows(lines: Trace, start: float, seconds: float) -> Iterator[_Window]:
    """Yield the windows of the process that trains, in order."""
    process = steps_of(lines).process
    told = [each for each in lines.clock if str(each.get("pid")) == process and number(each, "t") is not None]
    told.sort(key=lambda line: amount(line, "t"))
    end = 0.0
    for at, group in _by_moment(told):
        begin, end = end, min(seconds, max(end, at - start))
        steps = [line for line in group if line.get("event") != "pulls"]
        pulls = [line for line in group if line.get("event") == "pulls"]
        wall = sum(amount(line, "wall") for line in steps) + sum(amount(line, "span") for line in pulls)
        if steps and steps[0].get("event") == "first_step":
            begin = max(begin, end - wall)
        if end - begin < _SHORTEST:
            continue
        yield _Window(begin, end, min(1.0, wall / (end - begin)), _input(steps, pulls))


def _by_moment(told: Sequence[Line]) -> Iterator[tuple[float, list[Line]]]:
    """Yield groups of lines that were written together."""
    group: list[Line] = []
    for line in told:
        if group and amount(line, "t") != amount(group[0], "t"):
            yield amount(group[0], "t"), group
            group = []
        group.append(line)
    if group:
        yield amount(group[0], "t"), group


def _input(steps: Sequence[Line], pulls: Sequence[Line]) -> float | None:
    """Return the share of the steps' time that was spent waiting for their batches; None: not measured."""
    waited = sum(amount(line, "wait") for line in pulls)
    span = sum(amount(line, "span") for line in pulls)
    if span > 0:
        return min(1.0, waited / span)
    probed = sum(amount(line, "probed_wall") for line in steps)
    if probed <= 0:
        return None
    wall = sum(amount(line, "wall") for line in steps)
    usual = sum(amount(line, "wait") for line in steps) / probed
    opening = sum(max(0.0, amount(line, "opening") - _steady(line)) for line in steps)
    return min(1.0, (usual * max(0.0, wall - opening) + opening) / wall) if wall > 0 else None


def _steady(line: Line) -> float:
    """Return what the calls that opened an iterator would have taken at the pace of the others."""
    others = amount(line, "calls") - amount(line, "opened")
    rest = amount(line, "wall") - amount(line, "opening")
    return amount(line, "opened") * rest / others if others > 0 else amount(line, "opening")


# ---------------------------------------------------------------- each second


def _spans(samples: Sequence[Line], windows: Sequence[_Window]) -> Iterator[Span]:
    """Yield a span for each stretch within which neither the samples nor the clock have another line."""
    ups = [0.0, *(amount(line, "up") for line in samples)]
    marks = sorted({*ups, *(edge for one in windows for edge in (one.begin, one.end))})
    marks = [mark for mark in marks if mark <= ups[-1]]
    ends = [one.end for one in windows]
    for begin, end in pairwise(marks):
        if end - begin < _SHORTEST:
            continue
        place = bisect_left(ends, end)
        window = windows[place] if place < len(windows) and windows[place].begin <= begin else None
        at = min(len(samples) - 1, max(0, bisect_left(ups, end) - 1))
        yield Span(begin, end, _shares(window, samples, at))


def _shares(window: _Window | None, samples: Sequence[Line], at: int) -> Shares:
    """Return the shares of a stretch before sample `at`: by the step clock; outside of it, by the busy
    cores.
    """
    busy = min(1.0, _busy(samples, at))
    if window:
        waited = window.inside * (window.input or 0.0)
        outside = 1.0 - window.inside
        return Shares(waited, window.inside - waited, outside * busy, outside * (1 - busy))
    gpu = _utilisation(samples[at]) or 0.0
    host = busy * (1 - gpu)
    return Shares(compute=gpu, host=host, idle=1 - gpu - host)


def _busy(samples: Sequence[Line], at: int) -> float:
    """Return the cores that the job kept busy before sample `at`, or would have if it had been given them."""
    used = _rate(samples, at, "cpu_user", "cpu_system") or 0.0
    return used + (_rate(samples, at, "waited") or 0.0)


def _rate(samples: Sequence[Line], at: int, *keys: str) -> float | None:
    """Return the growth per second of the sum of these totals since the sample before, or the start."""
    line = samples[at]
    if any(number(line, key) is None for key in keys):
        return None
    before: Line = samples[at - 1] if at else {}
    seconds = amount(line, "up") - amount(before, "up")
    if seconds < _SHORTEST:
        return None
    return max(0.0, sum(amount(line, key) - amount(before, key) for key in keys)) / seconds


# ---------------------------------------------------------------- what was in use


_RATES = (
    ("cpu", ("cpu_user", "cpu_system")),
    ("disk read", ("read",)),
    ("disk written", ("written",)),
    ("network", ("received", "sent")),
)


def _series(samples: Sequence[Line], header: Line, memory: int | None) -> Iterator[Series]:
    limits = [bytes_ for bytes_ in (number(header, "memory"), memory) if bytes_]
    for name, keys in _RATES:
        points = [(amount(line, "up"), _rate(samples, at, *keys)) for at, line in enumerate(samples)]
        yield from _one(name, points, number(header, "cores") if name == "cpu" else None)
    yield from _one(
        "memory", [(amount(line, "up"), number(line, "rss")) for line in samples], min(limits, default=None)
    )
    yield from _one("gpu", [(amount(line, "up"), _utilisation(line)) for line in samples], 1.0)
    held = [(amount(line, "up"), _gpu_sum(line, "memory")) for line in samples]
    yield from _one("gpu memory", held, _gpu_sum(samples[-1], "memory_total"))


def _one(name: str, points: Sequence[tuple[float, float | None]], limit: float | None) -> Iterator[Series]:
    known = [(at, value) for at, value in points if value is not None]
    if len(known) > 1:
        thinned = list(_thinned(known, MOST))
        yield Series(name, tuple(at for at, _ in thinned), tuple(value for _, value in thinned), limit)


def _gpus(line: Line) -> list[Line]:
    found = line.get("gpus")
    return [gpu for gpu in found if isinstance(gpu, dict)] if isinstance(found, list) else []


def _utilisation(line: Line) -> float | None:
    """Return the mean of all GPUs, 0..1."""
    values = [value for gpu in _gpus(line) if (value := number(gpu, "utilisation")) is not None]
    return min(1.0, sum(values) / len(values)) if values else None


def _gpu_sum(line: Line, key: str) -> float | None:
    values = [value for gpu in _gpus(line) if (value := number(gpu, key)) is not None]
    return sum(values) if values else None


# ---------------------------------------------------------------- fewer of them


def _thinned(points: Sequence[tuple[float, float]], most: int) -> Iterator[tuple[float, float]]:
    """Yield the means of equally many points each, weighted by their time."""
    size = -(-len(points) // most)
    before = 0.0
    for place in range(0, len(points), size):
        group = points[place : place + size]
        weights = [
            max(_SHORTEST, at - last)
            for last, (at, _) in zip([before, *(p[0] for p in group)], group, strict=False)
        ]
        yield group[-1][0], sum(w * v for w, (_, v) in zip(weights, group, strict=True)) / sum(weights)
        before = group[-1][0]


def _merged(spans: Sequence[Span], most: int) -> Iterator[Span]:
    """Yield the spans, with neighbours joined so that none is shorter than its share of the whole."""
    if not spans:
        return
    least = (spans[-1].end - spans[0].begin) / most
    group: list[Span] = []
    for span in spans:
        group.append(span)
        if group[-1].end - group[0].begin >= least:
            yield Span(group[0].begin, group[-1].end, _mean(group))
            group = []
    if group:
        yield Span(group[0].begin, group[-1].end, _mean(group))


def _mean(spans: Sequence[Span]) -> Shares:
    whole = sum(span.seconds for span in spans)
    if whole <= 0:
        return Shares()

    def share(name: str) -> float:
        return sum(span.seconds * float(getattr(span.shares, name)) for span in spans) / whole

    return Shares(share("input"), share("compute"), share("host"), share("idle"))
