"""A job, how it ended, and the resources that it may use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal

from .answers import Between, Count, Moment, Most
from .outcomes import ExitReason
from .trees import TreeLink


@dataclass(frozen=True)
class Job:
    """A program to run on one side. If argv[0] is "python" it is replaced by `python`, whose folder comes
    first on PATH.

    If `trees` is empty, the job runs in `cwd` as it is. Otherwise the working folder `<run>/work` is staged
    from the trees, and `cwd` is relative to it. `observe_steps` > 0 records every tensor of the first steps;
    `observe_light` further steps are fingerprinted, and `stop_after_observed` then ends the run. `stdin`: the
    file or named pipe on that side that is its standard input; "" for none. `stall`: seconds without progress
    after which the job is ended, 0 for never. `on_nan`: "stop" ends the job when its loss is not a finite
    number. `serves`: the run of the user that this job is a part of; "" if it is that run itself.
    """

    run_id: str
    argv: Annotated[tuple[Annotated[str, Most(1 << 20)], ...], Most(100_000)]
    python: str
    cwd: str = "."
    env: Mapping[str, str] = field(default_factory=dict)
    trees: tuple[TreeLink, ...] = ()
    observe_steps: int = 0
    stop_after_observed: bool = False
    observe_light: int = 0
    stdin: str = ""
    stall: Annotated[float, Between(0, 1 << 30)] = 0.0
    on_nan: Literal["warn", "stop"] = "warn"
    serves: str = ""


@dataclass(frozen=True)
class Noticed:
    """A problem that was noticed while a job ran: stalled, not_finite (its loss), disk_low.

    `at`: Unix seconds. `step`: how many steps had been completed by then. `detail` is a sentence for people.
    """

    what: Annotated[str, Most(40)]
    at: Moment
    step: Count | None = None
    detail: Annotated[str, Most(1000)] = ""


@dataclass(frozen=True)
class Exit:
    """How a run ended.

    `reason`: completed, failed, signal, out_of_memory, device_out_of_memory (of a GPU, or of the device on
    which the framework computes), disk_full, cancelled, observed (stopped after the observed steps),
    preempted (the cloud took its spot machine back), deadline (the machine's time was up, and the job was
    asked to end), stalled (no progress for as long as the profile allows), not_finite (its loss was not a
    finite number, and the profile says that this ends it), lost (the machine went away, or how the run ended
    is not known), results_lost (it had ended, and its results went with the machine). `detail` is a sentence
    for people.
    """

    code: Annotated[int, Between(0, 255)] | None
    signal: Annotated[int, Between(1, 64)] | None
    reason: ExitReason
    detail: Annotated[str, Most(10_000)] = ""
    noticed: Annotated[tuple[Noticed, ...], Most(10)] = ()


@dataclass(frozen=True)
class RunState:
    """`state`: absent, queued (it begins when the runs before it have ended), running, ended or lost.

    `log_bytes` is the length of the run's output so far.
    """

    state: Literal["absent", "queued", "running", "ended", "lost"]
    exit: Exit | None = None
    log_bytes: Count = 0
    started_at: Moment | None = None
    ended_at: Moment | None = None

    @property
    def active(self) -> bool:
        """Whether the run has not ended: it is running, or will be."""
        return self.state in ("queued", "running")


@dataclass(frozen=True)
class GpuRoom:
    """One GPU: bytes of its memory, and how many of them are free."""

    name: Annotated[str, Most(200)]
    memory: Count
    memory_free: Count


@dataclass(frozen=True)
class Room:
    """Resources of a machine that jobs may use, and how much is free now. Cores; bytes."""

    cores: Annotated[float, Between(0, 1 << 20)]
    cores_free: Annotated[float, Between(0, 1 << 20)]
    memory: Count
    memory_free: Count
    gpus: Annotated[tuple[GpuRoom, ...], Most(64)] = ()
