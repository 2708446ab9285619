"""Rules that concern several fields of a profile. Pure functions."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from orchestrator.model import AS_MADE, Volume, clouds
from orchestrator.model.cloud_traits import Places
from orchestrator.profile.accept import undirected
from orchestrator.profile.document import Document
from orchestrator.profile.kinds import GIB
from orchestrator.profile.units import show_duration, show_size
from orchestrator.profile.values import FromEnv, is_bucket, nearest

_SECRET_NAME = re.compile(r"(^|_)(TOKEN|KEY|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS?)$|PASSWORD", re.I)
_SECRET_VALUE = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY|\b(AKIA|ASIA)[0-9A-Z]{16}\b|\bgh[pousr]_\w{30}|\bhf_\w{30}"
)
CLOUD_DISK = 10 * GIB
"""The least disk for an image of a cloud, in bytes."""
DEFAULT_LOCAL_DISK = 20 * GIB
DEFAULT_CLOUD_DISK = 100 * GIB


@dataclass(frozen=True)
class Breach:
    """A broken rule, reported at the value of `loc` or at its key. `fix`: the next command, None if the text
    says what to write.
    """

    loc: tuple[str | int, ...]
    text: str
    at_key: bool = False
    fix: str | None = None


def breaches(document: Document) -> list[Breach]:
    return [breach for rule in _RULES for breach in rule(document)]


def _rents(document: Document) -> bool:
    return clouds.is_rented(document.cloud)


def _local_has_no(document: Document) -> Iterator[Breach]:
    if not clouds.is_here(document.cloud):
        return
    if document.resources.spot:
        yield Breach(("resources", "spot"), "only clouds sell spare capacity; remove it, or choose a cloud")
    if document.resources.accelerator:
        text = "a local machine gets no GPU; remove it, or choose a cloud"
        yield Breach(("resources", "accelerator"), text)
    for key in ("local_ssd", "network", "instance_type"):
        if getattr(document.resources, key):
            text = f"a local machine uses the hardware of this computer; remove {key}, or choose a cloud"
            yield Breach(("resources", key), text)
    for key in ("region", "zone", "image", "reservation"):
        if getattr(document, key):
            yield Breach((key,), f"cloud: local has no {key}; remove it, or choose a cloud")


def _deadline(document: Document) -> Iterator[Breach]:
    if _rents(document) and document.max_duration is None:
        text = f"max_duration is required on {_shown(document.cloud)}, so that the machine always ends; "
        yield Breach(("max_duration",), text + "write e.g. max_duration: 4h", at_key=True)


def _enough(document: Document) -> Iterator[Breach]:
    resources = document.resources
    if _rents(document) and not (resources.memory or resources.accelerator or resources.instance_type):
        text = "resources names neither memory nor an accelerator, so the smallest machine would do; "
        yield Breach(("resources",), text + "write e.g. memory: 8 GiB+", at_key=True)
    size = resources.disk.size if resources.disk else None
    if _rents(document) and size is not None and size < CLOUD_DISK:
        yield Breach(("resources", "disk"), f"the clouds' images need at least {show_size(CLOUD_DISK)}")


def volume_of(document: Document) -> Volume:
    """Return the required type, throughput and IOPS of the disk."""
    disk = document.resources.disk
    return Volume(disk.type, disk.throughput, disk.iops) if disk else AS_MADE


def disk_size(document: Document) -> int:
    """Return the size of the disk in bytes, with its default."""
    disk = document.resources.disk
    return (disk.size if disk else None) or (DEFAULT_CLOUD_DISK if _rents(document) else DEFAULT_LOCAL_DISK)


def _disk(document: Document) -> Iterator[Breach]:
    wanted = volume_of(document)
    if not wanted:
        return
    if _one_cloud_only(document):
        yield Breach(("resources", "disk"), f"only its size can be chosen {_one_cloud_only(document)}")
        return
    market = clouds.traits(document.cloud).disks
    known = [kind.name for kind in market.kinds]
    kind = market.named(wanted.type) if wanted.type else None
    if wanted.type and kind is None:
        near = nearest(wanted.type, known)
        advice = f"; did you mean {near}?" if near else ""
        text = f"{document.cloud} has no such disk to boot from; it has {', '.join(known)}{advice}"
        yield Breach(("resources", "disk", "type"), text)
    elif kind is None and not document.resources.instance_type and len({k.types for k in market.kinds}) > 1:
        yield Breach(("resources", "disk"), f"name the type, too: {_either(known)}")
    else:
        chosen = kind or market.chosen(wanted, document.resources.instance_type or "")
        for key, text in chosen.problems(disk_size(document), wanted) if chosen else ():
            yield Breach(("resources", "disk", key), text)


def _one_cloud_only(document: Document) -> str:
    """Refuse settings that belong to one cloud, unless one is named; "" if one is."""
    if document.cloud == clouds.ANY:
        return f"with cloud: any; choose cloud: {_either(clouds.elsewhere())}"
    return "" if _rents(document) and clouds.traits(document.cloud).disks.kinds else f"on {document.cloud}"


def _reservation(document: Document) -> Iterator[Breach]:
    name = document.reservation
    if name is None or clouds.is_here(document.cloud):
        return
    form = None if document.cloud == clouds.ANY else clouds.traits(document.cloud).reservation
    if form is None:
        text = f"a reservation belongs to one cloud; choose cloud: {_either(clouds.elsewhere())}"
        yield Breach(("reservation",), text)
    elif not form.fits(name):
        yield Breach(
            ("reservation",), f"'{name}' is not a reservation of {document.cloud}; write e.g. {form.example}"
        )
    elif document.zone is None:
        yield Breach(("reservation",), "a reservation is in one zone; set `zone` to it")
    elif document.resources.spot:
        yield Breach(("resources", "spot"), "reserved capacity is not spot; remove one of the two")


def _identity(document: Document) -> Iterator[Breach]:
    for cloud, name in document.identity.items():
        form = clouds.traits(cloud).identity
        if form and not form.fits(name):
            text = f"'{name}' is no identity of {cloud}; write its name, e.g. {form.example}"
            yield Breach(("identity", cloud), text)


def _labels(document: Document) -> Iterator[Breach]:
    """Check that labels have a form that all clouds accept."""
    named = clouds.elsewhere() if document.cloud == clouds.ANY else (document.cloud,)
    for cloud in named:
        forms = clouds.traits(cloud).labels
        if forms is None:
            continue
        if len(document.labels) > forms.most:
            yield Breach(("labels",), f"{cloud} takes at most {forms.most} labels beside those of orch")
        for key, value in document.labels.items():
            if not forms.key.fits(key):
                text = f"'{key}' cannot be a label of {cloud}; write e.g. {forms.key.example}"
                yield Breach(("labels", key), text, at_key=True)
            elif not forms.value.fits(value):
                text = (
                    f"'{value}' cannot be the value of a label of {cloud}; write e.g. {forms.value.example}"
                )
                yield Breach(("labels", key), text)


def _gpu(document: Document) -> Iterator[Breach]:
    gpu = document.resources.accelerator
    if gpu and not (gpu.name or gpu.memory):
        text = "says neither which GPU nor how much memory; write e.g. T4, or {memory: 16 GiB+}"
        yield Breach(("resources", "accelerator"), text)


def _region(document: Document) -> Iterator[Breach]:
    if document.cloud == clouds.ANY:
        if document.resources.instance_type:
            text = (
                "machine types have different names on each cloud; choose cloud: "
                f"{_either(clouds.elsewhere())}"
            )
            yield Breach(("resources", "instance_type"), text)
        for key in ("region", "zone", "image"):
            if getattr(document, key):
                text = (
                    f"each cloud has other names for its {key}s; choose cloud: {_either(clouds.elsewhere())}"
                )
                yield Breach((key,), text)
        return
    places = _places(document)
    for number, region in enumerate(regions_of(document)):
        if places and not places.is_region(region):
            text = (
                f"'{region}' is no region of {document.cloud}; its regions look like {places.region_example}"
            )
            yield Breach(("region",) if isinstance(document.region, str) else ("region", number), text)


def _zone(document: Document) -> Iterator[Breach]:
    zone, region, places = document.zone, document.region, _places(document)
    if zone is None or places is None:
        return
    if isinstance(region, tuple):
        yield Breach(("zone",), "a zone is in one region; remove the other regions")
    elif region is not None and places.is_region(region):
        if not places.lies_in(zone, region):
            yield Breach(("zone",), f"zone '{zone}' is not in region '{region}'")
    elif places.region_of(zone) is None:
        text = f"'{zone}' is no zone of {document.cloud}; its zones look like {places.zone_example}"
        yield Breach(("zone",), text)


def _places(document: Document) -> Places | None:
    return None if document.cloud == clouds.ANY else clouds.traits(document.cloud).places


def regions_of(document: Document) -> tuple[str, ...]:
    """Return the regions that the document names, else that of its zone; () if it names neither."""
    places = _places(document)
    if document.region is not None:
        return (document.region,) if isinstance(document.region, str) else document.region
    found = places.region_of(document.zone) if document.zone and places else None
    return (found,) if found else ()


def _secrets(document: Document) -> Iterator[Breach]:
    for name, value in document.train.env.items():
        if isinstance(value, FromEnv) or not value:
            continue
        if _SECRET_NAME.search(name) or _SECRET_VALUE.search(value):
            text = "looks like a secret, which must not be in a profile; "
            yield Breach(("train", "env", name), f"{text}write {name}: {{from_env: {name}}}")


def _buckets(document: Document) -> Iterator[Breach]:
    for index, entry in enumerate(document.data):
        if is_bucket(entry.source) and entry.prepare:
            text = "creates data on this computer, but the source is in a bucket; remove one of the two"
            yield Breach(("data", index, "prepare"), text)
        if entry.sample and not is_bucket(entry.source):
            text = "is for data in a bucket; local data are always complete here; remove it"
            yield Breach(("data", index, "sample"), text)
        if entry.stream and not is_bucket(entry.source):
            text = "is for data in a bucket, which a machine fetches itself; remove it"
            yield Breach(("data", index, "stream"), text)
        if entry.requester_pays and not is_bucket(entry.source):
            text = "is for data in a bucket; remove it"
            yield Breach(("data", index, "requester_pays"), text)
        if entry.stage and is_bucket(entry.source):
            text = "is for data of this computer, but the source is in a bucket already; remove it"
            yield Breach(("data", index, "stage"), text)
        elif entry.stage and not is_bucket(document.store or ""):
            text = "needs a store that machines reach; add store: s3://bucket/prefix, or gs://…"
            yield Breach(("data", index, "stage"), text)


def overlapping(targets: Sequence[str], outputs: Sequence[str]) -> Iterator[Breach]:
    """Find data targets of which one would hide another, and outputs that would be written into data."""
    seen = _Paths()
    for index, target in enumerate(targets):
        if (first := seen.overlapped(target)) is not None:
            text = (
                f"the target '{target}' overlaps '{targets[first]}', that of data[{first}]; choose targets "
                "that do not overlap"
            )
            yield Breach(("data", index, "target"), text)
        seen.add(target, index)
    for number, output in enumerate(outputs):
        if not any(c in output for c in "*?[") and (first := seen.overlapped(output)) is not None:
            text = f"'{output}' overlaps the target of data[{first}]; write results to another folder"
            yield Breach(("train", "outputs", number), text)


class _Paths:
    """A set of normalised paths that finds whether another path equals, contains or is inside one of them."""

    def __init__(self) -> None:
        self._owners: dict[str, int] = {}
        self._holders: dict[str, int] = {}

    def add(self, path: str, index: int) -> None:
        self._owners.setdefault(path, index)
        for parent in self._upwards(path):
            self._holders.setdefault(parent, index)

    def overlapped(self, path: str) -> int | None:
        found = [self._owners[parent] for parent in self._upwards(path) if parent in self._owners]
        found += [self._holders[path]] if path in self._holders else []
        return min(found, default=None)

    @staticmethod
    def _upwards(path: str) -> list[str]:
        return [path, *(str(parent) for parent in PurePosixPath(path).parents)]


def _shown(cloud: str) -> str:
    return "a cloud" if cloud == clouds.ANY else cloud


def _either(names: Sequence[str]) -> str:
    return " or ".join((", ".join(names[:-1]), names[-1])) if len(names) > 1 else names[0]


def _capacity(document: Document) -> Iterator[Breach]:
    wait, patience = document.wait, document.retry.no_capacity
    if wait is not None and patience is not None and wait != patience:
        text = (
            f"`wait` is the same setting, with another value ({show_duration(wait)}); remove one of the two"
        )
        yield Breach(("retry", "no-capacity"), text)


def _accept(document: Document) -> Iterator[Breach]:
    section = document.accept
    if section is None:
        return
    for name in undirected(section.metrics, section.not_worse):
        text = f'which way is better? Give it a limit, too: accept.metrics: {{{name}: ">= 0.9"}} or "<= 0.1"'
        yield Breach(("accept", "not_worse", name), text)


def _notify(document: Document) -> Iterator[Breach]:
    section = document.notify
    if section is not None and section.webhook is None and section.command is None:
        yield Breach(("notify",), "has no recipient: add webhook, command, or both")


_RULES: tuple[Callable[[Document], Iterator[Breach]], ...] = (
    _local_has_no,
    _deadline,
    _enough,
    _disk,
    _reservation,
    _identity,
    _labels,
    _gpu,
    _region,
    _zone,
    _secrets,
    _buckets,
    _capacity,
    _accept,
    _notify,
)
