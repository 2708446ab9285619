"""The summary of a trace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class IoSummary:
    """Where one run's time and bytes went. None: not known.

    `steps`: training steps. `steps_per_s`: by the median time from step to step, so without start-up,
    validation and pauses. `input_wait`: share (0..1) of a step spent waiting for its batch, and
    `input_wait_error` its standard error; CPU time that input processing takes away from the step is not in
    it. `between_steps_s`: seconds from the end of one call to the start of the next. `bytes_read`,
    `bytes_written`: by all processes of the job, page cache included; `disk_read`, `disk_written`: the part
    that reached a disk; `cache_hit`: share of the bytes read that did not come from a disk. `network_bytes`:
    of the machine, in both directions; `rtt_ms`: the median round trip. `peak_memory`: bytes; `swapped`: the
    most that was in swap; `memory`: the bytes there were. `cores`: those that the run was allowed;
    `cpu_utilisation`: the share of them that was busy; `cpu_waiting`, `cpu_throttled`, `cpu_stolen`, all in
    cores: time in which threads could have run but had no core, were held back by a quota, or lost the core
    to other machines. `gpu_utilisation`: the mean of all GPUs; `gpus`: each. `disk`: the disk that moved most
    bytes. `pipeline`: tf.data's own nodes, the last first. `model`: what is trained. `epoch_steps`: steps of
    an epoch. `pauses`: shares of the training in which no step was made, and the share of the training
    thread. `train_s`: from the end of the first step to that of the last; `wall_s`: from start to end;
    `startup_s`: from the start to the beginning of the first step; `mostly_startup`: that was most of it.
    `sampler_cpu`: the cost of measuring, in cores. `limited_by`: memory, validation, callbacks, first batch,
    script, input, gpu, cpu, quota, other machines, other programs, disk, network, nothing, or None if too
    little is known; `short`: the run was too short for it. `because`: the reason, a sentence. `unknown`: what
    could not be determined, a sentence each. `advice`: what to change, the greatest predicted gain first.
    `alarms`: the warnings that were shown while it ran.
    """

    steps: int | None = None
    steps_per_s: float | None = None
    input_wait: float | None = None
    input_wait_error: float | None = None
    between_steps_s: float | None = None
    bytes_read: int | None = None
    bytes_written: int | None = None
    disk_read: int | None = None
    disk_written: int | None = None
    cache_hit: float | None = None
    network_bytes: int | None = None
    rtt_ms: float | None = None
    peak_memory: int | None = None
    memory: int | None = None
    swapped: int | None = None
    cores: float | None = None
    cpu_utilisation: float | None = None
    cpu_waiting: float | None = None
    cpu_throttled: float | None = None
    cpu_stolen: float | None = None
    gpu_utilisation: float | None = None
    gpus: Sequence[Mapping[str, Any]] = ()
    disk: Mapping[str, Any] | None = None
    pipeline: Sequence[Mapping[str, Any]] | None = None
    model: Mapping[str, Any] | None = None
    epoch_steps: int | None = None
    pauses: Mapping[str, Any] | None = None
    train_s: float | None = None
    wall_s: float | None = None
    startup_s: float | None = None
    mostly_startup: bool = False
    sampler_cpu: float | None = None
    limited_by: str | None = None
    short: bool = False
    because: str | None = None
    unknown: Sequence[str] = ()
    advice: Sequence[Mapping[str, Any]] = ()
    alarms: Sequence[str] = ()
