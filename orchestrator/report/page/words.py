"""Text formatting that several parts of a page share."""

from __future__ import annotations

from collections.abc import Mapping

from orchestrator.model.outcomes import ExitReason, Outcome, Stage
from orchestrator.report.page.model import State

STAGES: Mapping[Stage, str] = {
    Stage.BATCH: "batch",
    Stage.INITIAL: "initial weights",
    Stage.ACTIVATION: "layer outputs",
    Stage.LOSS: "loss",
    Stage.GRADIENT: "gradients",
    Stage.UPDATE: "updated weights",
    Stage.METRICS: "metrics",
}
"""The rows of the ladder, in the order in which an error spreads."""

ENDS: Mapping[str, str] = {
    ExitReason.COMPLETED: "Trained to the end",
    ExitReason.FAILED: "The training failed",
    ExitReason.SIGNAL: "The training was ended by a signal",
    ExitReason.OUT_OF_MEMORY: "The training ran out of memory",
    ExitReason.DEVICE_OUT_OF_MEMORY: "The training ran out of GPU memory",
    ExitReason.DISK_FULL: "The disk was full",
    ExitReason.CANCELLED: "Cancelled",
    ExitReason.OBSERVED: "Stopped after the observed steps",
    ExitReason.PREEMPTED: "The machine was taken back",
    ExitReason.DEADLINE: "The machine's time was up",
    ExitReason.STALLED: "The training made no progress",
    ExitReason.NOT_FINITE: "The loss was no finite number",
    ExitReason.LOST: "Lost with its machine",
    ExitReason.RESULTS_LOST: "The results were lost",
    ExitReason.RUNNING: "Running",
    ExitReason.NOT_STARTED: "Not started",
}

OUTCOMES: Mapping[str, State] = {
    Outcome.CONFIRMED: State.BAD,
    Outcome.PART: State.NOTE,
    Outcome.FOLLOWS: State.NONE,
    Outcome.CLEARED: State.OK,
    Outcome.NOT_NEEDED: State.OK,
    Outcome.NOT_TRIED: State.NONE,
    Outcome.INTERNAL_ERROR: State.NOTE,
}


def sentence(*parts: str) -> str:
    """Join parts as sentences, each with one full stop."""
    said = [part.strip() for part in parts if part and part.strip()]
    return " ".join(part if part[-1] in ".!?…:" else f"{part}." for part in said)


def capital(words: str) -> str:
    return words[:1].upper() + words[1:]


def digits(value: float, figures: int = 5) -> str:
    """Format a number with this many significant digits and separators: 0.98888, 12,345."""
    if value != value:
        return "NaN"
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    return f"{value:,.{figures}g}" if 1e-4 <= abs(value) < 1e6 else f"{value:.{figures - 1}g}"


def short(digest: str, most: int = 12) -> str:
    return digest[:most]
