"""Preconditions of advice about the machine, the GPU and the loop around the steps."""

from __future__ import annotations

import math
import re
from collections.abc import Callable

from orchestrator.model.counted import counted, rounded
from orchestrator.profiling.advice import Ground
from orchestrator.profiling.devices import Gpu
from orchestrator.profiling.evidence import Evidence
from orchestrator.profiling.inputs import starved, waits
from orchestrator.profiling.limits import (
    FAULTS_PER_S,
    GPU_BUSY,
    MEMORY_FULL,
    ONE_THREAD_WAITS,
    STOLEN,
    SWAPPING,
    THROTTLED,
    one_thread,
    others_have_the_cores,
    paused,
)

STEPS_AT_ONCE = 32
BETWEEN = 0.1
"""Share of a step between two calls, above which fewer calls are worthwhile."""

GROWN = 256 << 20
"""Bytes by which memory must have grown: libraries and buffers explain less."""

SOME_EPOCHS = 2

SMALL_STEP = 0.01
"""Seconds of a step, below which the call itself may take most of the time."""

CROWD = 1.0
"""Threads that could run but have no core, for each core."""

GPU_IDLE = 0.5
ROOM = 0.45
"""Share of the GPU's memory, up to which twice the batch is certain to fit."""

TENSOR_CORES = r"\b(T4|V100|A2|A10G?|A30|A40|A100|L4|L40S?|H100|H200|B200|GB200|RTX)\b"
"""GPUs with units for half precision, by the names that their driver reports."""

_GIB = 1 << 30


def idle_gpu(evidence: Evidence) -> Ground | None:
    names = evidence.header.get("gpus")
    if not isinstance(names, list) or not names or evidence.training.gpus != 0:
        return None
    return Ground(
        f"The machine has a GPU ({names[0]}), and TensorFlow does not see it: all of it ran on cores."
    )


# ---------------------------------------------------------------- memory and cores


def memory_short(evidence: Evidence) -> Ground | None:
    usage = evidence.usage
    held = (usage.peak_memory or 0) + (usage.swap or 0)
    reason = None
    if (usage.swapping or 0) >= SWAPPING and usage.swap:
        reason = f"{rounded(usage.swap / _GIB, 2)} GiB of it were swapped out"
    elif evidence.steps.count and (usage.faults or 0) >= FAULTS_PER_S:
        reason = f"{usage.faults or 0:.0f} pages a second were read back from disk"
    elif usage.memory_limit and held >= MEMORY_FULL * usage.memory_limit:
        reason = f"at its peak it held {held / usage.memory_limit:.0%} of the memory"
    if reason is None:
        return None
    wanted = math.ceil(1.25 * max(held, usage.memory_limit or 0) / _GIB)
    return Ground(f"Memory was short: {reason}.", words={"memory": f"{wanted} GiB"}, amount=wanted * _GIB)


def keeps_growing(evidence: Evidence) -> Ground | None:
    """Memory grows from epoch to epoch, until the end, and no buffer of the pipeline explains it."""
    growing, seconds = evidence.usage.growing, evidence.steps.seconds
    if not growing or not seconds or growing * seconds < GROWN or evidence.pauses.passes < SOME_EPOCHS:
        return None
    if evidence.pipeline is not None and any("Cache" in node.name for node in evidence.pipeline.nodes):
        return None
    limit, peak = evidence.usage.memory_limit, evidence.usage.peak_memory or 0
    full = (
        f"; its {rounded(limit / _GIB, 3)} GiB are full in {_time((limit - peak) / growing)} more"
        if limit
        else ""
    )
    grew = f"{rounded(growing / (1 << 20), 3)} MiB a second"
    return Ground(
        f"Memory grew by {grew} from the first step to the last{full}.",
        amount=growing,
    )


def _time(seconds: float) -> str:
    if seconds >= 5400:
        return f"{seconds / 3600:.1f} hours"
    return counted(max(1, round(seconds / 60)), "minute")


def held_by_quota(evidence: Evidence) -> Ground | None:
    share = (evidence.usage.throttled or 0) / evidence.cores
    if share < THROTTLED:
        return None
    return Ground(f"A quota kept it from its cores for {share:.0%} of the time.", amount=min(share, 0.95))


def stolen(evidence: Evidence) -> Ground | None:
    share = (evidence.usage.steal or 0) / evidence.cores
    if share < STOLEN:
        return None
    return Ground(
        f"Other machines on the same host took {share:.0%} of its cores from it.", amount=min(share, 0.95)
    )


def _without_share(evidence: Evidence, ground: Ground) -> float | None:
    return evidence.step * (1 - ground.amount) if evidence.step else None


def other_programs(evidence: Evidence) -> Ground | None:
    return Ground(because) if (because := others_have_the_cores(evidence)) else None


after_quota = after_steal = _without_share


def too_few_cores(evidence: Evidence) -> Ground | None:
    """Steps wait for input, and no core is idle that could make it faster."""
    if not (starved(evidence) and evidence.crowded and evidence.alone):
        return None
    if not evidence.core_seconds or not evidence.compute:
        return None
    wanted = math.ceil(evidence.core_seconds / evidence.compute)
    if wanted <= evidence.cores:
        return None
    return Ground(
        f"{waits(evidence)}, and no core is idle: a step takes {evidence.core_seconds * 1000:.3g} ms of the "
        f"cores' time, and {evidence.compute * 1000:.3g} ms where it need not wait.",
        words={"cores": str(wanted)},
        amount=wanted,
    )


def after_cores(evidence: Evidence, ground: Ground) -> float | None:
    if evidence.compute is None or evidence.core_seconds is None:
        return None
    return max(evidence.compute, evidence.core_seconds / ground.amount)


def oversubscribed(evidence: Evidence) -> Ground | None:
    """The run's own threads make each other wait; no other program uses the machine."""
    usage = evidence.usage
    if usage.waiting is None or usage.busy is None or usage.machine_busy is None:
        return None
    if usage.waiting / evidence.cores < CROWD or not evidence.alone:
        return None
    return Ground(
        f"{usage.busy + usage.waiting:.1f} threads on average wanted {counted(evidence.cores, 'core')}, all "
        "of this run.",
        amount=evidence.cores,
    )


# ---------------------------------------------------------------- the loop and the GPU


def python_between_steps(evidence: Evidence) -> Ground | None:
    gap, step = evidence.steps.gap, evidence.step
    if gap is None or not step or evidence.training.steps_per_execution != 1 or gap / step < BETWEEN:
        return None
    if evidence.training.eager or paused(evidence) is not None:
        return None
    return Ground(
        f"{gap / step:.0%} of the time passes between two steps ({gap * 1e6:.0f} µs each): callbacks, logs "
        "and Keras' own loop.",
        amount=gap,
    )


def after_steps_at_once(evidence: Evidence, ground: Ground) -> float | None:
    return evidence.step - ground.amount * (1 - 1 / STEPS_AT_ONCE) if evidence.step else None


def much_calling(evidence: Evidence) -> Ground | None:
    """The graphs are so small that calling them takes more time than computing."""
    step, training = evidence.step, evidence.training
    if not _calls_much(evidence) or training.eager or evidence.pauses.source != "fit":
        return None
    if training.steps_per_execution != 1 or python_between_steps(evidence) or not step or step > SMALL_STEP:
        return None
    return Ground(
        f"A step takes {step * 1000:.2g} ms, and the thread that calls it is at work for "
        f"{evidence.pauses.thread:.0%} of the time: calling takes longer than computing."
    )


def eager_fit(evidence: Evidence) -> Ground | None:
    """`fit` runs the step operation by operation, and Python takes the time."""
    if not evidence.training.eager or not _calls_much(evidence):
        return None
    return Ground(
        "The model was compiled with run_eagerly=True: Python calls every operation of a step by itself, "
        f"which keeps one thread at work for {evidence.pauses.thread:.0%} of the time."
    )


def eager_loop(evidence: Evidence) -> Ground | None:
    if evidence.pauses.source != "eager" or not _calls_much(evidence):
        return None
    return Ground(
        "The loop trains operation by operation, called from Python, which keeps one thread at work for "
        f"{evidence.pauses.thread:.0%} of the time."
    )


def _calls_much(evidence: Evidence) -> bool:
    little = (evidence.steps.input_wait or 0.0) < ONE_THREAD_WAITS
    return one_thread(evidence) and little and paused(evidence) is None


def pause_for(kind: str) -> Callable[[Evidence], Ground | None]:
    """Return the precondition that, for this reason, most of the training's time passed without a step."""

    def ground(evidence: Evidence) -> Ground | None:
        found = paused(evidence)
        if found is None or found[0] != kind:
            return None
        what = _PAUSES[kind]
        return Ground(f"{found[1]:.0%} of the training's time {what}.", amount=found[1])

    return ground


_PAUSES = {
    "validation": "is validation's",
    "callbacks": "is callbacks', and no step is made meanwhile",
    "first batch": "is waiting for the first batch of an epoch, as a shuffle buffer that fills makes it",
    "script": "is the script's own code between two steps, and nothing trains meanwhile",
}


def full_precision(evidence: Evidence) -> Ground | None:
    gpu = _used(evidence)
    if gpu is None or evidence.training.policy != "float32" or (gpu.utilisation or 0) < GPU_BUSY:
        return None
    if not re.search(TENSOR_CORES, gpu.name):
        return None
    return Ground(
        f"The {gpu.name} is busy for {gpu.utilisation:.0%} of the time and computes in float32, although it "
        "has units for float16."
    )


def halves_on_cpu(evidence: Evidence) -> Ground | None:
    if evidence.training.policy != "mixed_float16" or evidence.training.gpus != 0:
        return None
    return Ground(
        "It computes in float16 and no GPU is used: processors convert every number forth and back."
    )


def small_batches(evidence: Evidence) -> Ground | None:
    gpu, batch = _used(evidence), evidence.batch
    if gpu is None or batch is None or starved(evidence) or evidence.steps.input_wait is None:
        return None
    if gpu.utilisation is None or gpu.utilisation >= GPU_IDLE or not evidence.training.growth:
        return None
    if not gpu.memory or not gpu.memory_total or gpu.memory > ROOM * gpu.memory_total:
        return None
    return Ground(
        f"The {gpu.name} is busy for {gpu.utilisation:.0%} of the time, does not wait for input, and "
        f"{gpu.memory / gpu.memory_total:.0%} of its memory are used.",
        words={"batch": str(2 * batch), "now": str(batch)},
        amount=2.0 * batch,
    )


def shared_gpu(evidence: Evidence) -> Ground | None:
    gpu = _used(evidence)
    if gpu is None or evidence.training.growth is not False or evidence.steps.processes < 2:
        return None
    if not gpu.memory or not gpu.memory_total or gpu.memory < 0.9 * gpu.memory_total:
        return None
    return Ground(
        f"{evidence.steps.processes} processes train on the {gpu.name}, and the first of them takes all of "
        "its memory at once."
    )


def _used(evidence: Evidence) -> Gpu | None:
    """Return the busiest GPU if TensorFlow uses one."""
    if not evidence.training.gpus:
        return None
    return max(evidence.usage.gpus, key=lambda gpu: gpu.utilisation or 0, default=None)
