"""A run's trace -> where its time and bytes went, and what limited it. Pure: it reads one file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from orchestrator.profiling.limits import verdict
from orchestrator.profiling.model import IoSummary
from orchestrator.profiling.steps import Steps, steps_of
from orchestrator.profiling.trace import Trace, read
from orchestrator.profiling.usage import Usage, usage_of

__all__ = ["IoSummary", "summarise"]


def summarise(trace: Path) -> IoSummary:
    """Sum up a trace. Lines that are torn or of unknown kinds are passed over; a missing file is no facts."""
    lines = read(trace)
    steps = steps_of(lines)
    usage = usage_of(lines, steps.began, steps.ended)
    summary = _summary(lines, steps, usage)
    limited_by, because = verdict(summary, usage)
    return replace(summary, limited_by=limited_by, because=because)


def _summary(lines: Trace, steps: Steps, usage: Usage) -> IoSummary:
    return IoSummary(
        steps=steps.count,
        steps_per_s=steps.per_second,
        input_wait=steps.input_wait,
        bytes_read=usage.bytes_read,
        bytes_written=usage.bytes_written,
        disk_read=usage.disk_read,
        disk_written=usage.disk_written,
        network_bytes=usage.network_bytes,
        peak_memory=usage.peak_memory,
        cpu_utilisation=usage.cpu,
        cpu_waiting=usage.waiting,
        gpu_utilisation=usage.gpu,
        wall_s=lines.wall,
        sampler_cpu=usage.sampler_cpu,
    )
