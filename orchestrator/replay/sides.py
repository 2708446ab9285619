"""The input of a search for causes: two sides and a time budget."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from orchestrator.parity.intervention import Other
from orchestrator.parity.naming import LETTERS, SideNames
from orchestrator.parity.recording import Recording


class Clock:
    """A time budget in seconds, which begins when this is created."""

    def __init__(self, budget: float) -> None:
        self.budget = budget
        self.until = time.monotonic() + budget

    def allows(self, seconds: float) -> bool:
        """Whether about `seconds` of the budget are left."""
        return self.until - time.monotonic() > seconds


@dataclass(frozen=True)
class Sides:
    """Two recordings, of which `base` ("A" or "B") is run again here and the other is imitated.

    `observe` is the folder with the recording of the base. `unsent`: files and folders of the repeated side's
    project that were not sent to the other side; a program may look for them without opening them. `names`:
    what sentences call the sides.
    """

    a: Recording
    b: Recording
    base: str
    other: Other
    observe: Path | None = None
    unsent: tuple[str, ...] = ()
    names: SideNames = LETTERS

    @property
    def mine(self) -> Recording:
        return self.a if self.base == "A" else self.b

    @property
    def theirs(self) -> Recording:
        return self.b if self.base == "A" else self.a
