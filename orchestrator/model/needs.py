"""What a profile needs from a cloud, and what clouds offer."""

from __future__ import annotations

import re
from dataclasses import dataclass

from .disks import AS_MADE, Volume

_BURSTABLE = re.compile(r"t\d[a-z]?\.|e2-(micro|small|medium)$|f1-micro$|g1-small$")
"""Types whose CPU cores are shared or limited by credits, by the clouds' names."""

_BEFORE_TURING = frozenset({"V100", "P100", "P40", "P4", "M60", "M4000", "K80", "K520"})
"""GPUs of the generations Kepler to Volta, by the catalogs' names without the size of their memory."""


def is_before_turing(gpu: str) -> bool:
    """Return whether the GPU is older than Turing, so that NVIDIA's open kernel modules and CUDA 13 do
    not support it.
    """
    return gpu.upper().partition("-")[0] in _BEFORE_TURING


@dataclass(frozen=True)
class Bound:
    """A requested number: exactly `value`, or at least `value` if `at_least`."""

    value: float
    at_least: bool = False

    def admits(self, offered: float) -> bool:
        return offered >= self.value if self.at_least else offered == self.value

    def __str__(self) -> str:
        """Format the number as a profile writes a count: `4`, or `4+`."""
        return f"{self.value:g}{'+' if self.at_least else ''}"


@dataclass(frozen=True)
class AcceleratorNeed:
    """GPUs, by name (`T4`) or by memory of each (bytes), and how many."""

    count: Bound = Bound(1)
    name: str | None = None
    memory: Bound | None = None


@dataclass(frozen=True)
class Need:
    """What a profile needs from a cloud. None: no requirement."""

    cloud: str
    cpus: Bound | None = None
    memory: Bound | None = None
    disk: int = 20 << 30
    accelerator: AcceleratorNeed | None = None
    arch: str | None = None
    spot: bool = False
    region: str | None = None
    zone: str | None = None
    max_price: float | None = None
    """US dollars an hour for each machine."""
    nodes: int = 1
    """How many such machines are wanted together."""
    prefer: str | None = None
    """The region whose offers come first, whatever they cost: the first of `regions`, else the user's
    default region.
    """
    regions: tuple[str, ...] = ()
    """Only these regions, if `region` is None; () for any."""
    local_ssd: int | None = None
    """Least bytes of SSD inside the machine."""
    network: float | None = None
    """Least Gbit/s."""
    image: str | None = None
    """The image that the machine boots, by its name at the cloud; None: the one that fits the offer."""
    instance_type: str | None = None
    """Exactly this type, by the cloud's name."""
    volume: Volume = AS_MADE
    reservation: str | None = None
    """Reserved capacity of the account, by the cloud's name for it."""
    identity: str | None = None
    """The cloud identity of the machine itself; None: it has none."""

    def is_in(self, region: str) -> bool:
        """Return whether a region is one of those that are asked for."""
        return (
            region in self.regions if self.region is None and self.regions else self.region in (None, region)
        )


@dataclass(frozen=True)
class Place:
    """The cloud, zone and instance type of a machine."""

    cloud: str
    instance_type: str
    zone: str


@dataclass(frozen=True)
class Offer:
    """What a cloud sells: one instance type in one zone at one price. Sizes in bytes.

    `zone` is "" if it is not recorded which zones of the region have the type: the cloud then decides.
    """

    cloud: str
    instance_type: str
    region: str
    zone: str
    cpus: int
    memory: int
    arch: str
    price: float
    spot: bool = False
    accelerator: str | None = None
    accelerator_count: int = 0
    """Whole accelerators; 0 together with a name if the type has a fraction of one."""
    gpu_memory: int = 0
    vendor: str = ""
    """The vendor of the accelerator: nvidia, amd, aws, …; "" if it is not recorded."""
    attach: str = ""
    """The cloud's name of the accelerator that the create call must attach; "" if the type includes it."""
    local_ssd: int = 0
    network: float = 0.0
    """Gbit/s that the type sustains; 0 if that is not recorded."""
    on_demand: float | None = None
    """For a spot offer: the price of the same machine on demand, if it is known."""
    price_is_bound: bool = False
    """`price` is an upper limit, not the current price: a spot offer without a recorded price."""

    @property
    def place(self) -> Place:
        return Place(self.cloud, self.instance_type, self.zone)

    @property
    def burstable(self) -> bool:
        """Whether its CPU cores are shared or limited by credits, so that it is unsuited to long training."""
        return _BURSTABLE.match(self.instance_type) is not None
