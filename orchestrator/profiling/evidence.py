"""Everything that can be derived from one trace, in one place, for verdicts and advice."""

from __future__ import annotations

from dataclasses import dataclass, field

from orchestrator.profiling.pauses import Pauses, pauses_of
from orchestrator.profiling.pipeline import Pipeline, pipeline_of
from orchestrator.profiling.steps import Steps, steps_of
from orchestrator.profiling.trace import Line, Trace, amount, number
from orchestrator.profiling.usage import Usage, usage_of

CPU_BUSY = 0.85
"""Share of all cores that the run was allowed, above which no core counts as idle."""

CPU_WAITING = 0.5
"""Average number of threads, for each core, that could have run but had no core."""

ALONE = 0.2
"""Cores that other programs may use while the run still counts as alone on its machine."""

FEW_STEPS = 200
SHORT_SECONDS = 10.0
"""A training with fewer steps that took less time, or a run without steps that did, is short: verdicts on
such runs were seen to change from run to run, and start-up is most of what is measured.
"""

STARTUP = 0.5
"""Share of a run before its first step, from which on it is mostly start-up."""

HAD = 0.75
"""The share of the wanted cores that a run has if nobody keeps them from it."""


@dataclass(frozen=True)
class Training:
    """What is trained. None: not known. `batch` in examples; `growth`: GPU memory is allocated as needed.

    `eager`: `fit` runs operation by operation. `source`: PyDataset or generator, if Keras made the pipeline
    from one; `source_name` is its name. `workers`: how many it has, which are `processes` or threads.
    """

    parameters: int | None = None
    policy: str | None = None
    optimizer: str | None = None
    batch: int | None = None
    steps_per_execution: int | None = None
    epochs: int | None = None
    epoch_steps: int | None = None
    gpus: int | None = None
    growth: bool | None = None
    eager: bool | None = None
    source: str | None = None
    source_name: str | None = None
    workers: int | None = None
    processes: bool | None = None


@dataclass(frozen=True)
class Evidence:
    """What is read from a trace, and what verdicts and rules derive from it."""

    steps: Steps = field(default_factory=Steps)
    usage: Usage = field(default_factory=Usage)
    pipeline: Pipeline | None = None
    training: Training = field(default_factory=Training)
    header: Line = field(default_factory=dict)
    pauses: Pauses = field(default_factory=Pauses)
    wall: float | None = None
    """Seconds from the start of the run to its end."""
    startup: float | None = None
    """Seconds from the start of the run to the beginning of its first step."""

    @property
    def mostly_startup(self) -> bool:
        """Whether start-up took most of the run, so that what limits its steps hardly matters."""
        return self.startup is not None and bool(self.wall) and self.startup >= STARTUP * (self.wall or 0.0)

    @property
    def short(self) -> bool:
        """Whether there were too few steps for reliable shares; a run without steps is judged by its
        seconds.
        """
        if self.steps.count is None:
            return self.wall is not None and self.wall < SHORT_SECONDS
        few = self.steps.count < FEW_STEPS
        return few and (self.steps.seconds is None or self.steps.seconds < SHORT_SECONDS)

    @property
    def crowded(self) -> bool:
        """Whether no core is idle: the run keeps them busy, or its threads wait for one."""
        busy = self.usage.cpu is not None and self.usage.cpu >= CPU_BUSY
        waiting = self.usage.waiting is not None and self.usage.waiting / self.cores >= CPU_WAITING
        return busy or waiting

    @property
    def others(self) -> float:
        """Cores that other programs on the machine kept busy; 0 if that is not known."""
        usage = self.usage
        if usage.machine_busy is None or usage.busy is None:
            return 0.0
        return max(0.0, usage.machine_busy - usage.busy)

    @property
    def alone(self) -> bool:
        return self.others <= ALONE

    @property
    def wanted(self) -> float | None:
        """Cores that the run kept busy, plus those that its threads waited for."""
        return None if self.usage.busy is None else self.usage.busy + (self.usage.waiting or 0.0)

    @property
    def taken(self) -> bool:
        """Whether other programs had the cores that the run waited for, so that it did not limit itself."""
        waiting = self.usage.waiting or 0.0
        if not self.wanted or (self.usage.busy or 0.0) >= HAD * self.wanted:
            return False
        return not self.alone and self.others >= min(1.0, waiting) / 2

    @property
    def cores(self) -> float:
        return self.usage.cores or 1.0

    @property
    def step(self) -> float | None:
        """Seconds from step to step."""
        return self.steps.step

    @property
    def wait(self) -> float | None:
        """Seconds of a step spent waiting for its batch."""
        share = self.steps.input_wait
        return None if share is None or self.step is None else share * self.step

    @property
    def compute(self) -> float | None:
        """Seconds of a step without the wait for its batch."""
        return None if self.wait is None or self.step is None else self.step - self.wait

    @property
    def core_seconds(self) -> float | None:
        """Seconds of CPU time of one step, input processing included."""
        return None if self.usage.busy is None or self.step is None else self.usage.busy * self.step

    @property
    def epoch_steps(self) -> int | None:
        """Steps of one epoch, as reported by Keras or the pipeline."""
        seen = self.pipeline.epoch_batches if self.pipeline else None
        return self.training.epoch_steps or seen

    @property
    def batch(self) -> int | None:
        """Examples of one step."""
        return self.training.batch or (self.pipeline.batch if self.pipeline else None)

    @property
    def epochs(self) -> int | None:
        begun = self.pipeline.passes if self.pipeline else None
        return self.training.epochs or begun


def evidence_of(trace: Trace, memory: int | None = None) -> Evidence:
    """Return everything that can be derived from a trace; `memory`: see usage_of."""
    steps = steps_of(trace)
    return Evidence(
        steps=steps,
        usage=usage_of(trace, steps.began, steps.ended, memory),
        pipeline=pipeline_of(trace, steps.process),
        training=_training(trace, steps.process),
        header=trace.header,
        pauses=pauses_of(trace, steps.process, steps.began, steps.ended),
        wall=trace.wall,
        startup=_startup(trace, steps.process),
    )


def _startup(trace: Trace, process: str | None) -> float | None:
    """Return the seconds before the first step of the process that trains; None if that is not recorded."""
    sample = next((line for line in trace.samples if number(line, "t") is not None), None)
    steps = [line for line in trace.clock if line.get("event") == "first_step"]
    ended = [line for line in steps if str(line.get("pid")) == process and number(line, "t") is not None]
    if sample is None or not ended:
        return None
    start = amount(sample, "t") - amount(sample, "up")
    return max(0.0, min(amount(line, "t") - amount(line, "wall") for line in ended) - start)


def _training(trace: Trace, process: str | None) -> Training:
    lines = [line for line in trace.models if str(line.get("pid")) == process]
    if not lines:
        return Training()
    told = lines[-1]
    return Training(
        parameters=_whole(told, "parameters"),
        policy=_text(told, "policy"),
        optimizer=_text(told, "optimizer"),
        batch=_whole(told, "batch"),
        steps_per_execution=_whole(told, "steps_per_execution"),
        epochs=_whole(told, "epochs"),
        epoch_steps=_whole(told, "epoch_steps"),
        gpus=_whole(told, "gpus"),
        growth=_flag(told, "growth"),
        eager=_flag(told, "eager"),
        source=_text(told, "source"),
        source_name=_text(told, "source_name"),
        workers=_whole(told, "workers"),
        processes=_flag(told, "processes"),
    )


def _whole(line: Line, key: str) -> int | None:
    value = number(line, key)
    return None if value is None or value < 0 else int(value)


def _flag(line: Line, key: str) -> bool | None:
    value = line.get(key)
    return value if isinstance(value, bool) else None


def _text(line: Line, key: str) -> str | None:
    value = line.get(key)
    return value[:80] if isinstance(value, str) else None
