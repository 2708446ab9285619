"""The resources of this computer, and its single offer."""

from __future__ import annotations

import math
import os
import platform
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from orchestrator.errors import Fault, ProviderError
from orchestrator.model import AcceleratorNeed, Bound, Need, Offer
from orchestrator.model.counted import counted, rounded

INSTANCE_TYPE = "local"
ZONE = "local"
_ARCHITECTURES = {"amd64": "x86_64", "aarch64": "arm64"}


@dataclass(frozen=True)
class Gpu:
    """One GPU; memory in bytes."""

    name: str
    memory: int


@dataclass(frozen=True)
class Computer:
    """`memory` and `disk` in bytes; `disk` is the free space in the folder of machines."""

    cpus: int
    memory: int
    disk: int
    arch: str
    gpus: tuple[Gpu, ...]

    def describe(self) -> str:
        sizes = f"{counted(self.cpus, 'CPU')}, {gib(self.memory)} of memory, {gib(self.disk)} of free disk"
        return f"{sizes}, {', '.join(gpu.name for gpu in self.gpus) or 'no GPU'}, {self.arch}"


def this_computer(state: Path) -> Computer:
    """Return the current facts. `state` need not exist yet."""
    return Computer(
        cpus=len(usable_cpus()),
        memory=min(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), _memory_limit()),
        disk=shutil.disk_usage(_nearest_existing(state)).free,
        arch=architecture(platform.machine()),
        gpus=_gpus(),
    )


def usable_cpus() -> list[int]:
    """Return the numbers of the processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def architecture(name: str) -> str:
    """Return one spelling for each architecture: x86_64, arm64."""
    return _ARCHITECTURES.get(name.lower(), name.lower())


def offer(need: Need, has: Computer) -> Offer:
    """Return an offer of exactly the requested machine. Raises ProviderError(CAPACITY) if it does not fit
    here.
    """
    cpus = _sized(need.cpus, has.cpus)
    memory = _sized(need.memory, has.memory)
    gpus = _matching(need.accelerator, has.gpus)
    if refusals := list(_refusals(need, has, cpus, memory, len(gpus))):
        asked, lowered = zip(*refusals, strict=True)
        raise ProviderError(
            Fault.CAPACITY,
            f"This computer cannot provide that machine. Asked: {', '.join(asked)}. Here: {has.describe()}.",
            code="LocalCapacity",
            next_command=f"in the profile, {', '.join(lowered)}; or choose a cloud",
        )
    return Offer(
        cloud="local",
        instance_type=INSTANCE_TYPE,
        region=ZONE,
        zone=ZONE,
        cpus=cpus,
        memory=memory,
        arch=has.arch,
        price=0.0,
        spot=need.spot,
        accelerator=gpus[0].name if gpus else None,
        accelerator_count=int(need.accelerator.count.value) if need.accelerator else 0,
        gpu_memory=gpus[0].memory if gpus else 0,
    )


def _sized(bound: Bound | None, available: int) -> int:
    return available if bound is None else math.ceil(bound.value)


def _refusals(need: Need, has: Computer, cpus: int, memory: int, gpus: int) -> Iterator[tuple[str, str]]:
    """Yield each request that this computer cannot satisfy, and what to change in the profile."""
    if cpus > has.cpus:
        yield f"CPUs {cpus}", f"lower resources.cpus to {has.cpus}"
    if memory > has.memory:
        yield f"memory {gib(memory)}", f"lower resources.memory to {_below(has.memory)}"
    if need.disk > has.disk:
        yield f"disk {gib(need.disk)}", f"lower resources.disk to {_below(has.disk)}"
    if need.arch and architecture(need.arch) != has.arch:
        yield f"architecture {need.arch}", f"set resources.arch to {has.arch}"
    if need.zone not in (None, ZONE):
        yield f"zone {need.zone}", "remove the zone"
    if not need.is_in(ZONE):
        yield f"region {need.region or ' or '.join(need.regions)}", "remove the region"
    if need.accelerator is not None and gpus < need.accelerator.count.value:
        yield f"accelerator {_wanted(need.accelerator)}", "remove resources.accelerator"


def _below(size: int) -> str:
    """Return the largest whole size that is not larger than `size`, as a profile writes it."""
    return f"{size >> 30} GiB" if size >> 30 else f"{size >> 20} MiB"


def _matching(need: AcceleratorNeed | None, gpus: tuple[Gpu, ...]) -> tuple[Gpu, ...]:
    if need is None:
        return ()
    return tuple(
        gpu
        for gpu in gpus
        if (need.name is None or need.name.lower() in gpu.name.lower().split())
        and (need.memory is None or need.memory.admits(gpu.memory))
    )


def _wanted(need: AcceleratorNeed) -> str:
    memory = f" with {gib(int(need.memory.value))}" if need.memory else ""
    return f"{need.count} × {need.name or 'any GPU'}{memory}"


def _gpus() -> tuple[Gpu, ...]:
    if not Path("/dev/nvidiactl").exists() or not shutil.which("nvidia-smi"):
        return ()
    query = ["nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader,nounits"]
    found = subprocess.run(query, capture_output=True, text=True, timeout=30, check=False)
    rows = [line.rsplit(",", 1) for line in found.stdout.splitlines() if "," in line]
    return tuple(Gpu(name.strip(), int(mebibytes) << 20) for name, mebibytes in rows)


def _memory_limit() -> int:
    """Return the limit of the control group in which this computer may itself run."""
    limits = [1 << 62]
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            limits.append(int(Path(path).read_text()))
        except (OSError, ValueError):  # the file does not exist, or says "max"
            continue
    return min(limits)


def _nearest_existing(path: Path) -> Path:
    return path if path.exists() else _nearest_existing(path.absolute().parent)


def gib(size: int) -> str:
    return f"{rounded(size / (1 << 30), 3)} GiB"
