"""Model what a training step needs at any batch size, from the measurements of a scratch run: formula and
fit. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from orchestrator.sizing.fit import Estimate, Line, fit


@dataclass(frozen=True)
class State:
    """Bytes by formula: the model's variables (`weights`), those that have a gradient (`trainable`), and
    the optimizer's (`slots`). `activations`: the outputs of all layers for one example, None if not
    known.
    """

    weights: int
    trainable: int
    slots: int
    activations: int | None


@dataclass(frozen=True)
class Pipeline:
    """What it takes to make one batch: seconds of CPU time, seconds, and bytes that were read.
    `one_thread`: all batches are made by Python code in a single thread.
    """

    cpu: float
    seconds: float
    bytes_read: int
    batches: int
    one_thread: bool = False


@dataclass(frozen=True)
class Size:
    """One batch size that was tried: bytes and seconds of each step."""

    batch: int
    peaks: tuple[int, ...]
    held: tuple[int, ...]
    seconds: tuple[float, ...]
    cpu: tuple[float, ...]


@dataclass(frozen=True)
class Measured:
    """All that a scratch run measured. `gpu`: its name, None if there was none; `batch`: the program's
    own size; `batch_bytes`: the bytes of such a batch; `notes`: sizes that were not measured, and why.
    """

    kind: str
    gpu: str | None
    xla: bool
    policy: str
    optimizer: str | None
    batch: int
    batch_bytes: int
    state: State
    sizes: tuple[Size, ...]
    pipeline: Pipeline | None
    base: int
    notes: tuple[Mapping[str, Any], ...] = ()


def read(result: Mapping[str, Any]) -> Measured:
    """Return what a sizing that ended with "done" wrote to its file. Raise KeyError if something is
    missing.
    """
    state, device = result["state"], result["device"]
    return Measured(
        kind=result["kind"],
        gpu=None if device == "CPU" else device,
        xla=bool(result["xla"]),
        policy=result["policy"],
        optimizer=result.get("optimizer"),
        batch=result["own_batch"],
        batch_bytes=result["batch_bytes"],
        state=State(state["weights"], state["trainable"], state["slots"], state["activations"]),
        sizes=tuple(_size(each) for each in result["sizes"]),
        pipeline=_pipeline(result.get("pipeline")),
        base=result["base_rss"],
        notes=tuple(result["notes"]),
    )


def _size(each: Mapping[str, Any]) -> Size:
    steps: Sequence[Mapping[str, Any]] = each["steps"]
    return Size(
        batch=each["batch"],
        peaks=tuple(int(step["peak"]) for step in steps if step["peak"] is not None),
        held=tuple(int(step["rss"]) for step in steps),
        seconds=tuple(float(step["seconds"]) for step in steps),
        cpu=tuple(float(step["cpu"]) for step in steps),
    )


def _pipeline(found: Mapping[str, Any] | None) -> Pipeline | None:
    if not found:
        return None
    one_thread = bool(found.get("one_thread"))
    return Pipeline(found["cpu"], found["seconds"], found["bytes_read"], found["batches"], one_thread)


@dataclass(frozen=True)
class Model:
    """What a training needs, as a function of its batch size. Bytes and seconds."""

    measured: Measured
    step: Line | None
    """Memory of a step beyond what is kept between steps; None if it could not be counted."""
    held: Line
    """Main memory of the process, with the step on the CPU."""
    seconds: Line
    cpu: Line

    def kept(self) -> int:
        """Return the bytes that are kept between two steps: weights and the optimizer's slots."""
        return self.measured.state.weights + self.measured.state.slots

    def device(self, batch: int) -> Estimate | None:
        """Return the peak of the device allocator's memory: what is kept, the batch, and the step. None
        if it could not be counted.
        """
        if self.step is None:
            return None
        kept = self.kept() + self.batch_bytes(batch)
        step = self.step.at(batch)
        return Estimate(kept + step.value, kept + step.low, kept + step.high)

    def batch_bytes(self, batch: int) -> int:
        return round(self.measured.batch_bytes * batch / self.measured.batch)

    def formula(self, batch: int) -> int | None:
        """Return weights + gradients + slots + the outputs of all layers, in bytes; None if they are not
        known.
        """
        state = self.measured.state
        if state.activations is None:
            return None
        return self.kept() + state.trainable + self.batch_bytes(batch) + state.activations * batch

    def pipeline_cpu(self, batch: int) -> float | None:
        """Return the seconds of CPU time that it takes to make one batch of that size; None if not
        measured.
        """
        pipeline = self.measured.pipeline
        return pipeline.cpu * batch / self.measured.batch if pipeline else None


def model(measured: Measured) -> Model:
    """Fit all that was measured. Raise ValueError if nothing was."""
    peaks = {size.batch: size.peaks for size in measured.sizes}
    return Model(
        measured=measured,
        step=fit(peaks) if any(peaks.values()) else None,
        held=fit({size.batch: size.held for size in measured.sizes}),
        seconds=fit({size.batch: (median(size.seconds),) for size in measured.sizes}),
        cpu=fit({size.batch: (median(size.cpu),) for size in measured.sizes}),
    )
