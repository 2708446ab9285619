"""The recording of a run that can be repeated on this computer: its own, or that of the same steps here."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from orchestrator import parity
from orchestrator.model.outcomes import Conclusion
from orchestrator.replay import recipe

_THERE, _HERE = "there", "here"
UNKNOWN = "its recording does not say how it was started"


@dataclass(frozen=True)
class Repeatable:
    """A recording to repeat instead of the one that was asked for. `why`: why there is none, "" if there is
    one.

    `beside`: the recording on this computer of the same run, whose first steps differ.
    """

    folder: Path
    why: str = ""
    beside: Path | None = None


def repeatable(folder: Path) -> Repeatable:
    """Return what can be repeated for the recording in `folder`.

    A machine's recording holds no command. `train --local-parity` recorded the same steps here: they stand
    for the machine's if every tensor is the same.
    """
    if recipe.read_recipe(folder) is not None:
        return Repeatable(folder)
    here = folder.parent / _HERE
    if folder.name != _THERE or not (here / "observe").is_dir():
        return Repeatable(folder, UNKNOWN)
    if recipe.read_recipe(here) is None:
        return Repeatable(folder, "an older orch recorded its steps on this computer, without the command")
    found = parity.compare(here, folder).verdict
    if found != Conclusion.IDENTICAL:
        why = f"its first steps on this computer were not those of its machine ({found})"
        return Repeatable(folder, why, here)
    return Repeatable(here)
