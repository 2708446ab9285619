"""A catalog as files: `<cloud>_types.csv`, `<cloud>_prices.csv`, `gcp_accelerators.csv`, `facts.json`.

Zones are written without their region, separated by `|`. Empty cells are unknown.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterable, Sequence
from datetime import date
from pathlib import Path
from typing import Any

from orchestrator.catalog.rows import Attachable, Catalog, Facts, Sale
from orchestrator.model import Offer

TYPES = (
    "instance_type",
    "cpus",
    "memory_gib",
    "arch",
    "accelerator",
    "count",
    "vendor",
    "gpu_memory_gib",
    "local_ssd_gb",
    "network_gbps",
)
PRICES = ("instance_type", "region", "zones", "price", "spot")
ACCELERATORS = ("attach", "accelerator", "vendor", "gpu_memory_gib", "region", "zones", "price", "spot")
_GIB = 1 << 30


# ---------------------------------------------------------------- reading


def read(folder: Path, cloud: str) -> Catalog:
    """Read the catalog of `cloud` in `folder`. Raises OSError, ValueError or KeyError if it is incomplete."""
    types = _rows(folder / f"{cloud}_types.csv", TYPES)
    sales: dict[str, list[Sale]] = {}
    for name, region, zones, price, spot in _rows(folder / f"{cloud}_prices.csv", PRICES):
        sales.setdefault(name, []).append(_sale(region, zones, price, spot))
    attached = folder / f"{cloud}_accelerators.csv"
    return Catalog(
        cloud=cloud,
        kinds=tuple(_kind(cloud, row) for row in types),
        sales=sales,
        attachable=_attachable(_rows(attached, ACCELERATORS)) if attached.exists() else (),
        facts=read_facts(folder, cloud),
    )


def read_facts(folder: Path, cloud: str) -> Facts:
    facts: dict[str, Any] = json.loads((folder / "facts.json").read_text())[cloud]
    return Facts(
        date.fromisoformat(facts["date"]),
        tuple(facts["sources"]),
        tuple(facts["notes"]),
        {region: date.fromisoformat(day) for region, day in facts["regions"].items()},
        date.fromisoformat(facts["plain"]) if "plain" in facts else None,
    )


def _rows(path: Path, heading: Sequence[str]) -> list[list[str]]:
    with path.open(newline="") as file:
        rows = list(csv.reader(file))
    if not rows or tuple(rows[0]) != tuple(heading):
        raise ValueError(f"{path.name} does not begin with {','.join(heading)}")
    return rows[1:]


def _kind(cloud: str, row: Sequence[str]) -> Offer:
    name, cpus, memory, arch, accelerator, count, vendor, gpu_memory, local_ssd, network = row
    return Offer(
        cloud,
        name,
        region="",
        zone="",
        cpus=int(cpus),
        memory=_bytes(memory, _GIB),
        arch=arch,
        price=0.0,
        accelerator=accelerator or None,
        accelerator_count=int(float(count or 0)),
        gpu_memory=_bytes(gpu_memory, _GIB),
        vendor=vendor,
        local_ssd=_bytes(local_ssd, 10**9),
        network=float(network or 0),
    )


def _bytes(number: str, unit: int) -> int:
    return round(float(number) * unit) if number else 0


def _sale(region: str, zones: str, price: str, spot: str) -> Sale:
    names = tuple(region + zone for zone in zones.split("|")) if zones else ()
    return Sale(region, names, float(price or "nan"), float(spot or "nan"))


def _attachable(rows: Iterable[Sequence[str]]) -> tuple[Attachable, ...]:
    found: dict[tuple[str, str, str, str], list[Sale]] = {}
    for attach, name, vendor, memory, *sale in rows:
        found.setdefault((attach, name, vendor, memory), []).append(_sale(*sale))
    return tuple(
        Attachable(attach, name, vendor, _bytes(memory, _GIB), sales)
        for (attach, name, vendor, memory), sales in found.items()
    )


# ---------------------------------------------------------------- writing


def write(folder: Path, catalog: Catalog) -> None:
    """Write the files of `catalog` to `folder`, which exists. `read` returns an equal catalog."""
    cloud = catalog.cloud
    _write(folder / f"{cloud}_types.csv", TYPES, sorted(_kind_row(kind) for kind in catalog.kinds))
    prices = ([name, *_sale_row(sale)] for name, sales in catalog.sales.items() for sale in sales)
    _write(folder / f"{cloud}_prices.csv", PRICES, sorted(prices))
    if catalog.attachable:
        rows = (
            [gpu.attach, gpu.name, gpu.vendor, _number(gpu.memory / _GIB), *_sale_row(sale)]
            for gpu in catalog.attachable
            for sale in gpu.sales
        )
        _write(folder / f"{cloud}_accelerators.csv", ACCELERATORS, sorted(rows))
    facts = {cloud: _facts_json(catalog.facts)}
    (folder / "facts.json").write_text(json.dumps(facts, indent=1) + "\n")


def _write(path: Path, heading: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(heading)
        writer.writerows(rows)


def _kind_row(kind: Offer) -> list[str]:
    return [
        kind.instance_type,
        str(kind.cpus),
        _number(kind.memory / _GIB),
        kind.arch,
        kind.accelerator or "",
        _number(kind.accelerator_count),
        kind.vendor,
        _number(kind.gpu_memory / _GIB),
        _number(kind.local_ssd / 10**9),
        _number(kind.network),
    ]


def _sale_row(sale: Sale) -> list[str]:
    zones = "|".join(zone.removeprefix(sale.region) for zone in sale.zones)
    return [sale.region, zones, _price(sale.price), _price(sale.spot)]


def _number(value: float) -> str:
    """Format a number as briefly as is exact; 0, which nobody sells, is empty."""
    return f"{value:.10g}" if value else ""


def _price(value: float) -> str:
    return f"{value:.10g}" if math.isfinite(value) else ""


def _facts_json(facts: Facts) -> dict[str, Any]:
    return {
        "date": facts.date.isoformat(),
        **({"plain": facts.plain.isoformat()} if facts.plain else {}),
        "sources": list(facts.sources),
        "notes": list(facts.notes),
        "regions": {region: day.isoformat() for region, day in sorted(facts.regions.items())},
    }
