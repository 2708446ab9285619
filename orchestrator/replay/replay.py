"""One repeated run: what came of it, and where it is started."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from orchestrator.parity.explain import Unseeded
from orchestrator.parity.recording import Recording
from orchestrator.replay.sandbox import Copy


def cores() -> int:
    """How many this process may use, and so may what it starts."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass(frozen=True)
class Replay:
    """One repeated run. `recording` has no steps where it failed, and `why` then says how. `fault`: orch
    itself failed, before the program began. `unseeded`: where it made generators without a seed, if these
    were given one."""

    recording: Recording
    seconds: float
    why: str = ""
    unseeded: tuple[Unseeded, ...] = ()
    fault: bool = False


def started_in(program: Path, start: str, copy: Copy) -> Path | None:
    """The folder from which `program` is started, seen from its own as `start`; None where that is not in a
    folder of the copy."""
    place = Path(os.path.normpath(program.parent / start))
    inside = any(place.is_relative_to(seen) for _, seen in copy.moved)
    return place if inside and place.is_dir() else None
