"""The content of a catalog: kinds of machines, where they are sold, at what price, and how old that is."""

from __future__ import annotations

import datetime
import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from orchestrator.model import Offer
from orchestrator.model.counted import counted

STALE_DAYS = 30
ATTACHABLE = {
    "T4": {1: (48, 312), 2: (48, 312), 4: (96, 624)},
    "P4": {1: (24, 156), 2: (48, 312), 4: (96, 624)},
    "V100": {1: (12, 78), 2: (24, 156), 4: (48, 312), 8: (96, 624)},
    "P100": {1: (16, 104), 2: (32, 208), 4: (64, 208)},
}
"""The possible numbers of GPUs of an n1 machine, with the maximum CPUs and GiB of memory for each."""
_GIB = 1 << 30


class Sale(NamedTuple):
    """One kind in one region: US dollars an hour, NaN if unknown; `zones` is empty if unknown."""

    region: str
    zones: tuple[str, ...]
    price: float
    spot: float


class Attachable(NamedTuple):
    """A GPU that can be attached to n1 machines; `sales` are for one GPU."""

    attach: str
    name: str
    vendor: str
    memory: int
    sales: Sequence[Sale]


@dataclass(frozen=True)
class Facts:
    """The source of a catalog. `date` is that of its prices; `regions` were refreshed later. `plain`: that
    of machines without accelerators, if it is another one.
    """

    date: datetime.date
    sources: tuple[str, ...]
    notes: tuple[str, ...] = ()
    regions: Mapping[str, datetime.date] = field(default_factory=dict)
    plain: datetime.date | None = None

    def of(self, region: str | None, *, accelerated: bool | None = None) -> datetime.date:
        """Return the date of the prices of `region`, for machines with or without accelerators; the oldest
        date where either is None.
        """
        plain = self.plain or self.date
        others = {True: self.date, False: plain, None: min(self.date, plain)}[accelerated]
        return self.regions.get(region, others) if region else others


@dataclass(frozen=True)
class Catalog:
    """What one cloud sells. Each kind is an Offer without place and price; `sales` are by the name of its
    type.
    """

    cloud: str
    kinds: tuple[Offer, ...]
    sales: Mapping[str, Sequence[Sale]]
    attachable: tuple[Attachable, ...]
    facts: Facts

    @functools.cached_property
    def sold(self) -> Sequence[tuple[Offer, Sequence[Sale] | Attachable]]:
        """Return every kind, and every kind with attached GPUs, with its sales or its attachable GPU."""
        return tuple(self._sold())

    @functools.cached_property
    def whole_regions(self) -> frozenset[str]:
        """Return the regions for which machines without accelerators are recorded too."""
        plain = (self.sales.get(kind.instance_type, ()) for kind in self.kinds if not kind.accelerator)
        return frozenset(sale.region for sales in plain for sale in sales)

    def _sold(self) -> Iterable[tuple[Offer, Sequence[Sale] | Attachable]]:
        for kind in self.kinds:
            yield kind, self.sales.get(kind.instance_type, ())
            if kind.instance_type.startswith("n1-"):
                yield from ((given, gpu) for gpu in self.attachable for given in _given(kind, gpu))

    def sales_of(self, kind: Offer, how: Sequence[Sale] | Attachable) -> Sequence[Sale]:
        """Return where and at what price `kind` is sold, including its attached GPUs."""
        if not isinstance(how, Attachable):
            return how
        bare = {sale.region: sale for sale in self.sales.get(kind.instance_type, ())}
        return [
            _together(bare[gpu.region], gpu, kind.accelerator_count)
            for gpu in how.sales
            if gpu.region in bare
        ]

    def stale(
        self, today: datetime.date, region: str | None = None, *, accelerated: bool | None = None
    ) -> str | None:
        """Return a sentence if the prices are older than 30 days; otherwise None."""
        then = self.facts.of(region, accelerated=accelerated)
        days = (today - then).days
        if days <= STALE_DAYS:
            return None
        command = f"orch catalog refresh {self.cloud}" + (f" --region {region}" if region else "")
        age = counted(days, "day")
        return f"Prices of {self.cloud} are of {then.isoformat()}, {age} old. Renew them: {command}"


@dataclass(frozen=True)
class Told:
    """What a cloud sells now in one region, or in all (`everything`). `sales` are by the name of the type."""

    kinds: Sequence[Offer]
    sales: Mapping[str, Sequence[Sale]]
    sources: tuple[str, ...]
    notes: tuple[str, ...] = ()
    attachable: tuple[Attachable, ...] = ()
    everything: bool = False


def _given(kind: Offer, gpu: Attachable) -> Iterable[Offer]:
    for count, (cpus, memory) in ATTACHABLE.get(gpu.name, {}).items():
        if kind.cpus <= cpus and kind.memory <= memory * _GIB:
            yield replace(
                kind,
                accelerator=gpu.name,
                accelerator_count=count,
                gpu_memory=gpu.memory,
                vendor=gpu.vendor,
                attach=gpu.attach,
            )


def _together(bare: Sale, gpu: Sale, count: int) -> Sale:
    """Add prices; NaN if one of them is unknown."""
    return Sale(
        bare.region,
        gpu.zones,
        round(bare.price + count * gpu.price, 6) if math.isfinite(gpu.price) else math.nan,
        round(bare.spot + count * gpu.spot, 6) if math.isfinite(gpu.spot) else math.nan,
    )
