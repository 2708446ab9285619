"""Fit a line to steps measured at several batch sizes, with its uncertainty. Pure.

The memory in use at any moment of a step is a constant plus a multiple of the batch size. A step's peak is
the largest of these lines at each size, so it bends upwards where another moment becomes the largest. For
sizes beyond those measured, the last piece of a clear bend is followed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

_STUDENT = (
    12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23, 2.20, 2.18, 2.16, 2.14, 2.13,
    2.12, 2.11, 2.10, 2.09, 2.09, 2.08, 2.07, 2.07, 2.06, 2.06, 2.06, 2.05, 2.05, 2.05, 2.04,
)  # fmt: skip
"""Student's t: how many deviations contain 95% of the expected values, by degrees of freedom from 1."""

_BEND = 2.0
"""A bend counts if the middle is more than so many deviations of equal steps below the line across it."""

_ALIKE = 1e-4
"""The smallest relative deviation that is assumed between steps."""


@dataclass(frozen=True)
class Estimate:
    """A number, and the interval that contains 95% of the expected values."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Piece:
    """A straight piece: intercept + slope · batch."""

    intercept: float
    slope: float

    def at(self, batch: float) -> float:
        return self.intercept + self.slope * batch


@dataclass(frozen=True)
class Line:
    """The highest step of each batch size: `piece` is the line through them, `bend` the piece to follow
    beyond an upward bend. `spread`: the relative deviation of one step; `sizes`: those measured,
    ascending; `samples`: the number of steps.
    """

    piece: Piece
    spread: float
    sizes: tuple[int, ...]
    samples: int
    bend: Piece | None = None

    def at(self, batch: int) -> Estimate:
        """Return the estimated highest of many steps with `batch` examples."""
        value = self.piece.at(batch)
        if self.bend is not None:
            value = max(value, self.bend.at(batch))
        half = self._factor * self.spread * math.sqrt(1 + self._leverage(batch))
        return Estimate(value, value * max(0.0, 1 - half), value * (1 + half))

    @property
    def slope(self) -> Estimate:
        """What one more example takes."""
        middle = sum(self.sizes) / len(self.sizes)
        scatter = sum((size - middle) ** 2 for size in self.sizes) * self.samples / len(self.sizes)
        half = (
            self._factor * self.spread * self.piece.at(middle) / math.sqrt(scatter) if scatter else math.inf
        )
        return Estimate(self.piece.slope, max(0.0, self.piece.slope - half), self.piece.slope + half)

    @property
    def intercept(self) -> Estimate:
        """What a step takes independently of its batch."""
        value = self.piece.intercept
        if len(self.sizes) < 2:
            return Estimate(value, 0.0, value)
        half = self.slope.high - self.slope.value
        off = half * sum(self.sizes) / len(self.sizes)
        return Estimate(value, max(0.0, value - off), value + off)

    @property
    def _factor(self) -> float:
        freedom = max(1, self.samples - 2)
        return _STUDENT[freedom - 1] if freedom <= len(_STUDENT) else 1.96

    def _leverage(self, batch: int) -> float:
        middle = sum(self.sizes) / len(self.sizes)
        scatter = sum((size - middle) ** 2 for size in self.sizes)
        each = self.samples / len(self.sizes)
        return 1 / self.samples + ((batch - middle) ** 2 / (scatter * each) if scatter else 0.0)


def fit(samples: Mapping[int, Sequence[float]]) -> Line:
    """Fit the line through the highest step of each batch size. All values ≥ 0. Raise ValueError if there is
    none.

    Slope and intercept are never negative. With a single size, everything is assumed to grow with the batch:
    the most that a larger batch can need.
    """
    sizes = tuple(sorted(size for size, values in samples.items() if values))
    if not sizes:
        raise ValueError("nothing was measured")
    means = {size: sum(samples[size]) / len(samples[size]) for size in sizes}
    tops = {size: max(samples[size]) for size in sizes}
    off = [(value - means[size]) / max(means[size], 1.0) for size in sizes for value in samples[size]]
    spread = _spread(_piece(means), samples, sizes)
    noise = math.sqrt(sum(each * each for each in off) / len(off))
    bend = _bend(tops, max(_ALIKE, noise))
    return Line(_piece(tops), spread, sizes, len(off), bend)


def _piece(values: Mapping[int, float]) -> Piece:
    """Return the line with the least squares of relative deviations, with no negative part."""
    if len(values) == 1:
        ((size, value),) = values.items()
        return Piece(0.0, value / size)
    weights = {size: 1 / max(value, 1.0) ** 2 for size, value in values.items()}
    total = sum(weights.values())
    x = sum(weights[size] * size for size in values) / total
    y = sum(weights[size] * value for size, value in values.items()) / total
    across = sum(weights[size] * (size - x) * (value - y) for size, value in values.items())
    along = sum(weights[size] * (size - x) ** 2 for size in values)
    slope = max(0.0, across / along)
    intercept = y - slope * x
    if intercept >= 0:
        return Piece(intercept, slope)
    through = sum(weights[size] * size * value for size, value in values.items())
    return Piece(0.0, through / sum(weights[size] * size * size for size in values))


def _spread(piece: Piece, samples: Mapping[int, Sequence[float]], sizes: Sequence[int]) -> float:
    """Return how much a single step deviates from the line, relative to it."""
    off = [(value - piece.at(size)) / max(piece.at(size), 1.0) for size in sizes for value in samples[size]]
    freedom = max(1, len(off) - min(2, len(sizes)))
    return max(_ALIKE, math.sqrt(sum(each * each for each in off) / freedom))


def _bend(tops: Mapping[int, float], noise: float) -> Piece | None:
    """Return the last piece if the peaks clearly bend upwards, else None."""
    if len(tops) < 3:
        return None
    first, *_, before, last = sorted(tops)
    chord = tops[first] + (tops[last] - tops[first]) * (before - first) / (last - first)
    if (chord - tops[before]) / max(chord, 1.0) <= _BEND * noise:
        return None
    slope = (tops[last] - tops[before]) / (last - before)
    return Piece(tops[last] - slope * last, slope)
