"""What a trace is summed up to."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class IoSummary:
    """Where one run's time and bytes went. None: it could not be known.

    `steps` of training and `steps_per_s` (by the median time from step to step, so without start-up,
    validation and pauses). `input_wait`: share (0..1) of a step spent waiting for its batch; time that input
    takes from the step's cores is not in it. `bytes_read` and `bytes_written` by all processes of the job,
    page cache included; `disk_read` and `disk_written` what of it reached a disk. `network_bytes` of the
    machine, both ways. `peak_memory` in bytes. `cpu_utilisation` of the cores that the run was allowed;
    `cpu_waiting`: time in which threads could have run and had no core, in cores. `gpu_utilisation` the mean
    of all GPUs. `wall_s` from start to end. `sampler_cpu`: what measuring cost, in cores.
    `limited_by`: input, cpu, memory, gpu, disk, network, nothing, or None where too little is known;
    `because` says why in a sentence.
    """

    steps: int | None = None
    steps_per_s: float | None = None
    input_wait: float | None = None
    bytes_read: int | None = None
    bytes_written: int | None = None
    disk_read: int | None = None
    disk_written: int | None = None
    network_bytes: int | None = None
    peak_memory: int | None = None
    cpu_utilisation: float | None = None
    cpu_waiting: float | None = None
    gpu_utilisation: float | None = None
    wall_s: float | None = None
    sampler_cpu: float | None = None
    limited_by: str | None = None
    because: str | None = None
