"""What limited a run: by thresholds, each with its reason, the first that applies.

A step that waits for its batch is limited by input, whatever else is true: that is looked at first, after
memory, whose shortage slows all else. GPU, then cores, then disk and network. A run of which steps, waits and
cores are known and none is at its limit was limited by nothing that is measured here.
"""

from __future__ import annotations

from orchestrator.profiling.model import IoSummary
from orchestrator.profiling.usage import Usage

MEMORY_FULL = 0.95
"""Peak memory, of what the run was allowed."""

FAULTS_PER_S = 200.0
"""Pages read back from disk a second, once it trains: memory is short although it never looks full."""

INPUT_WAIT = 0.15
"""Share of a step. Below, a perfect pipeline would gain less than what runs differ by anyhow."""

GPU_BUSY = 0.85
CPU_BUSY = 0.85
"""Of all cores that the run was allowed."""

CPU_WAITING = 0.5
"""Threads that could have run and had no core, on average, for each core."""

THROTTLED = 0.1
"""Seconds a second that a quota kept the run from its cores, for each core."""

ONE_CORE = (0.9, 1.1)
"""Busy cores of a run that does one thing at a time."""

IDLE_CPU = 0.5
DISK_RATE = 50e6
NETWORK_RATE = 50e6
"""Bytes a second; with idle cores, data comes no faster than this and the run waits for it."""


def verdict(summary: IoSummary, usage: Usage) -> tuple[str | None, str | None]:
    """(limited_by, because)."""
    for rule in (_memory, _input, _gpu, _cpu, _transfer):
        found = rule(summary, usage)
        if found is not None:
            return found
    if summary.cpu_utilisation is None:
        return None, "The run was too short, or too little could be measured, to tell what limited it."
    if summary.steps and summary.input_wait is None:
        return (
            None,
            "How long the steps waited for input could not be measured, and nothing else was at its limit.",
        )
    return "nothing", f"Nothing that is measured was at its limit: {_cpu_words(summary, usage)}."


Verdict = tuple[str, str] | None


def _memory(summary: IoSummary, usage: Usage) -> Verdict:
    if usage.faults is not None and usage.faults >= FAULTS_PER_S:
        return "memory", f"Memory was short: {usage.faults:.0f} pages a second were read back from disk."
    if summary.peak_memory is None or not usage.memory_limit:
        return None
    share = summary.peak_memory / usage.memory_limit
    return (
        ("memory", f"At its peak the run held {share:.0%} of the memory.") if share >= MEMORY_FULL else None
    )


def _input(summary: IoSummary, usage: Usage) -> Verdict:
    if summary.input_wait is None or summary.input_wait < INPUT_WAIT:
        return None
    said = f"Steps waited for input for {summary.input_wait:.0%} of their time"
    if _crowded(summary, usage):
        return (
            "input",
            f"{said}, and no core was idle: fewer or cheaper transformations, or more cores, would help.",
        )
    if (usage.reading or 0) >= DISK_RATE:
        return "input", f"{said}, while {usage.reading or 0:.3g} B/s came from the disk and cores were idle."
    if summary.cpu_utilisation is None:
        return "input", f"{said}."
    return "input", f"{said}, while cores were idle: more of it could be done at once, or ahead."


def _gpu(summary: IoSummary, usage: Usage) -> Verdict:
    del usage
    if summary.gpu_utilisation is None or summary.gpu_utilisation < GPU_BUSY:
        return None
    return "gpu", f"The GPU was busy for {summary.gpu_utilisation:.0%} of the time."


def _cpu(summary: IoSummary, usage: Usage) -> Verdict:
    cores = usage.cores or 1
    if usage.throttled is not None and usage.throttled / cores >= THROTTLED:
        return "cpu", f"A quota kept it from its {cores:g} cores for {usage.throttled:.2f} s of each second."
    if _crowded(summary, usage):
        return "cpu", f"The cores were busy: {_cpu_words(summary, usage)}{_waiting_words(usage)}."
    if cores >= 2 and usage.busy is not None and ONE_CORE[0] <= usage.busy <= ONE_CORE[1]:
        return "cpu", f"One of {cores:g} cores was busy: the run does one thing at a time."
    return None


def _transfer(summary: IoSummary, usage: Usage) -> Verdict:
    if summary.cpu_utilisation is None or summary.cpu_utilisation >= IDLE_CPU:
        return None
    if (usage.reading or 0) >= DISK_RATE:
        return "disk", f"Cores were idle while {usage.reading or 0:.3g} B/s came from the disk."
    if (usage.network or 0) >= NETWORK_RATE:
        return "network", f"Cores were idle while {usage.network or 0:.3g} B/s went over the network."
    return None


def _crowded(summary: IoSummary, usage: Usage) -> bool:
    busy = summary.cpu_utilisation is not None and summary.cpu_utilisation >= CPU_BUSY
    waiting = usage.waiting is not None and usage.waiting / (usage.cores or 1) >= CPU_WAITING
    return busy or waiting


def _waiting_words(usage: Usage) -> str:
    """Threads that wait although the run itself leaves cores free: somebody else has them."""
    if usage.waiting is None or usage.waiting / (usage.cores or 1) < CPU_WAITING:
        return ""
    return f" by this run, whose threads waited for a core {usage.waiting:.1f} s in every second"


def _cpu_words(summary: IoSummary, usage: Usage) -> str:
    if summary.cpu_utilisation is None:
        return "how busy the cores were is not known"
    return f"{summary.cpu_utilisation:.0%} of {usage.cores or 1:g} cores"
