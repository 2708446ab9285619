"""Convert Cloud Billing's SKUs of Compute Engine to US dollars an hour of cores, memory, GPUs and disks. Pure
functions.

Google bills a machine by its parts: cores, GiB and GPUs, each by family and region.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from orchestrator.catalog.names import accelerator_name

MONTH_HOURS = 730


class Part(NamedTuple):
    """The part that a SKU prices: `what` is core, ram, gpu or disk; `family` is n1, n2d, …, or the GPU's
    name.
    """

    what: str
    family: str
    region: str
    spot: bool


_MACHINE = re.compile(
    r"^(?:Spot Preemptible )?(?:(?P<n1>N1 Predefined Instance)|(?P<c2>Compute optimized(?: Instance)?)"
    r"|(?P<family>A3Plus|A3Ultra|[A-Z][0-9][A-Z]?)(?: AMD| Arm)?(?: Instance)?) (?P<what>Core|Ram) "
    r"running in",
    re.I,
)
_GPU = re.compile(r"^(?:Nvidia )?(.+?) GPU (?:attached to Spot Preemptible VMs )?running in", re.I)
_DISK = re.compile(r"^SSD backed Local Storage(?: attached to Spot Preemptible VMs)?(?: in .*)?$", re.I)
_OTHER = re.compile(
    r"\b(Custom|Commitment|Sole Tenancy|Extended|Premium|Reserved|DWS|Calendar|Upgrade)\b", re.I
)


def parse_skus(skus: Iterable[Mapping[str, Any]]) -> dict[Part, float]:
    """Return the hourly price of every recognised part of a predefined machine; other SKUs are skipped."""
    prices: dict[Part, float] = {}
    for sku in skus:
        category = sku.get("category", {})
        usage = category.get("usageType")
        if usage not in ("OnDemand", "Preemptible") or _OTHER.search(sku["description"]):
            continue
        what = _what(sku["description"], category.get("resourceFamily", ""))
        price = _hourly(sku)
        if what and math.isfinite(price):
            for region in sku.get("serviceRegions", ()):
                prices[Part(*what, region, usage == "Preemptible")] = price
    return prices


def _what(description: str, family: str) -> tuple[str, str] | None:
    if family == "Storage":
        return ("disk", "") if _DISK.match(description) else None
    if gpu := _GPU.match(description):
        return ("gpu", _gpu(gpu[1]))
    if machine := _MACHINE.match(description):
        kind = "n1" if machine["n1"] else "c2" if machine["c2"] else machine["family"].lower()
        return (machine["what"].lower(), kind)
    return None


def _gpu(words: str) -> str:
    """Return the catalog's name: `Tesla T4` → T4, `Tesla A100 80GB` → A100-80GB, `H100 80GB Mega` →
    H100-MEGA.
    """
    bare = re.sub(r"^Tesla ", "", words.strip(), flags=re.I).upper()
    bare = re.sub(r"^(H100|H200) (80GB|141GB)", r"\1", bare)
    return accelerator_name(bare, 0)


def _hourly(sku: Mapping[str, Any]) -> float:
    """Return the price of the last tier: earlier tiers are free allowances."""
    for info in sku.get("pricingInfo", ())[-1:]:
        expression = info["pricingExpression"]
        tiers = expression.get("tieredRates", ())
        if tiers:
            unit = tiers[-1]["unitPrice"]
            price = int(unit.get("units", 0) or 0) + unit.get("nanos", 0) / 1e9
            hours = {"h": 1, "GiBy.h": 1, "GiBy.mo": MONTH_HOURS}.get(expression["usageUnit"], math.nan)
            return float(price / hours)
    return math.nan
