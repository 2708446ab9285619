"""Derive the minimum of each resource from what a training needs, each with its reason. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass

from orchestrator.model.counted import rounded
from orchestrator.sizing.model import Model

GIB = 1 << 30

SYSTEM = GIB // 2
"""Main memory that the machine's system uses itself."""

HEADROOM = 1.1
"""Factor on the main memory that steps were seen to use, for validation, checkpoints and gaps. Estimated."""

CUDA_HOST = 5 * GIB // 2
"""Additional main memory of a process with CUDA's libraries and a context. Estimated."""

CUDA_DEVICE = 3 * GIB // 4
"""GPU memory of a context, kernels and libraries, which TensorFlow's allocator does not count. Estimated."""

FRAGMENTS = 1.1
"""GPU memory that the allocator needs, relative to what it has in use: it cannot use every gap."""

SYSTEM_DISK = 10 * GIB
GPU_SYSTEM_DISK = 75 * GIB
"""Size of an image's own files; images with drivers and CUDA are much larger. Estimated."""

CHECKPOINTS = 3
"""Copies of weights and slots that a run is assumed to leave."""

STACK_COPIES = 2
"""The packages exist twice: as they were delivered, and as they are installed."""

FASTER = 80.0
"""Seconds of one CPU core that correspond to a second of a small GPU (T4). Estimated."""

_ROUND_DISK = 5 * GIB
_FEWEST_CPUS = 2


@dataclass(frozen=True)
class Files:
    """Bytes on the machine's disk: the environment's packages, the code, the data; None: not known."""

    stack: int | None
    code: int
    data: int


@dataclass(frozen=True)
class Minimum:
    """The minimum of one resource. `key`: cpus, memory, accelerator.memory or disk; `amount`: a count or
    bytes; `estimated`: not measured, but estimated for a machine of another kind.
    """

    key: str
    amount: int
    reason: str
    estimated: bool = False

    @property
    def text(self) -> str:
        """The minimum as a profile writes it."""
        if self.key == "cpus":
            return f"{self.amount}+"
        size = f"{self.amount / GIB:g} GiB"
        return size if self.key == "disk" else f"{size}+"


def minimums(model: Model, batch: int, files: Files, *, gpu: bool) -> tuple[Minimum, ...]:
    """Return the minimums for steps of `batch` examples, on a machine with or without a GPU."""
    found = [_cpus(model, batch, gpu=gpu)]
    device = _device_memory(model, batch) if gpu else None
    found.append(_memory_beside_gpu(model, batch) if gpu else _memory(model, batch))
    if device:
        found.append(device)
    found.append(_disk(model, files, GPU_SYSTEM_DISK if gpu else SYSTEM_DISK))
    return tuple(found)


def _memory(model: Model, batch: int) -> Minimum:
    held = model.held.at(batch)
    reason = (
        f"the process holds {_gib(held.value)} at batch {batch} (up to {_gib(held.high)}), "
        "10% more to spare, the system 0.5 GiB"
    )
    need = held.high * HEADROOM + SYSTEM
    return Minimum("memory", _whole(need), reason, estimated=model.measured.gpu is not None)


def _memory_beside_gpu(model: Model, batch: int) -> Minimum:
    held = model.held.at(batch)
    device = model.device(batch)
    if model.measured.gpu is not None or device is None:
        need = held.high * HEADROOM + SYSTEM
        reason = f"the process holds {_gib(held.value)} beside the GPU, 10% more to spare, the system 0.5 GiB"
        return Minimum("memory", _whole(need), reason)
    beside = max(float(model.measured.base), held.high - device.value)
    reason = f"{_gib(beside)} that stay in main memory, 2.5 GiB of CUDA's libraries, 0.5 GiB of the system"
    need = beside * HEADROOM + CUDA_HOST + SYSTEM
    return Minimum("memory", _whole(need), reason, estimated=True)


def _device_memory(model: Model, batch: int) -> Minimum | None:
    device = model.device(batch)
    if device is None:
        return None
    need = device.high * FRAGMENTS + CUDA_DEVICE
    reason = (
        f"a step's peak is {_gib(device.value)} at batch {batch} (up to {_gib(device.high)}), "
        "10% for gaps, 0.75 GiB for CUDA"
    )
    return Minimum("accelerator.memory", _whole(need), reason, estimated=model.measured.gpu is None)


def _cpus(model: Model, batch: int, *, gpu: bool) -> Minimum:
    spent = model.pipeline_cpu(batch)
    if spent is None:
        return Minimum("cpus", _FEWEST_CPUS, "how long the input takes could not be measured", estimated=True)
    made = f"making a batch of {batch} takes {spent:.2g} s of a core"
    pipeline = model.measured.pipeline
    if pipeline is not None and pipeline.one_thread:
        said = f"{made}, in one Python thread: more would not make it faster, workers or tf.data would"
        return Minimum("cpus", _FEWEST_CPUS, said, estimated=model.measured.gpu is None and gpu)
    if model.measured.gpu is not None or not gpu:
        step = model.seconds.at(batch).value
        cores = math.ceil(spent / step) if step else 1
        where = "of the GPU" if model.measured.gpu else "here"
        said = f"{made}, a step {where} {step:.2g} s"
        return Minimum("cpus", max(_FEWEST_CPUS, cores + (1 if gpu else 0)), said)
    step = model.cpu.at(batch).value / FASTER
    cores = math.ceil(spent / step) if step else 1
    reason = f"{made}, a step on a small GPU about {step:.2g} s; one core more for the step itself"
    return Minimum("cpus", max(_FEWEST_CPUS, min(cores + 1, 96)), reason, estimated=True)


def _disk(model: Model, files: Files, system: int) -> Minimum:
    stack = (files.stack or 0) * STACK_COPIES
    outputs = model.kept() * CHECKPOINTS
    parts = [
        f"system {_gib(system)}",
        f"stack {_gib(stack)}" if files.stack else "stack not known",
        f"code and data {_gib(files.code + files.data)}",
        f"outputs {_gib(outputs)} ({CHECKPOINTS} checkpoints)",
    ]
    need = system + stack + files.code + files.data + outputs
    amount = math.ceil(need / _ROUND_DISK) * _ROUND_DISK
    return Minimum("disk", amount, ", ".join(parts), estimated=True)


def _whole(need: float) -> int:
    """Round up to sizes that machines are sold with: multiples of half a GiB up to four, then whole ones."""
    unit = GIB // 2 if need <= 4 * GIB else GIB
    return math.ceil(need / unit) * unit


def _gib(size: float) -> str:
    if size < 0.01 * GIB:
        return f"{rounded(size / (1 << 20), 2)} MiB"
    return f"{rounded(size / GIB, 3)} GiB"
