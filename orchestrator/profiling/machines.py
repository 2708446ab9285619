"""Determine the right machine for a run: what it needs, and how long it would take on an offer. Pure.

A run that kept b of c cores busy on average may have used b of them all the time, or all c for a part of it.
The samples cannot tell which. The first is the best case; in the second, the worst, it takes 1 − b/c + b/d
times as long on d cores. Cores are assumed to be equally fast.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from orchestrator.model import AcceleratorNeed, Bound, Need, Offer
from orchestrator.profiling.accelerators import slower
from orchestrator.profiling.devices import Gpu
from orchestrator.profiling.evidence import Evidence
from orchestrator.profiling.machinery import memory_short

WITHIN = 0.1
"""How much longer a run may take on a machine that counts as no slower."""

SPARE_MEMORY = 1.15
SYSTEM_MEMORY = 512 << 20
AS_SOLD = 0.97
GPU_USED = 0.05
"""Mean utilisation from which on a GPU counts as used."""

_MOST_CORES = 512
_GIB = 1 << 30


class Times(NamedTuple):
    """How many times as long a step takes as it did: at best, at worst."""

    best: float
    worst: float


@dataclass(frozen=True)
class Wanted:
    """The least that a machine must have so that the run takes at most `WITHIN` longer, with a reason for
    each part.
    """

    cpus: int
    memory: int
    arch: str | None
    gpus: int
    gpu_memory: int | None
    reasons: tuple[str, ...]

    def need(self, cloud: str, region: str | None, *, spot: bool = False) -> Need:
        """Return the needed machine as a Need for a cloud."""
        memory = Bound(self.gpu_memory, at_least=True) if self.gpu_memory else None
        return Need(
            cloud=cloud,
            cpus=Bound(self.cpus, at_least=True),
            memory=Bound(self.memory, at_least=True),
            accelerator=AcceleratorNeed(Bound(self.gpus), None, memory) if self.gpus else None,
            arch=self.arch,
            spot=spot,
            region=region,
        )


def wanted(evidence: Evidence, *, within: float = WITHIN) -> Wanted | None:
    """Return what a run like this needs; None if that cannot be determined: see `untold`."""
    usage = evidence.usage
    if untold(evidence) is not None or usage.busy is None:
        return None
    fewest = next(
        (cores for cores in range(1, _MOST_CORES) if _by_cores(evidence, cores).worst <= 1 + within), None
    )
    if fewest is None:
        return None
    why = f"{fewest} core{'s' * (fewest > 1)} (it kept {usage.busy:.1f} of {evidence.cores:g} busy)"
    return _with_cores(evidence, fewest, why)


def wanted_besides_cores(evidence: Evidence) -> Wanted | None:
    """Like `wanted`, if only the number of cores is unknown, because other programs used the machine: one
    core then stands for any number.

    None if more is unknown, or nothing is.
    """
    if not _measured(evidence) or not _disturbed(evidence):
        return None
    why = f"{_others(evidence)}; the profile's number stands"
    return _with_cores(evidence, 1, f"a number of cores that cannot be told ({why})")


def _with_cores(evidence: Evidence, cores: int, why: str) -> Wanted:
    gpus = used_gpus(evidence)
    memory, because = _memory(evidence)
    return Wanted(
        cpus=cores,
        memory=memory,
        arch=str(evidence.header["machine"]) if evidence.header.get("machine") else None,
        gpus=len(gpus),
        gpu_memory=_gpu_memory(evidence, gpus),
        reasons=(why, because, *_gpu_reasons(evidence, gpus)),
    )


def untold(evidence: Evidence) -> str | None:
    """Return why it cannot be determined what the run needs; None if it can."""
    found = _untold(evidence)
    return found[0] if found else None


def remedy(evidence: Evidence) -> str | None:
    """Return the command to run so that it can be determined, beside `untold`; None if it already can."""
    found = _untold(evidence)
    return found[1] if found else None


def _untold(evidence: Evidence) -> tuple[str, str] | None:
    """Return why the needed machine cannot be determined, and what to do about it; None if it can."""
    if evidence.short:
        return "the run was too short", "orch train    # 200 steps or 10 s of training are enough"
    if not _measured(evidence):
        return "its cores and memory were not measured", "orch size    # measures a step by itself, here"
    if _disturbed(evidence):
        return _others(evidence), "orch train    # again, while nothing else runs on the machine"
    return None


def _measured(evidence: Evidence) -> bool:
    return not evidence.short and evidence.usage.busy is not None and bool(evidence.usage.peak_memory)


def _disturbed(evidence: Evidence) -> bool:
    return (evidence.crowded or evidence.taken) and not evidence.alone


def _others(evidence: Evidence) -> str:
    return f"others on the machine kept {evidence.others:.1f} of its cores busy"


def times_on(evidence: Evidence, offer: Offer) -> Times | None:
    """Return how many times as long a step takes on `offer`; None if its GPU cannot be compared."""
    cores = _by_cores(evidence, offer.cpus)
    gpus = used_gpus(evidence)
    if not gpus:
        return cores
    ratio = slower(gpus[0].name, offer.accelerator) if offer.accelerator else None
    if ratio is None:
        return None
    busy = max(gpu.utilisation or 0.0 for gpu in gpus)
    return Times(*(busy * gpu + (1 - busy) * core for gpu, core in zip(ratio, cores, strict=True)))


def right(
    evidence: Evidence, offers: Iterable[Offer], *, within: float = WITHIN
) -> tuple[Offer, Times] | None:
    """Return the cheapest of `offers` on which the run would take at most `within` longer, even at worst."""
    own = [offer for offer in offers if math.isfinite(offer.price) and not offer.burstable]
    fit = [(offer, times) for offer in own if (times := times_on(evidence, offer)) is not None]
    kept = [(offer, times) for offer, times in fit if times.worst <= 1 + within]
    return min(kept, key=lambda each: (each[0].price, each[1].worst, each[0].instance_type), default=None)


def used_gpus(evidence: Evidence) -> tuple[Gpu, ...]:
    """Return the GPUs that were used."""
    return tuple(gpu for gpu in evidence.usage.gpus if (gpu.utilisation or 0.0) >= GPU_USED)


def _by_cores(evidence: Evidence, cores: float) -> Times:
    """Return how many times as long a step takes with so many cores instead of those that it had."""
    had, busy = evidence.cores, min(evidence.usage.busy or 0.0, evidence.cores)
    at_once = 1 - busy / had + busy / cores
    return Times(at_once, 1.0) if cores >= had else Times(max(1.0, busy / cores), at_once)


def _memory(evidence: Evidence) -> tuple[int, str]:
    short = memory_short(evidence)
    if short is not None:
        return int(short.amount), f"{short.words['memory']} of memory (it was short)"
    peak = evidence.usage.peak_memory or 0
    needed = math.ceil((peak * SPARE_MEMORY + SYSTEM_MEMORY) / (_GIB / 2)) * (_GIB // 2)
    return needed, f"{needed / _GIB:g} GiB of memory (its peak was {peak / _GIB:.2f} GiB)"


def _gpu_memory(evidence: Evidence, gpus: tuple[Gpu, ...]) -> int | None:
    """Return the GPU memory that is needed. If TensorFlow took all of it at once, the need is not known: it
    is then what there was.

    Drivers and clouds differ by a few per cent in how they count what the hardware keeps for itself.
    """
    if evidence.training.growth:
        return max((int((gpu.memory or 0) * 1.1) for gpu in gpus), default=0) or None
    return max((int((gpu.memory_total or 0) * AS_SOLD) for gpu in gpus), default=0) or None


def _gpu_reasons(evidence: Evidence, gpus: tuple[Gpu, ...]) -> Iterator[str]:
    if not gpus:
        if evidence.usage.gpus:
            yield "no GPU (the one that there was did nothing)"
        return
    memory = _gpu_memory(evidence, gpus) or 0
    how = "its peak, and a tenth" if evidence.training.growth else "as now: TensorFlow took all there was"
    yield f"{len(gpus)} GPU{'s' * (len(gpus) > 1)} with {memory / _GIB:.1f} GiB ({how})"
