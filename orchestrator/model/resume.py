"""The result of a resume check: whether a job that is killed after a checkpoint continues as if it had
not been killed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Resumed(StrEnum):
    """The verdict of a resume check. Only EXACT is a success."""

    EXACT = "EXACT"
    NOT_EXACT = "NOT EXACT"
    UNSTABLE = "UNSTABLE"
    NO_CHECKPOINT = "NO CHECKPOINT"
    NOT_CHECKED = "NOT CHECKED"


class Lost(StrEnum):
    """What a checkpoint did not hold, or a resumed job did not restore."""

    EVERYTHING = "not resumed"
    FAILED = "the resumed command fails"
    WEIGHTS = "weights"
    ITERATIONS = "step counter"
    LEARNING_RATE = "learning rate"
    LOSS_SCALE = "loss scale"
    AVERAGE = "moving average of weights"
    SLOTS = "optimizer slots"
    DROPOUT = "dropout random state"
    STATISTICS = "layer statistics"
    DATA_POSITION = "data position"
    DATA_ORDER = "data order"
    RANDOM_OPERATIONS = "random operations"
    GENERATOR_NUMPY = "NumPy random state"
    GENERATOR_PYTHON = "Python random state"
    EPOCH = "epoch counter"
    PATIENCE = "early-stopping state"
    BEST = "best value so far"
    LENGTH = "number of steps"
    UNKNOWN = "unknown state"


VARIABLES = frozenset(
    (Lost.ITERATIONS, Lost.LEARNING_RATE, Lost.LOSS_SCALE, Lost.AVERAGE, Lost.SLOTS, Lost.DROPOUT,
     Lost.STATISTICS, Lost.WEIGHTS)
)  # fmt: skip
"""The parts of the state that are variables of a model or its optimizer."""


@dataclass(frozen=True)
class Omission:
    """Something that was not restored. `confirmed`: with it restored, the resumed run is bitwise identical.

    `names`: the variables, files or callbacks. `step`: the first step of the uninterrupted run that differs
    (0: not known). `stage`: where in that step. `like`: the step whose batch was seen instead.
    """

    lost: Lost
    names: tuple[str, ...] = ()
    step: int = 0
    stage: str = ""
    like: int = 0
    confirmed: bool = False
    detail: str = ""


@dataclass(frozen=True)
class ResumeCheck:
    """The outcome of a resume check. `steps`: the steps of the uninterrupted run; `kept`: the step before
    the checkpoint; `killed`: the last step before the kill; `resumed`: the step after which the resumed
    run continued; `compared`: how many steps are bitwise identical after that.
    """

    verdict: Resumed
    checkpoint: tuple[str, ...] = ()
    steps: int = 0
    kept: int = 0
    killed: int = 0
    resumed: int = 0
    compared: int = 0
    omissions: tuple[Omission, ...] = ()
    not_compared: tuple[str, ...] = ()
    why: str = ""
    tried: int = 0

    def as_json(self) -> dict[str, Any]:
        """Return the object that `--json` prints."""
        return {
            "verdict": str(self.verdict),
            "checkpoint": list(self.checkpoint),
            "steps": self.steps,
            "checkpoint_step": self.kept,
            "killed_step": self.killed,
            "resumed_step": self.resumed,
            "compared": self.compared,
            "omissions": [
                {
                    "lost": str(each.lost),
                    "names": list(each.names),
                    "step": each.step,
                    "stage": each.stage,
                    "like_step": each.like,
                    "confirmed": each.confirmed,
                    "detail": each.detail,
                }
                for each in self.omissions
            ],
            "not_compared": list(self.not_compared),
            "why": self.why,
            "tried": self.tried,
        }

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> ResumeCheck:
        """Return the check from the object that `as_json` returned."""
        return cls(
            Resumed(found["verdict"]),
            tuple(found["checkpoint"]),
            found["steps"],
            found["checkpoint_step"],
            found["killed_step"],
            found["resumed_step"],
            found["compared"],
            tuple(_omission(each) for each in found["omissions"]),
            tuple(found["not_compared"]),
            found["why"],
            found["tried"],
        )


def _omission(found: Mapping[str, Any]) -> Omission:
    names = tuple(found["names"])
    where = (found["step"], found["stage"], found["like_step"])
    return Omission(Lost(found["lost"]), names, *where, found["confirmed"], found["detail"])
