"""The kinds of disk that a cloud sells for its machines, as data, with their limits and prices."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_GIB = 1 << 30
HOURS_A_MONTH = 730


@dataclass(frozen=True)
class Volume:
    """The requested disk of a machine, besides its size. None: the cloud's default.

    `throughput` is in MiB/s.
    """

    type: str | None = None
    throughput: int | None = None
    iops: int | None = None

    def __bool__(self) -> bool:
        return self != Volume()


AS_MADE = Volume()
"""The cloud's default disk."""


@dataclass(frozen=True)
class Range:
    """From `low` to `high`, both allowed."""

    low: int
    high: int

    def __contains__(self, value: object) -> bool:
        return isinstance(value, int) and self.low <= value <= self.high


@dataclass(frozen=True)
class DiskKind:
    """One kind of disk from which a machine can boot.

    `iops`, `throughput` (MiB/s): the values that may be ordered; None if the cloud derives them from the
    size. `usd_…`: US dollars a month, for each GiB, and for what is ordered above the included amount.
    """

    name: str
    sizes: Range
    usd_gib: float
    iops: Range | None = None
    throughput: Range | None = None
    needs_iops: bool = False
    iops_per_gib: int | None = None
    iops_per_mib: int = 0
    included_iops: int = 0
    included_throughput: int = 0
    usd_iops: float = 0.0
    usd_throughput: float = 0.0
    types: str = ""
    """The pattern of the instance types that can use it; "": all can."""

    def fits(self, instance_type: str) -> bool:
        """Return whether a machine of that type can boot from this kind of disk."""
        return re.match(self.types, instance_type) is not None

    def problems(self, size: int, wanted: Volume) -> Iterator[tuple[str, str]]:
        """Yield each field that the cloud would refuse, with the reason. `size` in bytes."""
        gib = -(-size // _GIB)
        if gib not in self.sizes:
            yield "size", f"a disk of type {self.name} has {self.sizes.low} to {self.sizes.high} GiB"
        if self.needs_iops and wanted.iops is None:
            yield "iops", f"a disk of type {self.name} needs iops; {_spelled(self.iops)}"
        yield from _refused("iops", self.name, wanted.iops, self.iops)
        yield from _refused("throughput", self.name, wanted.throughput, self.throughput, " MiB/s")
        if (
            wanted.iops
            and self.iops_per_gib
            and wanted.iops > max(self.included_iops, gib * self.iops_per_gib)
        ):
            most = gib * self.iops_per_gib
            yield "iops", f"{gib} GiB of type {self.name} have at most {most} IOPS; ask for a larger disk"
        needed = (wanted.throughput or 0) * self.iops_per_mib
        if self.iops and needed > (wanted.iops or self.included_iops):
            yield "throughput", f"{wanted.throughput} MiB/s of type {self.name} need iops: {needed} or more"

    def usd_hour(self, size: int, wanted: Volume) -> float:
        """Return the price of a disk of `size` bytes, in US dollars an hour."""
        iops = max(0, (wanted.iops or 0) - self.included_iops)
        throughput = max(0, (wanted.throughput or 0) - self.included_throughput)
        month = -(-size // _GIB) * self.usd_gib + iops * self.usd_iops + throughput * self.usd_throughput
        return month / HOURS_A_MONTH


@dataclass(frozen=True)
class DiskMarket:
    """The kinds of disk of one cloud, the default first. The prices are those of `priced_in`."""

    kinds: tuple[DiskKind, ...] = ()
    priced_in: str = ""

    def named(self, name: str) -> DiskKind | None:
        return next((kind for kind in self.kinds if kind.name == name), None)

    def chosen(self, wanted: Volume, instance_type: str) -> DiskKind | None:
        """Return the kind of disk that a machine of that type gets; None if the cloud has none that fits."""
        return next((k for k in self.kinds if wanted.type in (None, k.name) and k.fits(instance_type)), None)


NO_DISKS = DiskMarket()


def _refused(
    field: str, name: str, value: int | None, allowed: Range | None, unit: str = ""
) -> Iterator[tuple[str, str]]:
    if value is None:
        return
    if allowed is None:
        yield field, f"the {field} of a disk of type {name} cannot be set; remove it, or choose another type"
    elif value not in allowed:
        yield field, f"{value} is out of range for {name}; {_spelled(allowed)}{unit}"


def _spelled(allowed: Range | None) -> str:
    return f"write {allowed.low} to {allowed.high}" if allowed else ""
