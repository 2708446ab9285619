"""A run's trace -> where its time and bytes went, what limited it, what to change. Pure, but for one file."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from orchestrator.model.counted import counted
from orchestrator.profiling.advice import Advice
from orchestrator.profiling.advice import apply as _apply
from orchestrator.profiling.evidence import Evidence, Training, evidence_of
from orchestrator.profiling.limits import verdict
from orchestrator.profiling.model import IoSummary
from orchestrator.profiling.pauses import Pauses
from orchestrator.profiling.rules import RULES
from orchestrator.profiling.trace import VERSION, Trace, number, read

__all__ = ["Advice", "Evidence", "IoSummary", "apply", "evidence", "summarise"]


def summarise(trace: Path, memory: int | None = None) -> IoSummary:
    """Sum up a trace. Lines that are torn or of unknown kinds are skipped; a missing file gives an empty
    summary.

    `memory`: bytes of memory that the run's machine was created with, if known.
    """
    lines = read(trace)
    found = evidence_of(lines, memory)
    limited_by, because = verdict(found)
    return IoSummary(
        **_measured(lines, found),
        limited_by=limited_by,
        short=found.short,
        because=because,
        unknown=tuple(_unknown(lines, found)),
        advice=tuple(asdict(advice) for advice in apply(found)),
        alarms=tuple(dict.fromkeys(str(line["text"])[:300] for line in lines.alarms if "text" in line)),
    )


def evidence(trace: Path, memory: int | None = None) -> Evidence:
    """Collect the evidence for verdicts and advice; `memory` as in `summarise`."""
    return evidence_of(read(trace), memory)


def apply(found: Evidence) -> tuple[Advice, ...]:
    """Return what to change, the greatest predicted gain first; only advice that the evidence supports."""
    return _apply(RULES, found)


def _measured(lines: Trace, found: Evidence) -> dict[str, Any]:
    steps, usage = found.steps, found.usage
    return {
        "steps": steps.count,
        "steps_per_s": steps.per_second,
        "input_wait": steps.input_wait,
        "input_wait_error": steps.wait_error,
        "between_steps_s": steps.gap,
        "bytes_read": usage.bytes_read,
        "bytes_written": usage.bytes_written,
        "disk_read": usage.disk_read,
        "disk_written": usage.disk_written,
        "cache_hit": usage.cache_hit,
        "network_bytes": usage.network_bytes,
        "rtt_ms": usage.rtt_ms,
        "peak_memory": usage.peak_memory,
        "memory": usage.memory_limit,
        "swapped": usage.swap,
        "cores": usage.cores,
        "cpu_utilisation": usage.cpu,
        "cpu_waiting": usage.waiting,
        "cpu_throttled": usage.throttled,
        "cpu_stolen": usage.steal,
        "gpu_utilisation": usage.gpu,
        "gpus": tuple(asdict(gpu) for gpu in usage.gpus),
        "disk": asdict(usage.disk) if usage.disk else None,
        "pipeline": found.pipeline.as_json() if found.pipeline else None,
        "model": asdict(found.training) if found.training != Training() else None,
        "epoch_steps": found.epoch_steps,
        "pauses": asdict(found.pauses) if found.pauses != Pauses() else None,
        "train_s": round(steps.seconds, 3) if steps.seconds is not None else None,
        "wall_s": lines.wall,
        "startup_s": round(found.startup, 3) if found.startup is not None else None,
        "mostly_startup": found.mostly_startup,
        "sampler_cpu": usage.sampler_cpu,
    }


def _unknown(lines: Trace, found: Evidence) -> Iterator[str]:
    """Yield what a reader may miss in the summary, and why it is not there."""
    version = number(lines.header, "version")
    if version is not None and version > VERSION:
        yield f"The trace is of a newer version ({version:g}) than this orch reads ({VERSION}): update orch."
    if lines.skipped > 1:  # the last can be torn by a kill
        yield f"{lines.skipped:,} lines of the trace are no records; they were passed over."
    if found.steps.count is None and lines.samples:
        yield "Steps: they are counted in TensorFlow and Keras alone. The numbers are of the whole run."
    if found.steps.count and found.pipeline is None:
        told = next((str(line["unknown"]) for line in lines.pipelines if "unknown" in line), None)
        yield f"The input's nodes: tf.data told nothing{f' ({told})' if told else ''}."
    if found.short and found.steps.input_wait is not None and found.steps.wait_error:
        yield (
            f"The wait for input is {found.steps.input_wait:.0%} ± {2 * found.steps.wait_error:.0%}, of "
            f"{counted(found.steps.probes, 'step')} that were looked at."
        )
