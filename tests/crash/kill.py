"""One kill of a verb: at which effect, and what the same verb and `down` left behind."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tests.crash.rig import Outcome, Rig

NO_LEASE = 2
"""The exit code of a verb that finds nothing leased: what it was to end has ended."""


@dataclass(frozen=True)
class Kill:
    """One crash point: where the verb was killed, and what the same verb and `down` left behind."""

    cloud: str
    verb: str
    point: int | str
    before: str
    killed: bool
    repeated: str
    machines: int
    leaks: tuple[str, ...]
    partial: tuple[str, ...]

    @property
    def sound(self) -> bool:
        return self.repeated == "" and self.machines <= 1 and not self.leaks and not self.partial


def spread(count: int, wanted: int) -> list[int]:
    """At most `wanted` numbers of 1 … `count`, evenly far apart, with the first and the last."""
    if wanted >= count:
        return list(range(1, count + 1))
    return sorted({1 + round(step * (count - 1) / (wanted - 1)) for step in range(wanted)})


Points = int | Sequence[str]
"""How many effects, spread over all of a verb; or a pattern of each, as Points.arm takes it."""


def points_of(wanted: Points, counted: Callable[[], int]) -> Sequence[int | str]:
    """Effects are counted, by a call that nobody kills, only where a number of them is wanted."""
    return spread(counted(), wanted) if isinstance(wanted, int) else wanted


def seen(
    rig: Rig, verb: str, point: int | str, killed: Outcome, repeated: str, machines: int, *, end: bool = True
) -> Kill:
    """What a kill came to; with `end`, after everything was ended."""
    if end:
        ended = rig.call("down", discard=True)
        if ended.error and ended.exit_code != NO_LEASE:
            repeated = repeated or ended.error
    leaks = tuple(rig.leaks()) if end else ()
    partial = tuple(rig.partial_files())
    return Kill(rig.kind, verb, point, killed.last, killed.killed, repeated, machines, leaks, partial)
