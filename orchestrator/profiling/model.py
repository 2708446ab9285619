"""What a trace is summed up to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class IoSummary:
    """Where one run's time and bytes went. None: it could not be known.

    `steps` of training and `steps_per_s` (by the median time from step to step, so without start-up,
    validation and pauses). `input_wait`: share (0..1) of a step spent waiting for its batch, and its standard
    error; time that input takes from the step's cores is not in it. `between_steps_s`: seconds from the end
    of one call to the start of the next. `bytes_read` and `bytes_written` by all processes of the job, page
    cache included; `disk_read` and `disk_written` what of it reached a disk; `cache_hit`: share of the bytes
    read that no disk had to give. `network_bytes` of the machine, both ways; `rtt_ms` the median round trip.
    `peak_memory` in bytes, `swapped` the most that was in swap, `memory` what there was. `cores` that the run
    was allowed, `cpu_utilisation` of them; `cpu_waiting`: time in which threads could have run and had no
    core, `cpu_throttled` by a quota, `cpu_stolen` by other machines, all in cores. `gpu_utilisation` the mean
    of all GPUs, `gpus` each. `disk`: the one that moved most. `pipeline`: tf.data's own nodes, last first.
    `model`: what is trained. `epoch_steps`: steps of an epoch. `pauses`: shares of the training in which no
    step was made, and of its own thread. `train_s`: from the first step's end to the
    last; `wall_s` from start to end. `sampler_cpu`: what measuring cost, in cores.
    `limited_by`: memory, validation, callbacks, first batch, script, input, gpu, cpu, quota, other machines,
    other programs, disk, network, nothing, or None where too little is known, `short` where the run was too
    short for it; `because` says why in a sentence; `unknown`: what could not be told, a sentence each.
    `advice`: what to change, the greatest predicted gain first. `alarms`: what was said while it ran.
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
    sampler_cpu: float | None = None
    limited_by: str | None = None
    short: bool = False
    because: str | None = None
    unknown: Sequence[str] = ()
    advice: Sequence[Mapping[str, Any]] = ()
    alarms: Sequence[str] = ()
