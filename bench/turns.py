"""Ways to do the same, timed in turns, so that a busy computer slows all alike."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence

from rows import ratios


def seconds(act: Callable[[], object]) -> float:
    begun = time.perf_counter()
    act()
    return time.perf_counter() - begun


def in_turns(ways: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    """Return the seconds of each round, by way. Every other round goes backwards."""
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(rounds):
        for name in list(ways)[:: -1 if number % 2 else 1]:
            taken[name].append(seconds(ways[name]))
    return taken


def show(name: str, taken: Sequence[float], base: Sequence[float] | None = None, than: str = "") -> None:
    """Print the median in seconds, and the median, least and greatest ratio to `base`, called `than`."""
    line = f"{name:44} {statistics.median(taken):8.2f} s"
    if base is not None:
        found = ratios(taken, base)
        line += f"  {statistics.median(found):5.2f} × {than} ({min(found):.2f} – {max(found):.2f})"
    print(line, flush=True)
