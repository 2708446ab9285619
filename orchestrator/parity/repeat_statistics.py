"""How many equal runs are needed before chance is excluded. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

LEAST = 3
"""Runs that must be equal with a remedy, however different they are without it."""

MOST = 6

CHANCE = 0.05
"""Of a remedy that does nothing and is believed all the same."""


def repeats_needed(results: Sequence[int], tried: int = 0) -> int:
    """How many runs with a remedy must be equal before it is believed.

    `results` are those of runs without it, equal numbers for equal runs: how often two of them agree tells
    how often they would with a remedy that does nothing. `tried`: remedies that were tried before this one;
    each had its chance.
    """
    pairs = len(results) * (len(results) - 1) // 2
    agree = sum(one == other for at, one in enumerate(results) for other in results[:at])
    chance = (agree + 1) / (pairs + 2)
    return min(MOST, max(LEAST, 1 + math.ceil(math.log(CHANCE / (tried + 1)) / math.log(chance))))


def repeats_shown(equal: int, results: Sequence[int]) -> str:
    """Describe what runs showed about a remedy: "3 runs with it are bitwise identical, …"."""
    return (
        f"{equal} runs with the fix are bitwise identical; {len(results)} runs without it have "
        f"{len(set(results))} different results"
    )
