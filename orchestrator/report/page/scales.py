"""Axes: round numbers between two limits, and their labels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator.report.page.model import Unit
from orchestrator.report.page.words import digits

_BINARY = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"), (1, "B"))


@dataclass(frozen=True)
class Scale:
    """An axis from `low` to `high`; `ticks` are round numbers between them, each with its label."""

    low: float
    high: float
    ticks: tuple[tuple[float, str], ...]
    log: bool = False

    def place(self, value: float) -> float:
        """Return the position of a value: 0 at `low`, 1 at `high`."""
        low, high, at = self.low, self.high, value
        if self.log:
            low, high, at = math.log10(low), math.log10(high), math.log10(max(value, 1e-300))
        return min(1.0, max(0.0, (at - low) / (high - low))) if high > low else 0.5


def scale(
    values: Sequence[float], unit: Unit, *, limit: float | None = None, log: bool = False, wanted: int = 4
) -> Scale:
    """Return the scale of a y axis. Amounts begin at 0."""
    found = [value for value in values if math.isfinite(value)]
    if limit is not None:
        found.append(limit)
    if not found:
        return Scale(0.0, 1.0, ((0.0, "0"), (1.0, "1")))
    low, high = min(found), max(found)
    if log and low > 0:
        return _decades(low, high)
    if unit == Unit.SHARE:
        return Scale(0.0, 1.0, ((0.0, "0%"), (0.5, "50%"), (1.0, "100%")))
    if unit in (Unit.BYTES, Unit.RATE):
        return _binary(high, unit, wanted)
    if unit == Unit.CORES:
        low = 0.0
    return _linear(low, high, wanted)


def _linear(low: float, high: float, wanted: int) -> Scale:
    if high <= low:
        spread = abs(low) * 0.1 or 1.0
        low, high = low - spread, high + spread
    step = _step((high - low) / wanted)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    ticks = tuple((place * step, _written(place * step, step)) for place in range(int(first), int(last) + 1))
    return Scale(first * step, last * step, ticks)


def _step(rough: float) -> float:
    base = 10.0 ** math.floor(math.log10(rough))
    return next(base * factor for factor in (1, 2, 2.5, 5, 10) if base * factor >= rough * 0.999)


def _written(value: float, step: float) -> str:
    if value == 0 or abs(value) < step / 1e6:
        return "0"
    if abs(value) >= 1e6 or step < 1e-5:
        return digits(value, 3)
    places = max(0, -math.floor(math.log10(step) + 1e-9))
    places += 1 if round(step * 10**places, 9) != round(step * 10**places) else 0
    return f"{value:,.{places}f}"


def _binary(high: float, unit: Unit, wanted: int) -> Scale:
    size, name = next((each for each in _BINARY if high >= each[0]), _BINARY[-1])
    inner = _linear(0.0, max(high / size, 1e-9), wanted)
    after = "/s" if unit == Unit.RATE else ""
    ticks = tuple((at * size, f"{text} {name}{after}" if at else "0") for at, text in inner.ticks)
    return Scale(0.0, inner.high * size, ticks)


def _decades(low: float, high: float) -> Scale:
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    last = max(last, first + 1)
    stride = max(1, -(-(last - first) // 5))
    ticks = tuple((10.0**place, digits(10.0**place, 2)) for place in range(first, last + 1, stride))
    return Scale(10.0**first, 10.0**last, ticks, log=True)


def along(begin: float, end: float, axis: str, wanted: int = 5) -> Scale:
    """Return the scale of an x axis, which ends where the data end. Seconds are labelled as times."""
    if not (math.isfinite(begin) and math.isfinite(end)) or end <= begin:
        end = (begin if math.isfinite(begin) else 0.0) + 1.0
        begin = end - 1.0
    if axis == "s":
        return _times(begin, end, wanted)
    step = _whole_step((end - begin) / wanted)
    first = math.ceil(begin / step - 1e-9)
    places = range(first, math.floor(end / step + 1e-9) + 1)
    return Scale(begin, end, tuple((place * step, _written(place * step, step)) for place in places))


def _whole_step(rough: float) -> float:
    """Return an integer step for epochs and steps, which have no fractions."""
    step = _step(max(rough, 1.0))
    return step if step == int(step) else 2.0 * step


_TIMES = (
    0.1,
    0.2,
    0.5,
    1,
    2,
    5,
    10,
    15,
    30,
    60,
    120,
    300,
    600,
    900,
    1800,
    3600,
    7200,
    14400,
    21600,
    43200,
    86400,
)


def _times(begin: float, end: float, wanted: int) -> Scale:
    rough = (end - begin) / wanted
    step = next((each for each in _TIMES if each >= rough * 0.8), None) or _step(rough / 86400) * 86400
    places = range(math.ceil(begin / step - 1e-9), math.floor(end / step + 1e-9) + 1)
    return Scale(begin, end, tuple((place * step, clock(place * step, step)) for place in places))


def clock(seconds: float, step: float) -> str:
    """Format a time on an axis whose ticks are `step` seconds apart."""
    if seconds == 0:
        return "0"
    if step < 60 and seconds < 600:
        return f"{seconds:.1f} s" if step < 1 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if step < 60:
        return f"{minutes}:{rest:02}"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes:02}" if hours and minutes else f"{hours} h" if hours else f"{minutes} min"
    days, hours = divmod(hours, 24)
    return f"{days} d {hours} h" if hours else f"{days} d"


def shown(value: float, unit: Unit) -> str:
    """Format one value for the label at the pointer."""
    from orchestrator.report.units import size

    if value != value:
        return "no number"
    if unit == Unit.SHARE:
        return f"{value * 100:.0f}%"
    if unit == Unit.BYTES:
        return size(value)
    if unit == Unit.RATE:
        return f"{size(value)}/s"
    if unit == Unit.CORES:
        return f"{value:.2f} cores"
    return digits(value, 4)
