"""The result of comparing the workers of one training with one process at the same global batch."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from orchestrator.model.outcomes import Stage


class WorkersConclusion(StrEnum):
    """What the comparison found. EQUAL: up to the order in which numbers are summed."""

    EQUAL = "EQUAL"
    DIFFERS = "DIFFERS"
    NOT_COMPARED = "NOT COMPARED"


class WorkerCause(StrEnum):
    """Why a worker computes something else than the single process.

    The first five are read from the examples themselves, the next two from the numbers, the others from facts
    of the worker that differ from those of the single process.
    """

    SAME_EXAMPLES = "same examples"
    ALL_EXAMPLES = "all examples"
    OTHER_STEP = "examples of another step"
    OTHER_EXAMPLES = "other examples"
    FEWER_EXAMPLES = "fewer examples"
    LOSS_SCALE = "loss scale"
    PER_SHARE = "layer that depends on the share"
    SEED = "seed"
    DATA = "data"
    CODE = "code"
    SETTINGS = "settings"
    PACKAGES = "packages"
    PROCESSOR = "processor"
    UNKNOWN = "unknown"


class NotCompared(StrEnum):
    """Why workers were not compared."""

    NO_STEPS = "no steps"
    NO_RANK = "no rank"
    RANKS = "ranks"
    BATCHES = "batches"
    INITIAL = "initial weights"
    GRADIENTS = "gradients"
    UPDATES = "updated weights"


@dataclass(frozen=True)
class WorkerFact:
    """A recorded fact of one worker that differs from that of the single process. Values that are no single
    word or number are None.
    """

    rank: int
    cause: WorkerCause
    topic: str
    name: str
    single: str | None = None
    worker: str | None = None


@dataclass(frozen=True)
class WorkerFinding:
    """What differs first, on the workers `ranks`, for one cause.

    `like`: the rank that read the same examples, or the step of the single process that did; `examples` of
    the `count` that one worker read are concerned. `relative` is the relative L2 difference of the whole
    stage. `facts`: what of these workers explains it.
    """

    cause: WorkerCause
    ranks: tuple[int, ...]
    step: int
    stage: Stage
    tensor: str = ""
    like: int | None = None
    examples: int = 0
    count: int = 0
    relative: float | None = None
    facts: tuple[WorkerFact, ...] = ()


@dataclass(frozen=True)
class WorkersVerdict:
    """The verdict on `world` workers, of whose steps `steps` are equal.

    `findings` are all of one stage of one step, the first that differs. `facts` are all recorded facts that
    differ, whether or not they have an effect. `drift`: the largest relative L2 difference of each stage in
    any step. `unseen`: what was not compared; with NOT_COMPARED the first is the reason, `missing` the ranks
    concerned (-1: the single process) and `why` what their recorders said of it.
    """

    verdict: WorkersConclusion
    world: int
    steps: int = 0
    findings: tuple[WorkerFinding, ...] = ()
    facts: tuple[WorkerFact, ...] = ()
    drift: tuple[tuple[Stage, float], ...] = ()
    unseen: tuple[NotCompared, ...] = ()
    missing: tuple[int, ...] = ()
    why: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Return the object that `--json` prints."""
        return {**asdict(self), "drift": {str(stage): value for stage, value in self.drift}}
