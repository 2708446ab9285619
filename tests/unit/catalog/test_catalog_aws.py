"""What EC2 and the price list answer becomes a catalog: real answers' shapes, and facts known otherwise."""

from __future__ import annotations

import math
from copy import deepcopy
from dataclasses import replace
from datetime import UTC, date, datetime
from typing import Any

import pytest
from moto.ec2.models.instance_types import INSTANCE_TYPES

from orchestrator.catalog import aws
from orchestrator.catalog.keeping import SHIPPED
from orchestrator.catalog.names import accelerator_name
from orchestrator.catalog.renewing import merged
from orchestrator.catalog.rows import Catalog, Facts, Sale
from orchestrator.catalog.tables import read
from orchestrator.model import Offer

GIB = 1 << 30
SHIPPED_AWS = read(SHIPPED, "aws")
KINDS = {kind.instance_type: kind for each in INSTANCE_TYPES.values() if (kind := aws.parse_type(each))}


def test_a_type_in_full() -> None:
    assert KINDS["g4dn.xlarge"] == Offer(
        "aws",
        "g4dn.xlarge",
        "",
        "",
        4,
        16 * GIB,
        "x86_64",
        0.0,
        accelerator="T4",
        accelerator_count=1,
        gpu_memory=16 * GIB,
        vendor="nvidia",
        local_ssd=125 * 10**9,
        network=5.0,
    )


def test_the_answers_agree_with_the_shipped_catalog() -> None:
    """Two sources of the same facts: EC2's own answers, and what karpenter wrote down of them."""
    both = [(KINDS[kind.instance_type], kind) for kind in SHIPPED_AWS.kinds if kind.instance_type in KINDS]
    assert len(both) > 400
    named = [
        (asked.instance_type, asked.accelerator, kind.accelerator)
        for asked, kind in both
        if asked.vendor == "nvidia" == kind.vendor and asked.accelerator != kind.accelerator
    ]
    assert named == []
    other = [
        asked.instance_type
        for asked, kind in both
        if (asked.cpus, asked.memory, asked.arch, asked.local_ssd)
        != (kind.cpus, kind.memory, kind.arch, kind.local_ssd)
    ]
    assert len(other) <= len(both) * 0.02, other


@pytest.mark.parametrize(
    ("name", "accelerator", "count", "vendor"),
    [
        ("p4de.24xlarge", "A100-80GB", 8, "nvidia"),
        ("p4d.24xlarge", "A100", 8, "nvidia"),
        ("g5g.xlarge", "T4G", 1, "nvidia"),
        ("inf1.xlarge", "INFERENTIA", 1, "aws"),
        ("m5.large", None, 0, ""),
    ],
)
def test_accelerators(name: str, accelerator: str | None, count: int, vendor: str) -> None:
    kind = KINDS[name]
    assert (kind.accelerator, kind.accelerator_count, kind.vendor) == (accelerator, count, vendor)


def test_a_part_of_a_gpu_counts_none_and_an_unfit_type_is_left_out() -> None:
    part: dict[str, Any] = deepcopy(INSTANCE_TYPES["g6.xlarge"])
    part["GpuInfo"]["Gpus"][0] |= {"GpuPartitionSize": 0.125, "MemoryInfo": {"SizeInMiB": 2861}, "Count": 1}
    kind = aws.parse_type(part)
    assert kind and (kind.accelerator, kind.accelerator_count, kind.gpu_memory) == ("L4", 0, 2861 << 20)
    assert not [name for name in KINDS if name.startswith("mac")]
    assert aws.parse_type({**part, "SupportedUsageClasses": ["capacity-block"]}) is None


@pytest.mark.parametrize(
    ("given", "memory", "name"),
    [
        ("nvidia-tesla-t4", 0, "T4"),
        ("nvidia-h100-80gb", 0, "H100"),
        ("nvidia-h100-mega-80gb", 0, "H100-MEGA"),
        ("nvidia-h200-141gb", 0, "H200"),
        ("nvidia-a100-80gb", 0, "A100-80GB"),
        ("nvidia-tesla-a100", 0, "A100"),
        ("A100", 80 * GIB, "A100-80GB"),
        ("RTX PRO Server 6000", 96 * GIB, "RTX-PRO-6000"),
        ("nvidia-rtx-pro-6000", 0, "RTX-PRO-6000"),
    ],
)
def test_one_name_for_one_gpu(given: str, memory: int, name: str) -> None:
    assert accelerator_name(given, memory) == name


# ---------------------------------------------------------------- prices


def product(name: str, usd: str, **attributes: str) -> dict[str, Any]:
    """As the price list answers, shortened."""
    plain = {
        "operatingSystem": "Linux",
        "tenancy": "Shared",
        "capacitystatus": "Used",
        "preInstalledSw": "NA",
    }
    rate = {"unit": "Hrs", "beginRange": "0", "endRange": "Inf", "pricePerUnit": {"USD": usd}}
    dimensions = {"A.B.C": rate}
    found = {
        "instanceType": name,
        "regionCode": "us-east-1",
        "preInstalledSw": "NA",
        "licenseModel": "No License required",
    }
    return {
        "product": {"sku": "A", "attributes": {**plain, **found, **attributes}},
        "terms": {"OnDemand": {"A.B": {"priceDimensions": dimensions}}, "Reserved": {}},
    }


def test_of_several_products_the_plain_linux_machine_is_priced() -> None:
    products = [
        product("g4dn.xlarge", "0.5260000000"),
        product("g4dn.xlarge", "0.7100000000", operatingSystem="Windows"),
        product("g4dn.xlarge", "0.0000000000", capacitystatus="AllocatedCapacityReservation"),
        product("g4dn.xlarge", "0.5790000000", tenancy="Dedicated"),
        product("g4dn.xlarge", "0.9000000000", preInstalledSw="SQL Web"),
        product("g4dn.xlarge", "0.5870000000", regionCode="eu-west-1"),
        product("m5.large", "0.0000000000"),
    ]
    for order in (products, products[::-1]):
        assert aws.parse_products(order, "us-east-1") == {"g4dn.xlarge": 0.526}


def spot(zone: str, price: str, day: int) -> dict[str, Any]:
    return {
        "AvailabilityZone": zone,
        "InstanceType": "g4dn.xlarge",
        "ProductDescription": "Linux/UNIX",
        "SpotPrice": price,
        "Timestamp": datetime(2026, 11, day, tzinfo=UTC),
    }


def test_the_latest_spot_price_by_zone_makes_sales() -> None:
    spots = aws.parse_spots([spot("r-1a", "0.2", 20), spot("r-1a", "0.3", 19), spot("r-1b", "0.2", 18)])
    assert spots == {("g4dn.xlarge", "r-1a"): 0.2, ("g4dn.xlarge", "r-1b"): 0.2}
    offered = [{"InstanceType": "g4dn.xlarge", "Location": f"r-1{zone}"} for zone in "cab"]
    zones = aws.parse_offerings(offered)
    shared, unknown = aws.sales_of("g4dn.xlarge", "r-1", {"g4dn.xlarge": 0.526}, zones, spots)
    assert shared == Sale("r-1", ("r-1a", "r-1b"), 0.526, 0.2)
    assert unknown[:3] == ("r-1", ("r-1c",), 0.526) and math.isnan(unknown.spot)
    assert aws.sales_of("p5.48xlarge", "r-1", {}, zones, spots) == []


# ---------------------------------------------------------------- beside what was known


def test_a_region_that_is_renewed_replaces_itself_alone() -> None:
    day = date(2026, 11, 21)
    kind = KINDS["g4dn.xlarge"]
    sales = {"g4dn.xlarge": [Sale("eu-west-1", ("eu-west-1a",), 0.587, math.nan)]}
    fresh = Catalog("aws", (kind,), sales, (), Facts(day, ("live",), (), {"eu-west-1": day}))
    sold = {name: [s for s in known if s.region == "us-east-1"] for name, known in SHIPPED_AWS.sales.items()}
    shipped = replace(SHIPPED_AWS, sales=sold)
    both = merged(shipped, fresh)
    assert {sale.region for sale in both.sales["g4dn.xlarge"]} == {"us-east-1", "eu-west-1"}
    assert len(both.kinds) == len(SHIPPED_AWS.kinds)
    east_day = SHIPPED_AWS.facts.of("us-east-1")
    assert (both.facts.of("eu-west-1"), both.facts.of("us-east-1")) == (day, east_day)
    assert both.facts.date == east_day
    assert both.stale(day, "eu-west-1") is None and both.stale(day) is not None
    east = {"g4dn.xlarge": [Sale("us-east-1", ("us-east-1a",), 0.53, 0.2)]}
    again = merged(both, Catalog("aws", (kind,), east, (), Facts(day, ("live",), (), {"us-east-1": day})))
    assert [kind.instance_type for kind in again.kinds] == ["g4dn.xlarge"]
    assert (again.facts.date, again.facts.sources) == (day, ("live",))
    assert sorted(sale.price for sale in again.sales["g4dn.xlarge"]) == [0.53, 0.587]
