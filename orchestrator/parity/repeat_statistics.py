"""How many equal runs are needed before chance is excluded. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

LEAST = 3
"""Least number of equal runs with a remedy, however different the runs without it are."""

MOST = 6

CHANCE = 0.05
"""Accepted probability that a remedy without an effect counts as effective."""


def repeats_needed(results: Sequence[int], tried: int = 0) -> int:
    """Return how many runs with a remedy must be equal before it counts as effective.

    `results` are those of runs without it, equal numbers for equal runs: they show how often two runs are
    equal by chance. `tried`: the number of remedies that were tried before, each of which had a chance too.
    """
    pairs = len(results) * (len(results) - 1) // 2
    agree = sum(one == other for at, one in enumerate(results) for other in results[:at])
    chance = (agree + 1) / (pairs + 2)
    return min(MOST, max(LEAST, 1 + math.ceil(math.log(CHANCE / (tried + 1)) / math.log(chance))))


def repeats_shown(equal: int, results: Sequence[int]) -> str:
    """Describe the runs with and without a remedy: "3 runs with the fix are bitwise identical; …"."""
    return (
        f"{equal} runs with the fix are bitwise identical; {len(results)} runs without it have "
        f"{len(set(results))} different results"
    )
