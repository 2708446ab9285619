"""The enumerations that decide about verdicts, candidates and exits. Their values are what run.json holds."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum

from orchestrator.errors import (
    DeadlineReached,
    DiskFull,
    LossNotFinite,
    OutOfMemory,
    Preempted,
    ResultsLost,
    RunCancelled,
    RunFailed,
    RunLost,
    Stalled,
)


class Conclusion(StrEnum):
    """What the comparison of two runs found."""

    IDENTICAL = "IDENTICAL"
    EQUIVALENT = "EQUIVALENT"
    DIVERGENT = "DIVERGENT"
    UNSTABLE = "UNSTABLE"
    NOT_COMPARED = "NOT COMPARED"


class Stage(StrEnum):
    """Where in a training step two runs can differ, in the order of the step. STEPS: the number of steps
    differs.
    """

    STEPS = "steps"
    FILES = "files"
    BATCH = "batch"
    INITIAL = "initial"
    ACTIVATION = "activation"
    LOSS = "loss"
    GRADIENT = "gradient"
    UPDATE = "update"
    METRICS = "metrics"


class Outcome(StrEnum):
    """What became of a candidate for the cause."""

    CONFIRMED = "confirmed"
    """With it alone, or with the other confirmed ones, the runs are bitwise identical."""
    PART = "part"
    """It moves the first difference to a later place, or its own cause was not tried."""
    FOLLOWS = "follows"
    """It is a consequence of the cause."""
    CLEARED = "cleared"
    """It was tried, and changes nothing or not enough."""
    NOT_NEEDED = "not needed"
    """It was left unchanged, and the runs are equal."""
    NOT_TRIED = "not tried"
    INTERNAL_ERROR = "internal error"
    """orch itself failed before the program started."""


class Kind(StrEnum):
    """The kind of a candidate, by what it imposes: a difference, a probe or a recorded value."""

    DIFFERENCE = "difference"
    PROBE = "probe"
    REPLAY = "replay"


class ExitReason(StrEnum):
    """Why a run ended. An unknown reason, from another version of orch, is kept as its text."""

    COMPLETED = "completed"
    FAILED = "failed"
    SIGNAL = "signal"
    OUT_OF_MEMORY = "out_of_memory"
    DEVICE_OUT_OF_MEMORY = "device_out_of_memory"
    """Memory of a GPU, or of the device on which the framework computes."""
    DISK_FULL = "disk_full"
    CANCELLED = "cancelled"
    OBSERVED = "observed"
    """The run was stopped after the observed steps."""
    PREEMPTED = "preempted"
    """The cloud took its spot machine back."""
    DEADLINE = "deadline"
    """The machine's time was up, and the job was asked to end."""
    STALLED = "stalled"
    """It made no progress for as long as the profile allows, and was ended."""
    NOT_FINITE = "not_finite"
    """Its loss was not a finite number, and the profile says that this ends it."""
    DATA_FAILED = "data_failed"
    """An object of the data that were downloaded during the run did not arrive as it is pinned."""
    LOST = "lost"
    """The machine went away, or how the run ended is not known."""
    RESULTS_LOST = "results_lost"
    """It had ended, and its results were lost with the machine."""
    RUNNING = "running"
    """It continues: `train --detach` returned."""
    NOT_STARTED = "not_started"
    """The parity check prevented its start."""

    @property
    def interrupted(self) -> bool:
        """Whether the machine went away, not the job: another machine may continue it."""
        return self in (ExitReason.PREEMPTED, ExitReason.LOST, ExitReason.RESULTS_LOST)

    @property
    def retried_as_error(self) -> bool:
        """Whether the job failed in a way in which the same command may succeed next time."""
        return self in (ExitReason.FAILED, ExitReason.SIGNAL, ExitReason.STALLED)

    @property
    def worth_repeating(self) -> bool:
        """Whether the same command may succeed with nothing changed: a scheduler should retry it
        automatically.

        Otherwise somebody has to look at the script, the profile or the data.
        """
        return self.interrupted or self is ExitReason.STALLED

    @classmethod
    def _missing_(cls, value: object) -> ExitReason | None:
        if not isinstance(value, str) or not re.fullmatch("[a-z_]{1,40}", value):
            return None
        other = str.__new__(cls, value)
        other._name_, other._value_ = value.upper(), value
        return other


_FAILURES: Mapping[str, type[RunFailed]] = {
    "out_of_memory": OutOfMemory,
    "device_out_of_memory": OutOfMemory,
    "preempted": Preempted,
    "lost": RunLost,
    "cancelled": RunCancelled,
    "results_lost": ResultsLost,
    "stalled": Stalled,
    "not_finite": LossNotFinite,
    "disk_full": DiskFull,
    "deadline": DeadlineReached,
}


def failure_of(reason: str) -> type[RunFailed]:
    """Return the class of the error for a run that ended for `reason` (see model.Exit); RunFailed if
    there is no closer one.
    """
    return _FAILURES.get(reason, RunFailed)


_ENDINGS: Mapping[str, str] = {
    ExitReason.SIGNAL: "was ended by a signal",
    ExitReason.OUT_OF_MEMORY: "ran out of memory",
    ExitReason.DEVICE_OUT_OF_MEMORY: "ran out of GPU memory",
    ExitReason.DISK_FULL: "filled the disk",
    ExitReason.CANCELLED: "was cancelled",
    ExitReason.OBSERVED: "was stopped after the observed steps",
    ExitReason.PREEMPTED: "was preempted",
    ExitReason.DEADLINE: "reached the deadline",
    ExitReason.STALLED: "made no progress",
    ExitReason.NOT_FINITE: "had a loss that was not finite",
    ExitReason.DATA_FAILED: "did not get its data",
    ExitReason.LOST: "was lost",
    ExitReason.RESULTS_LOST: "was lost with its results",
    ExitReason.RUNNING: "is still running",
    ExitReason.NOT_STARTED: "was not started",
}


def ending(reason: str) -> str:
    """Return what a run did that ended for `reason`, for the place behind its name: "failed", "ran out of
    memory".
    """
    return _ENDINGS.get(reason, reason.replace("_", " "))
