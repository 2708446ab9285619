"""What this computer has, and the one offer that it makes."""

from __future__ import annotations

import math
import os
import platform
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from orchestrator.errors import Fault, ProviderError
from orchestrator.model import AcceleratorNeed, Bound, Need, Offer
from orchestrator.model.counted import counted

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
    """memory and disk in bytes; disk is what is free where machines are kept."""

    cpus: int
    memory: int
    disk: int
    arch: str
    gpus: tuple[Gpu, ...]

    def describe(self) -> str:
        sizes = f"{counted(self.cpus, 'CPU')}, {gib(self.memory)} of memory, {gib(self.disk)} of free disk"
        return f"{sizes}, {', '.join(gpu.name for gpu in self.gpus) or 'no GPU'}, {self.arch}"


def this_computer(state: Path) -> Computer:
    """The facts as they are now. `state` need not exist yet."""
    return Computer(
        cpus=len(usable_cpus()),
        memory=min(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), _memory_limit()),
        disk=shutil.disk_usage(_nearest_existing(state)).free,
        arch=architecture(platform.machine()),
        gpus=_gpus(),
    )


def usable_cpus() -> list[int]:
    """The processors that this process may use, by number."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def architecture(name: str) -> str:
    """One spelling for each: x86_64, arm64."""
    return _ARCHITECTURES.get(name.lower(), name.lower())


def offer(need: Need, has: Computer) -> Offer:
    """The machine that is asked for, exactly; ProviderError(CAPACITY) where it cannot be had here."""
    cpus = _sized(need.cpus, has.cpus)
    memory = _sized(need.memory, has.memory)
    refusals = [
        *_too_many("CPUs", str(cpus), cpus > has.cpus),
        *_too_many("memory", gib(memory), memory > has.memory),
        *_too_many("disk", gib(need.disk), need.disk > has.disk),
        *_too_many(
            "architecture", str(need.arch), bool(need.arch) and architecture(str(need.arch)) != has.arch
        ),
        *_too_many("zone", str(need.zone), need.zone not in (None, ZONE)),
        *_too_many("region", need.region or " or ".join(need.regions), not need.is_in(ZONE)),
    ]
    gpus = _matching(need.accelerator, has.gpus)
    if need.accelerator is not None and len(gpus) < need.accelerator.count.value:
        refusals.append(f"accelerator {_wanted(need.accelerator)}")
    if refusals:
        raise ProviderError(
            Fault.CAPACITY,
            f"This computer cannot be that machine. Asked: {', '.join(refusals)}. Here: {has.describe()}.",
            code="LocalCapacity",
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


def _too_many(what: str, asked: str, refused: bool) -> list[str]:
    return [f"{what} {asked}"] if refused else []


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
    """The limit of the control group in which this computer may itself be running."""
    limits = [1 << 62]
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            limits.append(int(Path(path).read_text()))
        except (OSError, ValueError):  # absent, or "max"
            continue
    return min(limits)


def _nearest_existing(path: Path) -> Path:
    return path if path.exists() else _nearest_existing(path.absolute().parent)


def gib(size: int) -> str:
    return f"{size / (1 << 30):.3g} GiB"
