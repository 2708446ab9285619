"""The result of one repeated run, and the folder in which it starts."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from orchestrator.parity.explain import Unseeded
from orchestrator.parity.recording import Recording
from orchestrator.replay.sandbox import Copy


def cores() -> int:
    """Return how many cores this process, and what it starts, may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass(frozen=True)
class Replay:
    """One repeated run. If it failed, `recording` has no steps and `why` says how. `fault`: orch itself
    failed before the program began. `unseeded`: where it created generators without a seed, if these were
    seeded by the intervention.
    """

    recording: Recording
    seconds: float
    why: str = ""
    unseeded: tuple[Unseeded, ...] = ()
    fault: bool = False


def started_in(program: Path, start: str, copy: Copy) -> Path | None:
    """Return the folder in which `program` is started, as `start` is relative to its own; None if that is
    outside the copy.
    """
    place = Path(os.path.normpath(program.parent / start))
    inside = any(place.is_relative_to(seen) for _, seen in copy.moved)
    return place if inside and place.is_dir() else None
