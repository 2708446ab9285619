"""Everything that the emulated cloud knows, and the settings by which it behaves."""

from __future__ import annotations

import itertools
import re
import secrets
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.clouds.gcp.errors import Json, not_found
from tests.clouds.gcp.facts import Facts, Image, load, region_of
from tests.clouds.gcp.faults import Faults
from tests.clouds.vpc import Network

SYSTEM = "system"
ROOT = "https://www.googleapis.com/compute/v1/"


OPEN: Json = {
    "name": "orch-ssh",
    "network": "default",
    "direction": "INGRESS",
    "priority": 1000,
    "allowed": [{"IPProtocol": "tcp", "ports": ["22"]}],
    "sourceRanges": ["0.0.0.0/0"],
    "targetTags": ["orch"],
}
"""As terraform leaves a project: ssh for machines with the tag."""


@dataclass
class Settings:
    """Delays in seconds, sizes in bytes.

    accept_s: an operation stays PENDING; work_s: and then RUNNING at least; visible_s: until get and list
    show what was created; hostkey_s: from boot until the guest reports its host keys; login_s: until it has
    the users of ssh-keys; startup_s: until it runs the startup-script, which waits for cloud-final and snapd
    (GoogleCloudPlatform/guest-agent#84); soft_off_s: between the power button and the plug when a deadline
    ends an instance; image_s: until an image is stored. machines: whether instances are real.
    quotas: limit by metric, for every region ("*_ALL_REGIONS": the project), or by "region/metric".
    denied: permissions that the caller lacks. networks: by name, each with a subnetwork of that name.
    firewalls: rules of a network by its name. policies: of the organisation, by constraint:
    {"booleanPolicy": {"enforced": true}}. disabled: APIs. enabling_s: how long an API that says that it is
    enabled still refuses; network_s: from then on until Compute Engine has made the network `default`.
    billed: whether a billing account is linked. reservations: specific ones by name, each with zone, type
    and count.
    crowded: by zone, how many instances a placement policy has room for.
    signers: public keys of service accounts by e-mail; clock_ahead_s: by how much its clock is ahead where
    signatures expire. longest_life_s ends a forgotten machine whatever happens to this process.
    """

    project: str = "orch-test"
    number: int = 123456789012
    accept_s: float = 0.05
    work_s: float = 0.15
    visible_s: float = 0.1
    hostkey_s: float = 0.2
    login_s: float = 0.0
    startup_s: float = 0.0
    soft_off_s: float = 2.0
    image_s: float = 0.5
    machines: bool = True
    signers: dict[str, str] = field(default_factory=dict)
    clock_ahead_s: float = 0.0
    guest_cpus: int = 2
    guest_memory: int = 3 << 30
    guest_disk: int = 12 << 30
    longest_life_s: float = 3600.0
    reservations: dict[str, Json] = field(default_factory=dict)
    crowded: dict[str, int] = field(default_factory=dict)
    quotas: dict[str, float] = field(default_factory=dict)
    denied: list[str] = field(default_factory=list)
    networks: list[str] = field(default_factory=lambda: ["default", "orch"])
    firewalls: list[Json] = field(default_factory=lambda: [dict(OPEN)])
    policies: dict[str, Json] = field(default_factory=dict)
    disabled: list[str] = field(default_factory=list)
    enabling_s: float = 0.0
    network_s: float = 0.0
    billed: bool = True


QUOTAS: Mapping[str, float] = {
    "CPUS": 2400,
    "PREEMPTIBLE_CPUS": 2400,
    "INSTANCES": 6000,
    "SSD_TOTAL_GB": 40960,
    "DISKS_TOTAL_GB": 102400,
    "NVIDIA_T4_GPUS": 64,
    "PREEMPTIBLE_NVIDIA_T4_GPUS": 64,
    "NVIDIA_L4_GPUS": 64,
    "PREEMPTIBLE_NVIDIA_L4_GPUS": 64,
    "NVIDIA_A100_GPUS": 64,
    "PREEMPTIBLE_NVIDIA_A100_GPUS": 64,
    "NVIDIA_A100_80GB_GPUS": 64,
    "PREEMPTIBLE_NVIDIA_A100_80GB_GPUS": 64,
    "NVIDIA_V100_GPUS": 64,
    "PREEMPTIBLE_NVIDIA_V100_GPUS": 64,
    "NVIDIA_P100_GPUS": 64,
    "PREEMPTIBLE_NVIDIA_P100_GPUS": 64,
    "NVIDIA_P4_GPUS": 64,
    "PREEMPTIBLE_NVIDIA_P4_GPUS": 64,
    "IN_USE_ADDRESSES": 2300,
}
PROJECT_QUOTAS: Mapping[str, float] = {"GPUS_ALL_REGIONS": 128, "CPUS_ALL_REGIONS": 10000}


class Instance:
    """One instance: `shape` is what the API shows of it; the rest is the cloud's own knowledge."""

    def __init__(self, zone: str, shape: Json, visible_at: float) -> None:
        self.zone = zone
        self.shape = shape
        self.visible_at = visible_at
        self.doomed = False
        self.ending = ""  # "preempted" or "deadline", once the cloud itself ends it
        self.power = threading.RLock()  # held while its machine is started or ended
        self.usage: dict[str, float] = {}
        self.guest_attributes: dict[str, str] = {}
        self.machine: Any = None  # machines.Running, once there is one
        self.serial = ""

    @property
    def name(self) -> str:
        return str(self.shape["name"])

    @property
    def metadata(self) -> dict[str, str]:
        return {item["key"]: item.get("value", "") for item in self.shape["metadata"].get("items", [])}


@dataclass
class OwnImage:
    """An image of this project. `base`: the system in it; `files`: what its disk held."""

    shape: Json
    base: Image
    files: Path | None


class World:
    """One project. `changed` is notified after every change; hold it while reading or changing."""

    def __init__(self, settings: Settings, state: Path) -> None:
        self.settings = settings
        self.state = state
        self.facts: Facts = load()
        self.faults = Faults()
        self.changed = threading.Condition(threading.RLock())
        self.instances: dict[tuple[str, str], Instance] = {}
        self.disks: dict[tuple[str, str], Json] = {}
        self.disk_files: dict[tuple[str, str], Path] = {}  # of disks whose instance is stopped
        self.images: dict[str, OwnImage] = {}
        self.operations: dict[str, Json] = {}
        self.by_request: dict[tuple[str, str], str] = {}
        self.requests: list[Json] = []
        self.enabled_at: dict[str, float] = {}
        self.login_keys: dict[str, dict[str, Json]] = {}
        self.placements: dict[tuple[str, str], Json] = {}  # resource policies, by region and name
        self.rules_at_work: dict[str, str] = {}  # firewall rules by name, with what is being done to them
        self.network = Network()
        self.stopping = threading.Event()
        self._ids = itertools.count(int(time.time() * 1000) << 16)

    @contextmanager
    def change(self) -> Iterator[None]:
        with self.changed:
            yield
            self.changed.notify_all()

    def new_id(self) -> str:
        with self.changed:
            return str(next(self._ids))

    def has_network(self, name: str) -> bool:
        """Whether it is there: Compute Engine makes `default` when its API is enabled, and takes a moment."""
        settings, enabled = self.settings, self.enabled_at.get("compute.googleapis.com", 0.0)
        coming = name == "default" and time.time() < enabled + settings.enabling_s + settings.network_s
        return name in settings.networks and not coming

    def url(self, *parts: str) -> str:
        return ROOT + self.path(*parts)

    def path(self, *parts: str) -> str:
        return "/".join(("projects", self.settings.project, *parts))

    def instance(self, zone: str, name: str) -> Instance:
        """By name or id; ApiError 404 where there is none that can be seen."""
        with self.changed:
            found = self.instances.get((zone, name))
            if found is None and name.isdigit():
                same = (i for i in self.instances.values() if (i.zone, i.shape["id"]) == (zone, name))
                found = next(same, None)
        if found is None or found.visible_at > time.time():
            raise not_found(self.path("zones", zone, "instances", name))
        return found

    def image(self, reference: str) -> OwnImage | None:
        """An image of this project or a public one, by URL or part of one."""
        found = re.search(r"(?:projects/([^/]+)/)?global/images/([^/]+)$", reference)
        if found is not None and found[1] in (None, self.settings.project):
            with self.changed:
                return self.images.get(found[2])
        public = self.facts.image(reference, self.settings.project)
        shape: Json = {"status": "READY", "guestOsFeatures": public.features if public else []}
        return OwnImage(shape, public, None) if public else None

    def visible(self, zone: str) -> list[Json]:
        now = time.time()
        with self.changed:
            found = self.instances.values()
            return [i.shape for i in found if i.zone == zone and i.visible_at <= now]

    def quota(self, region: str) -> list[Json]:
        """Limits and usage, as regions.get and projects.get ("") show them."""
        told = self.settings.quotas
        mine = {
            metric: limit
            for metric, limit in {**told, **_of_region(told, region)}.items()
            if "/" not in metric and metric.endswith("_ALL_REGIONS") != bool(region)
        }
        limits = {**(QUOTAS if region else PROJECT_QUOTAS), **mine}
        with self.changed:
            return [
                {"metric": metric, "limit": float(limit), "usage": self._usage(region, metric)}
                for metric, limit in limits.items()
            ]

    def _usage(self, region: str, metric: str) -> float:
        mine = (i for i in self.instances.values() if not region or region_of(i.zone) == region)
        return float(sum(i.usage.get(metric, 0.0) for i in mine))


def _of_region(quotas: Mapping[str, float], region: str) -> dict[str, float]:
    """Those whose name begins with the region: "us-central1/CPUS"."""
    start = f"{region}/"
    return {name.removeprefix(start): limit for name, limit in quotas.items() if name.startswith(start)}


def timestamp(when: float | None = None) -> str:
    """As Google writes them: 2026-11-21T02:40:00.123-00:00."""
    moment = datetime.fromtimestamp(time.time() if when is None else when, UTC)
    return moment.isoformat(timespec="milliseconds")


def fingerprint() -> str:
    return secrets.token_urlsafe(8)[:11] + "="
